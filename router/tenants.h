/* tenants.h - finds the tenant of an API key, keeps its limits, and knows if requests need a key.
 *
 * Layer:    router (base/core, base/wire)
 * Threads:  struct tenant_keys is an immutable snapshot that byte loops share by reference count;
 *           struct tenants, with limits and usage, is the decision thread's
 * Rules:    (1) keys are known by their SHA-256 only
 *           (2) a tenant's limits hold for one router; token buckets start full
 *           (3) requests without a key belong to the anonymous tenant "", which has no limits
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/map.h"
#include "base/io/loop/mailbox.h"
#include "base/wire/sync.h"
#include "base/wire/usage.h"
#include "router/metrics.h"

#define TENANT_NAME_MAX 64

struct tenant_keys; /* key hash -> tenant name and salt */

struct tenant_name {
    char name[TENANT_NAME_MAX];
    char salt[TENANT_NAME_MAX];
    bool limited; /* by requests, tokens or concurrency */
};

/* From the controller's list; -ENOMEM, -EINVAL for names that are too long. */
int tenant_keys_new(const struct router_rules *rules, struct tenant_keys **ret, struct err *err);
struct tenant_keys *tenant_keys_ref(struct tenant_keys *k);
void tenant_keys_unref(struct tenant_keys *k); /* NULL is fine */
const struct tenant_name *tenant_keys_find(const struct tenant_keys *k, struct str api_key);

/* Finds the token of a person or a program in the controller's list; false: it is not there. */
bool tenant_keys_token(const struct tenant_keys *k, struct str token, bool *ret_admin);

struct tenant {
    struct tenant_name id;
    bool named;                                             /* in the last list */
    uint32_t requests_per_min, tokens_per_min, concurrency; /* 0: unlimited */
    double weight; /* its share of engines, for their fair policy; 0: 1 */
    double requests_left, tokens_left;
    int64_t filled_us;
    uint32_t in_flight;
    uint64_t requests_total, rejected_total;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total;
    struct tenant_part {
        uint64_t service; /* hash of its name */
        uint64_t computed_tokens_total;
    } part[TENANT_SERVICES_MAX]; /* of the totals, by service */
    uint32_t part_count;
    struct tenant_meters meters;
};

struct tenants;
int tenants_new(struct tenants **ret, struct err *err);
void tenants_free(struct tenants *t);
int tenants_update(struct tenants *t, const struct router_rules *rules); /* limits; -ENOMEM */

/* Finds a tenant, never NULL: an unknown name counts as "". A pointer is good while the tenant has a
 * request in flight, else until the next tenants_update. */
struct tenant *tenants_find(struct tenants *t, const char *name);
uint32_t tenants_count(const struct tenants *t);
struct tenant *tenants_next(struct tenants *t, size_t *cursor); /* NULL at the end */

/* Decides before a prompt is tokenised: returns true and counts the request if its tenant may ask now
 * and owes no tokens; else false and the seconds until it may. */
bool tenant_enter(struct tenant *t, int64_t now_us, double *ret_wait_s);

/* Charges the prompt of a request that entered. Returns true if the tenant had the tokens; else false and
 * the seconds until it has, and the request counts no more, as if it had not entered. */
bool tenant_charge(struct tenant *t, uint32_t prompt_tokens, int64_t now_us, double *ret_wait_s);

/* Enters and charges at once. */
bool tenant_admit(struct tenant *t, uint32_t prompt_tokens, int64_t now_us, double *ret_wait_s);

/* Ends a request to a service (hash of its name) that tenant_enter counted, and charges its generated tokens afterwards. */
void tenant_end(struct tenant *t, uint64_t service, const struct usage *usage);

/* Asks for a tenant's leave to have work done by the router itself, which no engine sees.
 * Threads: a byte loop asks, the decision thread, which holds the limits, answers by mail; each has
 *          a mailbox of its own for entries
 * Rules:   (1) ENTRY_ENTER is answered by ENTRY_MAY or ENTRY_REFUSED, and ENTRY_END, asked once after
 *              ENTRY_MAY, by ENTRY_OVER
 *          (2) the memory is the asker's, and stays until ENTRY_REFUSED or ENTRY_OVER has come
 *          (3) it counts as a request of its tenant and as one in flight; its tokens are not charged,
 *              because no model computes them
 */
enum entry_ask { ENTRY_ENTER = 1, ENTRY_END = 2 };
enum entry_tell { ENTRY_MAY = 1, ENTRY_REFUSED = 2, ENTRY_OVER = 4 };

struct entry {
    struct mailbox_item ask_item, tell_item;
    struct mailbox *home; /* the asker's, for what is told */
    char tenant_name[TENANT_NAME_MAX];
    uint32_t ask, tell;
    double wait_s;         /* with ENTRY_REFUSED: until it may */
    struct tenant *tenant; /* the decision thread's */
};

/* By the asker: `to` is the decision thread's mailbox. */
void entry_ask(struct entry *e, struct mailbox *to, enum entry_ask what);
/* By the asker, for an item of its mailbox: returns what was told, and the seconds. */
uint32_t entry_told(struct mailbox *home, struct mailbox_item *item, double *ret_wait_s);

/* By the decision thread, for an item of its mailbox. False: the tenant may not. */
bool entry_decide(struct mailbox *from, struct mailbox_item *item, struct tenants *tenants,
                  int64_t now_us);

/* Knows if requests need an API key, over a restart of the router too.
 *
 * Threads: the decision thread's; snapshots carry `need` to the byte loops
 * Rules:   (1) the service is closed until the controller has spoken: until then no client is served
 *              without a key, unless no controller is configured
 *          (2) once keys were needed they stay needed, whatever becomes of the controller and its
 *              store, until a controller says that a person has opened the service (keys_opened)
 *          (3) the file holds no key, only digests, and is as private as the secret
 */

enum keys_need {
    KEYS_UNKNOWN, /* the controller has not spoken yet */
    KEYS_NONE,
    KEYS_REQUIRED,
};

struct keys {
    enum keys_need need;
    bool always;      /* the configuration requires them */
    struct buf path;  /* of the file, with NUL; empty: nothing is remembered */
    struct buf saved; /* what the file holds */
};

/* `file` empty: router.keys beside `secret_file`, where there is one. -ENAMETOOLONG. */
int keys_init(struct keys *k, struct str file, struct str secret_file, bool always,
              bool has_controller, struct err *err);
void keys_fini(struct keys *k);

/* Reads the file. -ENOENT: there is none, or no keys were needed. Otherwise keys are needed from now
 * on, also where the file cannot be read or understood; 0: *ret (in `arena`) has the tenants too. */
int keys_recall(struct keys *k, struct arena *arena, struct router_rules *ret, struct err *err);

/* Takes over the controller's rule. */
void keys_heed(struct keys *k, const struct router_rules *rules);

/* Saves the present need, with the tenants of `rules`, unless the file has the same. */
int keys_remember(struct keys *k, const struct router_rules *rules, struct err *err);
