/* control_state.h - defines the struct behind control.h, in four parts with their writers.
 *
 * Layer:   controller, private to it
 * Owner:   observed: sync.c (agents, routers), calls.c (providers), roles.c, power.c
 *          desired:  act.c decides, restore.c keeps people's overrides
 *          money:    act.c is the only one that changes intents, charges.c what they cost, calls.c offers and calls
 *          people:   tenants.c, aside.c
 *          tick.c makes and frees all of it; a slot of money.intent moves with its observed twins
 */
#pragma once
#include "base/core/owner.h"
#include "base/core/rng.h"
#include "base/io/log.h"
#include "controller/access.h"
#include "controller/aside.h"
#include "controller/control.h"
#include "controller/core/bill.h"
#include "controller/core/record.h"
#include "controller/events.h"
#include "controller/metrics.h"
#include "controller/observed.h"
#include "controller/power.h"
#include "controller/roles.h"
#include "controller/stocks.h"

#define SLOTS_MAX (CONTROL_INSTANCES_MAX + CONTROL_TOMBSTONES_MAX)
#define MEMORY_FLUSH_US 10000000        /* policy state is written so often */
#define MEMORY_FLUSH_COSTLY_US 60000000 /* on a store whose writes cost others something */
#define TOMBSTONE_US 3600000000         /* an ended intent is remembered so long */
#define STRAYS_MAX 64                   /* of which the cost is counted */

/* The last reports of providers, agents and routers. Nothing of it is stored. */
struct observed {
    struct provider provider[CONTROL_CLOUDS_MAX];
    struct claimed *claimed; /* of the listing under work */
    struct sighting *seen;   /* parallel to money.intent, as is the next */
    struct detail *detail;
    struct router router[CONTROL_ROUTERS_MAX];
    struct str reach[CONTROL_ROUTERS_MAX]; /* those that agents may dial, in the reply at hand */
    struct plan_demand demand[PLAN_SERVICES_MAX];
    struct demand_counted counted[PLAN_SERVICES_MAX];
    struct service_power power[PLAN_SERVICES_MAX];
    struct power_room *power_room;
    struct roles roles[PLAN_SERVICES_MAX];
    struct role_instance *role_instance; /* of one look; CONTROL_INSTANCES_MAX */
    uint32_t *role_slot;                 /* parallel to it */
    int64_t listening_us; /* since the start, or since the last tick that came late */
};

/* The wanted state of the fleet: the configuration, people's overrides, and the plan's decisions. */
struct desired {
    struct plan_service service[PLAN_SERVICES_MAX];
    struct plan_memory memory[PLAN_SERVICES_MAX];
    struct plan plan;
    struct pool_mix_room *mix_room;
    struct pool_mix mix[PLAN_SERVICES_MAX];
    struct plan_instance *view_instance;
    uint32_t *view_slot; /* parallel to view_instance */
    struct record_last last[PLAN_SERVICES_MAX];
    uint64_t decision_last;
    struct store_log decision_log;
};

/* All that costs money: offers, intents and the calls that make and end instances. */
struct money {
    struct offer offer[PLAN_OFFERS_MAX];
    struct offer_health health[PLAN_OFFERS_MAX];
    int64_t priced_us[PLAN_OFFERS_MAX]; /* when the provider last gave a price; 0: never */
    uint32_t offer_count;
    struct stock_watch stock; /* where providers are sold out */
    struct intent *intent;    /* live and ended, in no order */
    uint32_t count;
    struct intent stray[STRAYS_MAX]; /* billed instances that no intent stands for */
    uint32_t stray_count;
    struct bill bill;           /* of forgotten intents */
    bool bill_grown;            /* since it was written: tokens were counted */
    int64_t bill_us;            /* when it was written */
    struct bill_periods period; /* as of this tick */
    uint64_t cost_version;
    struct cloud_event event; /* the one that is being taken */
    uint64_t call_last;       /* id of the last call; the upper half is the epoch's */
    uint64_t epoch_seen;      /* by a provider, later than ours; 0: none */
};

/* The tenants that may send requests, and the people that may give orders. */
struct people {
    struct aside aside;
    struct tenant *tenant;
    uint32_t tenant_count;
    uint64_t tenants_version, tenant_serial;
    enum keys_state keys;
    struct tokens tokens;
};

struct control {
    struct owner owner; /* the thread of the loop, once that runs */
    struct control_setup setup;
    struct observed observed;
    struct desired desired;
    struct money money;
    struct people people;
    struct rng rng;
    struct metrics *metrics;
    bool owns_metrics;
    struct last_hour last_hour;
    struct { /* the sentences of the metrics that are 1; static */
        const char *reason, *blocked;
    } told[PLAN_SERVICES_MAX];
    struct events events;
    int64_t started_us, memory_us, usage_us, ticked_us;
    int64_t date_ahead_us; /* date less fleet time */
    bool date_known;
    struct log_limit store_trouble, refused_joins;
    bool urgent;
};

