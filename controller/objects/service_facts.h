/* service_facts.h - gathers what the controller knows of one service, for the status of its object.
 *
 * Layer:   controller/objects (controller)
 * Threads: the loop's
 */
#pragma once
#include "controller/control.h"

struct pool_facts {
    char name[NAME_BYTES];
    uint32_t ready, instances, desired; /* the last where decided */
};

struct service_facts {
    bool known;    /* it is in force here */
    bool observed; /* providers were listed since the start of the term */
    bool decided;  /* and its number of instances was decided */
    bool paused, drained;
    bool by_hand; /* a person or spec.replicas says how many */
    struct pool_facts pool[SCALE_POOLS_MAX];
    uint32_t pool_count;
    uint32_t ready, starting, leaving, instances, desired;
    double cost_h, budget_h;      /* 0: no budget */
    uint64_t met, missed;         /* requests, as routers have told since the term's start */
    const char *reason, *blocked; /* static; NULL: none */
    bool at_budget;
    bool missing;                 /* a pool has fewer ready instances than were decided */
    bool stocked_out;             /* such a pool: all its offers refused last */
    char stock[INTENT_WHY_BYTES]; /* the pool and offer, and the provider's words */
};

/* Without a control, or without the service, *ret is { 0 }. */
void service_facts_read(const struct control *c, struct str service, struct service_facts *ret);

/* Returns the living instances of a service of this name, in force or not. */
uint32_t service_instances(const struct control *c, struct str service);

/* Sets the count of every pool for a person, as `muster scale` does; negative: gives them back. */
int service_replicas_set(struct control *c, struct str service, int64_t replicas, struct err *err);

/* Walks what happened since the call before, oldest first. *at begins at 0; what the ring has lost since is
 * skipped. */
struct fleet_event;
void service_events_each(const struct control *c, uint64_t *at,
                         void (*fn)(void *ctx, const struct fleet_event *event), void *ctx);
