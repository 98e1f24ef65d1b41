/* plan_view.h - an instance as the plan and as role policies see it: its intent, its agent's last
 * report, the routers.
 *
 * Layer:   controller/core (base/wire, base/core)
 * Threads: pure
 */
#pragma once
#include "controller/core/plan.h"

/* What is known of an instance beside its agent's report. */
struct instance_facts {
    const char *id;  /* fewer bytes than INTENT_ID_BYTES */
    uint64_t number; /* the same for its whole life, never given again */
    uint32_t service, pool, offer;
    enum phase phase;
    bool fresh;      /* its agent reported within fresh_us */
    bool doomed;     /* the provider takes it away */
    bool pinned;     /* it cannot be ended */
    uint32_t routed; /* what routers have under way there */
    double price_h, lead_s;
    int64_t since_us;                     /* in this phase */
    uint32_t context_tokens, step_tokens; /* 0: unknown */
};

void plan_instance_see(const struct instance_facts *f, const struct sighting *s,
                       struct plan_instance *ret);

/* What a role policy is told of an instance beside its agent's report. */
struct role_facts {
    uint32_t id;         /* by which role policies know it */
    bool ready;          /* routers may send to it, and its agent reported within fresh_us */
    bool moves_kv;       /* its K and V can be copied; false: it serves whole requests */
    enum role pool_role; /* not `both`: said for good */
    enum role role;      /* as routers are told */
    uint32_t step_tokens, context_tokens; /* 0: not said */
};

void role_instance_see(const struct role_facts *f, const struct sighting *s,
                       struct role_instance *ret);
