/* snapshot.h - the services of a router, and the immutable view of them that byte loops have: models,
 * tokenizers and API keys.
 *
 * Layer:    router (base/core)
 * Threads:  a snapshot is immutable; the board hands out references under a lock
 * Lifetime: a reference is good until snapshot_unref
 */
#pragma once
#include "base/wire/sync.h"
#include "fleet/telemetry.h"
#include "router/bundles.h"
#include "router/tenants.h"

#include <pthread.h>

/* The services of a router: rules from the controller, and the demand for each.
 *
 * Threads: the decision thread only
 * Bound:   SYNC_SERVICES_MAX services
 */

#define SERVICE_NAME_MAX 128

struct service {
    char name[SERVICE_NAME_MAX];
    uint64_t hash; /* of the name: dispatch_request.model */
    bool paused, may_start;
    bool from_controller; /* false: of a static endpoint, or deleted since */
    double slo_ttft_s, slo_tpot_s;
    bool refuse_late;           /* while its fleet is overloaded */
    bool has_kv_link;           /* the controller has said the next */
    double kv_link_bytes_s;     /* 0: its engines copy no K and V */
    struct telemetry telemetry; /* demand for it */
};

struct services {
    struct service *item;
    uint32_t count;
};

int services_new(struct services *s); /* -ENOMEM */
void services_fini(struct services *s);

/* Finds or makes; NULL at the bound or for a name that is too long. */
struct service *services_get(struct services *s, struct str name);
struct service *services_by_hash(struct services *s, uint64_t hash); /* NULL */
void services_remove(struct services *s, uint32_t at); /* another one may take its index */

struct snapshot_model {
    char name[SERVICE_NAME_MAX];
    uint64_t service;                  /* hash, as dispatch_request.model */
    uint32_t context_tokens;           /* 0: no instance has said yet */
    const struct bundle_entry *bundle; /* NULL: not known yet */
};

struct snapshot {
    uint32_t refs; /* under the board's lock */
    enum keys_need keys;
    struct tenant_keys *tenants; /* NULL: none are known */
    uint64_t pins;               /* of the models' tokenizers */
    uint32_t model_count;
    struct snapshot_model model[SYNC_SERVICES_MAX];
};

struct snapshot_board {
    struct bundle_pins pins; /* outlives every holder of a pin */
    pthread_mutex_t lock;
    struct snapshot *current;
};

int snapshot_board_init(struct snapshot_board *b); /* -ENOMEM; starts with an empty snapshot */
void snapshot_board_fini(struct snapshot_board *b);

struct snapshot *snapshot_get(struct snapshot_board *b); /* a reference */
void snapshot_unref(struct snapshot_board *b, struct snapshot *f);
void snapshot_publish(struct snapshot_board *b, struct snapshot *owned);

/* The model a client named; an empty name means the only one. NULL: there is none. */
const struct snapshot_model *snapshot_model_find(const struct snapshot *f, struct str name);
