/* demo_fleet.h - a controller and a router of the demo's own, and what their APIs say.
 *
 * Layer:    cli (base/io)
 * Lifetime: the processes die with the demo unless demo_fleet_keep was called; instances are ended by
 *           demo_fleet_stop, or by themselves once their controller is gone for longer than their grace
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/file.h"
#include "base/io/proc.h"

#define FLEET_POOLS_MAX 16
#define FLEET_INSTANCES_MAX 64
#define FLEET_NAME_MAX 64
#define FLEET_EVENTS_MAX 256

struct fleet_pool {
    char name[FLEET_NAME_MAX];
    uint32_t ready, max;
    double price_per_h;
};

struct fleet_instance {
    char name[FLEET_NAME_MAX];
    bool ready;
    uint16_t port; /* of its engine; 0: not known */
};

/* One reading of GET /api/v1/status. */
struct fleet_status {
    char service[FLEET_NAME_MAX];
    double slo_ttft_s, slo_tpot_s;
    struct fleet_pool pool[FLEET_POOLS_MAX];
    uint32_t pool_count;
    struct fleet_instance instance[FLEET_INSTANCES_MAX];
    uint32_t instance_count; /* all that are not ended */
    uint32_t ready;
    double cost_total;
};

/* A change of one pool that a decision made. */
struct fleet_event {
    int64_t at_us; /* wall clock */
    char pool[FLEET_NAME_MAX];
    uint32_t from, to;
    char reason[192];
};

struct demo_fleet {
    char folder[256]; /* state, secret and logs */
    char secret[2 * FILE_SECRET_BYTES + 1];
    struct proc controller, router;
    uint16_t controller_port, router_port;
    struct fleet_event event[FLEET_EVENTS_MAX];
    uint32_t event_count;
    uint64_t decision_seen;
};

/* Starts both on free ports of 127.0.0.1 with their state in `folder`, and waits until they
 * answer. */
int demo_fleet_start(struct demo_fleet *f, const char *config_path, const char *folder,
                     struct err *err);
int demo_fleet_status(struct demo_fleet *f, struct fleet_status *ret, struct err *err);

/* Appends to f->event what the decisions since the last call did; returns how many are new. */
int demo_fleet_events(struct demo_fleet *f, struct err *err);

/* Overrides: pool counts by hand (count < 0 gives it back to the policy), the routing policy, and empty
 * caches in every ready engine. */
int demo_fleet_scale(struct demo_fleet *f, const char *service, const char *pool, int count,
                     struct err *err);
int demo_fleet_route(struct demo_fleet *f, const char *policy, struct err *err);
int demo_fleet_reset_caches(struct demo_fleet *f, const struct fleet_status *s, struct err *err);

bool demo_fleet_is_alive(const struct demo_fleet *f,
                         const char **ret_dead); /* names the one that is not */

/* Ends everything, instances first; safe after a failed start. */
void demo_fleet_stop(struct demo_fleet *f);
