/* fake_gce.h - speaks the API of Google Compute Engine over a fake fleet, with Google's token endpoint and the metadata
 * server beside it, the Security Token Service, a service account's tokens by impersonation, and an identity provider that
 * hands out subject tokens.
 *
 * Layer:  tests/fakes/cloud (base/core)
 * Has:    instances insert, get, delete, stop, start and aggregatedList; regionInstances bulkInsert of one;
 *         zone operations get and wait; reservations get; the token endpoint, which checks signature and dates of assertions; the
 *         metadata server's token. Requests with members, parameters or values that the API does not document are
 *         refused as the API does, and counted in fleet->refused_form
 * Script: FLEET_PRICES stands for looks at operations: this API tells no prices. FLEET_STOCK_OUT fails the operation,
 *         as the provider does it, not the request
 * Names:  unique in a zone; the fleet's names_unique and keys_unique stay off
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

#define FAKE_GCE_OPERATIONS_MAX 4096
/* An instance template that a user has made. */
#define GCE_USER_TEMPLATE "house"
#define GCE_USER_IMAGE "of-the-house"
#define FAKE_GCE_ACCOUNT "muster@p-1.iam.gserviceaccount.com"
#define FAKE_GCE_KEY_ID "0123456789abcdef0123456789abcdef01234567"
/* Of workload identity federation: what a pool's provider is named by, and the token that it takes from a fake's server. */
#define FAKE_GCE_AUDIENCE \
    "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/fleet/providers/idp"
#define FAKE_GCE_SUBJECT "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtdXN0ZXIifQ.of-the-idp"

struct fake_gce_operation {
    char request_id[40]; /* empty: none */
    const char *type;    /* insert, delete, stop, start, bulkInsert: its zone is a region */
    char zone[FLEET_TEXT], name[FLEET_TEXT];
    uint64_t machine;
    int64_t from_us, done_us; /* known to the API, and ended */
    const char *code;         /* of its failure; NULL: it succeeds */
    const char *made_in;      /* of a bulk insert: the zone; NULL: none */
};

enum fake_gce_permission {
    GCE_CREATE,
    GCE_DISK,
    GCE_SUBNET,
    GCE_ADDRESS,
    GCE_METADATA,
    GCE_LABELS,
    GCE_TAGS,
    GCE_ACCOUNT,
    GCE_IMAGE,
    GCE_GET,
    GCE_LIST,
    GCE_DELETE,
    GCE_OPERATION,
    GCE_BULK, /* the right is that of inserts; a test denies it alone */
    GCE_REGION_OPERATION,
    GCE_RESERVATION,
    GCE_STOP,
    GCE_START,
    GCE_TEMPLATE,
    GCE_IMPERSONATE, /* of a federated login's account */
    GCE_PERMISSION_COUNT
};
extern const char *const fake_gce_permissions[GCE_PERMISSION_COUNT];

struct fake_gce {
    struct fake_fleet *fleet;
    const char *project;
    const char *always;   /* a token that is good at any time; NULL: none */
    const char *failure;  /* code with which each insert's operation fails; NULL: none */
    const char *missing;  /* zone that cannot be reached: listings say so */
    bool by_unreachables; /* in `unreachables`, not in a warning */
    bool on_machine;      /* there is a metadata server */
    bool mute_bulk;       /* operations of bulk inserts say not where */
    bool forgets_ids;     /* request ids say nothing */
    const char *reserved; /* name of a reservation of four, of which one is used; NULL: none */
    uint32_t page;        /* instances of a page at most; 0: as asked */
    int64_t date_us;      /* the date less the fleet's time */
    int64_t operation_us; /* how long one takes */
    int64_t token_us;     /* how long a token is good; 0: an hour */
    uint32_t denied;      /* bit p: permission p */
    uint32_t needed;      /* bit p: a request needed permission p */
    const char *subject;  /* token of the identity provider that a pool takes; NULL: none */
    bool direct;          /* the pool's identity has the role itself; else an account has it */
    char federated[40];   /* token that opens the account alone */
    bool federated_wide;  /* it has the scope for that */
    int64_t federated_us; /* its end */
    char token[40];       /* the one that is good */
    int64_t expires_us;
    uint32_t tokens;
    uint32_t operation_count;
    struct fake_gce_operation operation[FAKE_GCE_OPERATIONS_MAX];
};

extern const struct cloud_fake fake_gce; /* ctx: struct fake_gce */

/* Answers the token endpoint, the metadata server and what federation asks; false: the request is for none of them. */
bool fake_gce_login(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                    struct arena *arena, struct web_reply *ret, const struct fleet_row **ret_row);

/* Appends a service account's key as the console hands it out. */
void fake_gce_key(struct buf *out);