/* calls.c */

/* Makes the call as soon as the provider's budget and the intent's earlier call allow. -ECANCELED. */
int control_call(struct control *c, uint32_t at, enum cloud_op op, int64_t now_us);
bool control_is_calling(const struct detail *d); /* due, or under way */

/* Removes a listed instance that no intent stands for. -EAGAIN: not now. */
int control_call_stray(struct control *c, uint32_t cloud, const struct listed *item,
                       int64_t now_us);

/* act.c */

/* Marks a named moment between two durable or outward effects. -ECANCELED when a test wants the process
 * to die here; with crash_at it does. */
int control_step_at(struct control *c, const char *name);

int control_store_intent(struct control *c, struct intent *i); /* over the version it was read at */

/* Applies an event to intent `at`: stores the change, then submits the call that it asks for. `handle`
 * (may be NULL) is stored as the provider's name of the instance. */
int control_apply(struct control *c, uint32_t at, enum intent_event e, const char *why,
                  const char *handle, int64_t now_us);

/* Drains an instance for a person, so that no plan keeps it, or with let_go false keeps it again. The
 * intent must be live and not set aside. */
int control_let_go(struct control *c, uint32_t at, bool let_go, const char *why, int64_t now_us);

/* Makes an intent and submits its create call. */
int control_launch_one(struct control *c, const struct plan_action *a, int64_t now_us,
                       char ret_id[INTENT_ID_BYTES]);
int control_adopt(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us);
int control_remove_stray(struct control *c, uint32_t cloud, const struct listed *item,
                         int64_t now_us);            /* -EAGAIN: not now; it will be listed again */
int control_bury(struct control *c, int64_t now_us); /* forgets old tombstones */
void control_drop_slot(struct control *c, uint32_t at); /* the last one takes its place */
void control_build_view(struct control *c, int64_t now_us, struct plan_view *ret); /* borrows c's */
int control_carry_out(struct control *c,
                      int64_t now_us); /* makes a plan and carries out its actions */

/* Appends a decision to the log that people read and sets decision_last to its id. */
int control_keep_decision(struct control *c, uint32_t service, struct str text);

/* observe.c */
bool control_pool_is_known(const void *ctx, const char *service, const char *pool,
                           const char *provider); /* a pool_known_fn; ctx: the control */
const struct listed *control_find_item(const struct listing *l,
                                       const struct intent *i); /* or NULL */
void control_see_phase(struct control *c, uint32_t at, int64_t now_us);
int control_observe(struct control *c, int64_t now_us);

/* sync.c */
void control_sum_demand(struct control *c, int64_t now_us);

/* Names what the service's policy needs and no serving instance reports; NULL: nothing, or none serves
 * yet. */
const char *control_missing(const struct control *c, uint32_t service, int64_t now_us);

/* restore.c */
int control_restore(struct control *c, int64_t now_us, struct err *err);
int control_restore_override(struct control *c, struct plan_service *s, struct err *err);
int control_restore_memory(struct control *c, const struct plan_service *s, struct plan_memory *ret,
                           struct err *err); /* *ret stays where there is none of this service */
void control_place(struct control *c, uint32_t at,
                   int64_t now_us); /* begins the observed part of an intent's slot */
int control_store_cost(struct control *c, const struct bill *l);
int control_flush_memory(struct control *c, int64_t now_us);

/* measure.c */
void control_measure(struct control *c, int64_t now_us); /* sets the gauges */
void measure_zeros(struct control *c); /* of counters: a rate needs a zero to rise from */
void measure_create(struct control *c, uint32_t offer, enum offer_error e); /* a provider's reply */
void measure_ready(struct control *c, uint32_t at, int64_t now_us);         /* of a launch */
void measure_lead(struct control *c, const struct intent *i, const char *phase, double seconds);

/* tick.c */
uint32_t control_find(const struct control *c, const char *id); /* UINT32_MAX: unknown */
uint32_t control_find_offer(const struct control *c, const char *provider, const char *name);
uint32_t control_find_cloud(const struct control *c, const char *provider);
bool control_router_is_fresh(const struct router *r, int64_t now_us);
void control_bound_reached(struct control *c, const char *bound);
void control_count(struct control *c, enum control_metric m, const char *label);

/* Counts a failed write of `what` and logs it as `event`, every ten seconds at most. */
void control_store_failed(struct control *c, const char *event, const char *what, const char *why);
