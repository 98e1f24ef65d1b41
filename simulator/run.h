/* run.h - holds one run of the simulator: its parts, and the calls between them.
 *
 * Layer:    simulator; internal to it
 * Order:    events at one microsecond come in this order: instances by place, copies, reports of
 *           engines and of routers, told loads, looks at migration and at roles, routers' timers, the
 *           controller, the power policy, arrivals in the trace's order; so a run depends on its
 *           inputs alone
 */
#pragma once
#include "base/core/heap.h"
#include "fleet/power_view.h"
#include "simulator/control.h"
#include "simulator/heard.h"
#include "simulator/instance.h"
#include "simulator/kv_transfers.h"
#include "simulator/result.h"
#include "simulator/roles.h"
#include "simulator/trace.h"

#define RUN_RANKS (2 * SIM_INSTANCES_MAX) /* events of one microsecond that can be told apart */

enum run_rank {
    RANK_INSTANCE = 0,
    RANK_COPY = SIM_INSTANCES_MAX,
    RANK_REPORT,
    RANK_SYNC,
    RANK_TELL,
    RANK_LOOK,
    RANK_ROLES,
    RANK_ROUTER,
    RANK_CONTROL = RANK_ROUTER + SIM_ROUTERS_MAX,
    RANK_POWER,
};
_Static_assert((int)RANK_POWER < RUN_RANKS, "a key is a time and a rank");
_Static_assert(RUN_RANKS <= INT64_MAX / 1100000000000000,
               "a step of STEP_US_MAX ends before the clock");

/* The power policy's view and verdict; as many of each as places. */
struct run_clocks {
    struct heap_node tick;
    int64_t due_us; /* of the next look */
    struct power_instance *shown;
    struct instance **who;
    double *clock;
    struct power_tails tails;
    _Alignas(8) char state[POWER_STATE_BYTES_MAX];
};

/* The routers' reports; [router * SIM_SERVICES_MAX + service]. */
struct run_demand {
    struct service_demand *report;
    uint32_t services;
};

struct run_router {
    struct director *director;
    struct dispatch *dispatch; /* the director's */
    uint32_t requests;         /* in it now */
    struct heap_node held;     /* when held requests must be looked at again */
};

struct run {
    struct sim_config config; /* with all defaults filled in */
    const struct trace *trace;
    struct trace_features *features; /* of its requests, for predictors */
    struct world world;
    struct heap events;
    struct heap_node report, control_event;
    struct sim_control *control; /* NULL: the fleet does not scale */
    struct sim_load *load;       /* for its input; as many as places */
    struct world_future future;  /* for the clairvoyant bound; empty otherwise */
    struct instance **instance;  /* by place; NULL: free */
    uint32_t places;             /* beyond it all are free */
    uint32_t places_max;         /* as many as the fleet may need */
    uint32_t alive, launched;
    uint32_t alive_of[SIM_SERVICES_MAX];
    bool drained; /* some draining instance has become empty */
    struct run_router router[SIM_ROUTERS_MAX];
    uint32_t router_count;
    struct run_demand demand;
    struct heard heard;
    struct flights flights;
    struct feed feed;
    struct kv_transfers kv;
    struct roles roles;
    struct run_clocks clocks;
    /* For the hotspot index, of instances that are gone: prompt tokens, ready seconds, the highest
     * rate. */
    uint64_t routed_tokens;
    double ready_s, hottest;
    uint64_t key_seed;
    uint32_t *ids; /* of one prompt; context_max places */
    uint64_t event_count;
    uint32_t misses;       /* of the SLO, among ended requests */
    uint32_t block_tokens; /* of a router's key; 0: prompts share nothing */
    uint32_t context_max;  /* of the largest instance */
    int64_t now_us;
    struct sim_result *result;
};

static inline int64_t run_elapsed_us(const struct run *run)
{
    return run->now_us - run->trace->request[0].at_us;
}

/* Sets the event's time, INT64_MAX for never. The rank makes the order within one microsecond
 * independent of the order of calls. */
static inline void run_at(struct run *run, struct heap_node *node, int64_t at_us, uint32_t rank)
{
    if (heap_has(node)) heap_remove(&run->events, node);
    if (at_us == INT64_MAX) return;
    must(heap_push(&run->events, node, at_us * RUN_RANKS + rank) == 0);
}

/* sim.c; `config`, `trace` and `result` are set */
int run_start(struct run *run, struct err *err);
void run_stop(struct run *run); /* also after a start that failed */
/* Runs the event of the heap's node; an instance may skip ahead to until_us. */
void run_happen(struct run *run, struct heap_node *node, int64_t until_us);

/* fleet.c */
int fleet_start(struct run *run, struct err *err);
void fleet_stop(struct run *run); /* accounts for the remaining instances */
int fleet_launch(struct run *run, uint32_t pool, struct instance **ret, struct err *err);
void fleet_ready(struct run *run, struct instance *in);
void fleet_drain(struct run *run, struct instance *in);
void fleet_keep(struct run *run, struct instance *in); /* withdraws a drain */
void fleet_kill(struct run *run, struct instance *in); /* its requests fail or go elsewhere */
void fleet_sweep(struct run *run);                     /* removes drained instances */

/* scaling.c; start, stop and sum_up do nothing if the fleet does not scale; due and hurry are called only
 * if it does */
int scaling_start(struct run *run, struct err *err);
void scaling_stop(struct run *run);
void scaling_due(struct run *run);                    /* the controller is due */
void scaling_hurry(struct run *run, uint32_t router); /* it holds a request */
void scaling_sum_up(struct run *run);
/* Fills the load that an engine reports. */
void scaling_load(const struct run *run, struct instance *in, struct sim_load *ret);

/* heard.c */
int demand_start(struct run *run, struct err *err);
void demand_stop(struct run *run);
/* Returns the report of every router now; valid until the next call. */
const struct service_demand *demand_report(struct run *run);

/* clocks.c */
int clocks_start(struct run *run, struct err *err);
void clocks_stop(struct run *run);
void clocks_due(struct run *run);

/* routers.c */
int routers_start(struct run *run, struct err *err);
void routers_stop(struct run *run);
uint64_t routers_model(uint32_t service);                    /* the hash of its name */
void routers_endpoint(struct run *run, struct instance *in); /* as it is now */
void routers_endpoint_gone(struct run *run, const struct instance *in);
void routers_report(struct run *run); /* engines' reports reach the routers */
void routers_arrive(struct run *run, uint32_t request);
void routers_tokens(struct run *run, struct flight *f, uint32_t count);
void routers_ended(struct run *run, struct flight *f);
void routers_sliced(struct run *run, struct flight *f); /* its slice is over, its output is not */
void routers_died(struct run *run, struct flight *f);   /* its instance is gone */
/* Its instance refuses it, at once or later. */
void routers_displaced(struct run *run, struct flight *f);
void routers_deliver(struct run *run, struct flight *f); /* to its instance */
void routers_look_at_held(struct run *run, uint32_t router);
