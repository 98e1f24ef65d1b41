/* plan_view.h - builds the plan's and the role policies' view of an instance from its intent, its agent's
 * last report and the routers.
 *
 * Layer:   controller/core (base/wire, base/core)
 * Threads: pure
 */
#pragma once
#include "controller/core/plan.h"

/* The facts about an instance beside its agent's report. */
struct instance_facts {
    const char *id;  /* fewer bytes than INTENT_ID_BYTES */
    uint64_t number; /* unique to it, for its whole life and after */
    uint32_t service, pool, offer;
    enum phase phase;
    bool fresh;      /* its agent reported within fresh_us */
    bool at_risk;    /* the provider may, and names no time */
    bool doomed;     /* the provider takes it away */
    bool failing;    /* its machine has to be replaced, and may still serve */
    bool pinned;     /* it cannot be ended */
    uint32_t routed; /* requests that routers have in flight there */
    double price_h, lead_s;
    int64_t since_us;                     /* in this phase */
    uint32_t context_tokens, step_tokens; /* 0: unknown */
};

void plan_instance_see(const struct instance_facts *f, const struct sighting *s,
                       struct plan_instance *ret);

/* Puts instances of failing machines at risk, so that they are replaced first: PLAN_FAILING_SHARE of each pool at most,
 * of the others `failing` is cleared. A wave of faults is likelier to have a cause that new machines share, as a
 * driver, than to be of their hardware. */
void plan_pick_failing(struct plan_instance *list, uint32_t count);

/* A role policy's facts about an instance beside its agent's report. */
struct role_facts {
    uint32_t id;         /* its id in role policies */
    bool ready;          /* routers may send to it, and its agent reported within fresh_us */
    bool moves_kv;       /* its KV can be copied; false: it serves whole requests */
    enum role pool_role; /* other than `both`: pinned */
    enum role role;      /* as routers are told */
    uint32_t step_tokens, context_tokens; /* 0: unknown */
};

void role_instance_see(const struct role_facts *f, const struct sighting *s,
                       struct role_instance *ret);
