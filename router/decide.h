/* decide.h - the decision thread owns the dispatch, the limits of tenants and the controller's rules.
 *
 * Layer:   router
 * Threads: decide_run is the thread; byte loops reach it through decide_mailbox only
 */
#pragma once
#include "router/blocks.h"
#include "router/config.h"
#include "router/core/director.h"
#include "router/ended.h"
#include "router/fleet_link.h"
#include "router/metrics.h"
#include "router/migrate_plan.h"
#include "router/quarantine_board.h"
#include "router/record.h"
#include "router/request.h"
#include "router/snapshot.h"
#include "router/tunnels.h"

#include <stdatomic.h>

/* How an endpoint is reached; the director keeps the rest of it. */
/* The adapters that ready endpoints have. */
struct adapter_list {
    struct snapshot_adapter *item; /* SNAPSHOT_ADAPTERS_MAX */
    uint32_t count;
};

struct endpoint_place {
    struct target target;
    uint64_t pins; /* of target.bundle */
    uint64_t boot;
    struct block_feed *feed; /* of its KV events; NULL for other engines */
};

struct decide {
    const struct router_config *config;
    struct tunnels *tunnels;
    struct fleet_link *link;
    struct loop *loop;
    struct http_client *client;
    struct signer *signer;
    struct director *director;
    struct dispatch *dispatch; /* the director's, as the services are */
    struct services *services;
    struct migrate_plan *migrate;
    struct record *record; /* NULL: nothing is recorded */
    struct bundles *bundles;
    struct tenants *tenants;
    struct tenant_keys *tenant_keys; /* of the last list; shared with snapshots */
    uint64_t tenants_version;
    struct keys keys;
    struct endpoint_place endpoint[DISPATCH_ENDPOINTS];
    struct adapter_list adapters, adapters_next; /* the second of the list that is being applied */
    struct snapshot_board *board;
    struct metrics *metrics;
    struct quarantine_board quarantine;
    struct ended_requests ended;
    struct quarantine_counts quarantine_told; /* to the metrics */
    bool quarantine_cleared;                  /* since the controller was asked last */
    struct bundles_counts bundles_told;
    uint64_t metered[SYNC_SERVICES_MAX]; /* services by hash whose metrics are made */
    struct mailbox mailbox, entries;
    struct loop_timer held_timer, waiting_timer;
    struct sync *sync;
    _Atomic(const struct route_policy *) route_asked;
    uint64_t boot;
    bool informed;     /* the controller has replied once, or there is none */
    bool may_remember; /* the predictor knows what its file knew, and may be written back */
};

struct decide_config {
    const struct router_config *router;
    struct tunnels *tunnels;
    struct fleet_link *link;
    uint16_t port; /* where clients reach us, for the controller */
    struct snapshot_board *board;
    struct metrics *metrics;
    struct name_book *names;
    struct tls *call;
};

int decide_new(const struct decide_config *config, struct decide **ret, struct err *err);
void decide_free(struct decide *d); /* after the thread has ended */
int decide_run(struct decide *d);
void decide_stop(struct decide *d);                                         /* any thread */
void decide_route_ask(struct decide *d, const struct route_policy *policy); /* any thread */
void decide_tunnels_changed(
    void *decide); /* any thread: an endpoint can be reached, or cannot any more */
int decide_quarantine_clear(struct decide *d, uint64_t fingerprint); /* any thread; -EAGAIN */
struct mailbox *decide_mailbox(struct decide *d);
struct mailbox *decide_entries(struct decide *d); /* for struct entry (tenants.h) */

/* Apply a list of endpoints from sync.c: begin, put each, end. Endpoints that a complete list leaves
 * out are removed; those that an incomplete one leaves out stay as they were. */
void decide_endpoints_begin(struct decide *d);
void decide_endpoint_put(struct decide *d, const struct endpoint *ep, struct err *err);
void decide_endpoints_end(struct decide *d, bool complete);
void decide_publish(struct decide *d); /* a new snapshot */

/* Shared by the thread's own files. */
void decide_on_mail(void *decide, struct mailbox_item *item);
void decide_on_entry(void *decide, struct mailbox_item *item);
void decide_on_held(void *decide);
void decide_on_waiting(void *decide);
/* Tenants and API keys. */
void decide_tenants_heed(struct decide *d, const struct router_rules *rules);
void decide_tenants_recall(struct decide *d); /* the rules heard last */

/* quarantine_board.c */
void decide_quarantine_tell(struct decide *d); /* to the board and the metrics */
uint32_t decide_quarantine_list(struct decide *d,
                                struct refused_prompt *ret); /* SYNC_REFUSED_MAX */
void decide_quarantine_told(struct decide *d, const struct router_rules *rules);
void decide_policy_tell(struct decide *d, const char *kind, const char *row, bool decides);
void decide_tell_migrate(struct decide *d, struct request *r, uint32_t slot); /* TELL_MIGRATE */

void decide_route_set(struct decide *d, struct str name); /* unknown: logged */
void decide_held_again(struct decide *d);                 /* after anything that may free one */
