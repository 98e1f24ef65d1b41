/* scale_rig.h - makes a service by hand for tests of scaling policies: one pool or two, instances with
 * given loads, and a policy with its state.
 *
 * Layer: tests
 */
#pragma once
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <string.h>

#define SECOND ((int64_t)1000000)
#define RIG_INSTANCES 16
#define RIG_KV 1000 /* tokens that an instance's memory holds */

struct rig {
    const struct scale_policy *policy;
    struct scale_config config;
    struct scale_view v;
    struct scale_instance in[RIG_INSTANCES];
    _Alignas(8) char state[SCALE_STATE_BYTES_MAX];
    struct scale_verdict got;
};

/* Returns a pool with 2,000 prompt tokens a second (b) and steps of 10 ms + 1 ms a session; the SLO
 * is TTFT 2 s, TPOT 100 ms. */
static inline struct scale_pool rig_pool(double price_h)
{
    return (struct scale_pool){
        .max = 64,
        .available = true,
        .price_h = price_h,
        .lead_s = 20,
        .perf_known = true,
        .perf = { .step_s = 0.010,
                  .prefill_token_s = 0.0005,
                  .decode_seq_s = 0.001,
                  .kv_read_s = 1e-6 },
        .seqs_max = 256,
        .kv_tokens_max = RIG_KV,
        .context_tokens = 1000,
    };
}

/* Gives the first pool `ready` idle instances; the rest of `have` is starting. */
static inline void rig_fleet(struct rig *r, uint32_t have, uint32_t ready)
{
    r->v.pool[0].ready = ready;
    r->v.pool[0].starting = have - ready;
    r->v.instance = r->in;
    r->v.instance_count = have < RIG_INSTANCES ? have : RIG_INSTANCES;
    for (uint32_t i = 0; i < r->v.instance_count; i++)
        r->in[i] = (struct scale_instance){ .id = i,
                                            .ready = i < ready,
                                            .fresh = i < ready,
                                            .kv_tokens_max = RIG_KV,
                                            .prefill_known = true };
}

static inline void rig_init(struct rig *r, const struct scale_policy *policy, uint32_t ready)
{
    *r = (struct rig){ .policy = policy, .config = SCALE_CONFIG_DEFAULT };
    r->v = (struct scale_view){ .pool_count = 1, .ttft_slo_s = 2, .tpot_slo_s = 0.1 };
    r->v.pool[0] = rig_pool(1);
    r->v.demand = (struct scale_demand){
        .present = true, .arrivals_s = 1, .prompt_tokens = 200, .output_tokens = 100, .in_flight = 1
    };
    rig_fleet(r, ready, ready);
}

/* Gives every instance the same KV tokens and waiting requests. */
static inline void rig_load(struct rig *r, uint64_t kv_tokens, uint32_t waiting)
{
    for (uint32_t i = 0; i < r->v.instance_count; i++) {
        r->in[i].kv_tokens = kv_tokens;
        r->in[i].waiting = waiting;
    }
}

/* Returns the instances that the policy wants at that second, over all pools. */
static inline uint32_t rig_ask(struct rig *r, double at_s)
{
    struct rng rng;
    rng_seed(&rng, 1);
    r->policy->decide(r->state, &r->config, &r->v, (int64_t)(at_s * 1e6), &rng, &r->got);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < r->v.pool_count; i++)
        sum += r->got.choice.want[i];
    return sum;
}

/* Decides each second of [from_s, to_s); returns the last result. */
static inline uint32_t rig_ask_each(struct rig *r, int from_s, int to_s)
{
    uint32_t want = 0;
    for (int t = from_s; t < to_s; t++)
        want = rig_ask(r, t);
    return want;
}
