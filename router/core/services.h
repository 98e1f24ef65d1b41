/* services.h - keeps the services of a router: the controller's rules and the demand for each.
 *
 * Layer:    router/core (fleet, base/wire)
 * Threads:  the decision thread only
 * Lifetime: services_new takes the memory of all
 * Bound:    SYNC_SERVICES_MAX services
 */
#pragma once
#include "base/wire/sync.h"
#include "fleet/telemetry.h"

#define SERVICE_NAME_MAX 128

struct router_service {
    char name[SERVICE_NAME_MAX];
    uint64_t hash; /* of the name: dispatch_request.model */
    bool paused, may_start;
    bool from_controller; /* false: of a static endpoint, or deleted since */
    double slo_ttft_s, slo_tpot_s;
    bool refuse_late;           /* while its fleet is overloaded */
    bool has_kv_link;           /* the controller has set the next */
    double kv_link_bytes_s;     /* 0: its engines copy no K and V */
    double eta_s;               /* until another instance is expected, as told last; 0: not known */
    struct telemetry telemetry; /* demand for it */
};

struct services {
    struct router_service *item;
    uint32_t count;
};

/* Used where the controller's rules leave a value open. */
struct service_defaults {
    double slo_ttft_s, slo_tpot_s;
    double kv_link_bytes_s;
};

int services_new(struct services *s); /* -ENOMEM */
void services_fini(struct services *s);

/* Finds a service or adds it; NULL at the bound or for a name that is empty or too long. */
struct router_service *services_get(struct services *s, struct str name);
struct router_service *services_by_hash(struct services *s, uint64_t hash); /* NULL */
void services_remove(struct services *s, uint32_t at); /* another one may take its index */

/* Applies the rules of all services. One that they do not name is deleted: nothing is started for it. */
void services_rules(struct services *s, const struct router_rules *rules,
                    const struct service_defaults *open);
/* Returns the rate at which its engines copy KV; 0: they do not. */
double service_link(const struct router_service *s, const struct service_defaults *open);
