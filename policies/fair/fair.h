/* fair.h - the interface of fairness policies, which choose the tenant that is served next.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) a tenant is a slot below FAIR_TENANTS_MAX; an idle tenant may be forgotten and its slot
 *              given to another, which inherits nothing: `is_new` announces it
 *          (2) pick chooses among tenants with waiting sessions, in the order of their slots; the
 *              order policy then chooses within that tenant
 *          (3) requests that name no tenant are one tenant
 */
#pragma once
#include "policies/step.h"

#define FAIR_TENANTS_MAX 256

struct fair_tenant {
    uint32_t slot;
    double weight;    /* its share, > 0 */
    double head_rank; /* rank of its best waiting session now; only for policies with uses_heads */
};

struct fair_event {
    enum step_event_kind kind; /* STEP_ARRIVED, STEP_ADMITTED or STEP_RAN */
    uint32_t slot;
    double weight;
    bool was_idle; /* STEP_ARRIVED: the tenant had nothing waiting or running */
    bool is_new;   /* STEP_ARRIVED: the slot was free or another tenant's; was_idle is set too */
    uint32_t input_tokens, cached_tokens, output_tokens;
    const bool *active; /* STEP_ARRIVED: by slot, has sessions waiting or running */
};

/* A tenant's places in a full queue. */
struct fair_holding {
    uint32_t requests; /* in the queue */
    double weight;     /* > 0 */
    bool gives_way;    /* one of these may lose its place */
};

struct fair_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    bool uses_heads;
    /* Returns the index of the tenant to serve next. pick and observe are NULL for the policy
     * without fairness: all sessions are one queue. */
    uint32_t (*pick)(void *state, const struct fair_tenant *tenant, uint32_t count);
    void (*observe)(void *state, const struct fair_event *event);
    /* Optional: asked when a request of tenant `newcomer` meets a full queue. Returns the index of
     * the tenant that loses its last request; `count`: the new request is refused. NULL: it always
     * is. */
    uint32_t (*displace)(const struct fair_holding *tenant, uint32_t count, uint32_t newcomer);
};

#define POLICY(name) extern const struct fair_policy fair_##name;
#include "policies/fair/fair.def"
#undef POLICY

extern const struct fair_policy *const fair_table[];
extern const uint32_t fair_count;
#define FAIR_DEFAULT "none"

const struct fair_policy *fair_find(struct str name); /* NULL when there is none */

/* Longest-queue drop: the `displace` of vtc and dlpm, and the rule for a router's held requests.
 * The tenant with the most places by weight loses one if it has more than the newcomer's tenant
 * would have. */
uint32_t fair_longest_queue(const struct fair_holding *tenant, uint32_t count, uint32_t newcomer);
