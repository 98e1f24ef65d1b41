/* scale_rig.h - a service made by hand for the tests of scaling rows: one pool or two, instances
 * whose loads are written down, and a row with its state.
 *
 * Layer: tests
 */
#pragma once
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <string.h>

#define SECOND ((int64_t)1000000)
#define RIG_INSTANCES 16
#define RIG_KV 1000 /* tokens of an instance's memory */

struct rig {
    const struct scale_policy *row;
    struct scale_config config;
    struct scale_view v;
    struct scale_instance in[RIG_INSTANCES];
    _Alignas(8) char state[SCALE_STATE_BYTES_MAX];
    struct scale_verdict got;
};

/* 2,000 prompt tokens a second (b), steps of 10 ms + 1 ms a session; TTFT 2 s, TPOT 100 ms. */
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

/* As many instances of the first pool, ready and idle, as said; the rest of `have` starts. */
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

static inline void rig_init(struct rig *r, const struct scale_policy *row, uint32_t ready)
{
    *r = (struct rig){ .row = row, .config = SCALE_CONFIG_DEFAULT };
    r->v = (struct scale_view){ .pool_count = 1, .ttft_slo_s = 2, .tpot_slo_s = 0.1 };
    r->v.pool[0] = rig_pool(1);
    r->v.demand = (struct scale_demand){
        .present = true, .arrivals_s = 1, .prompt_tokens = 200, .output_tokens = 100, .in_flight = 1
    };
    rig_fleet(r, ready, ready);
}

/* The same KV tokens and waiting requests in every instance. */
static inline void rig_load(struct rig *r, uint64_t kv_tokens, uint32_t waiting)
{
    for (uint32_t i = 0; i < r->v.instance_count; i++) {
        r->in[i].kv_tokens = kv_tokens;
        r->in[i].waiting = waiting;
    }
}

/* What the row wants of all pools at that second. */
static inline uint32_t rig_ask(struct rig *r, double at_s)
{
    struct rng rng;
    rng_seed(&rng, 1);
    r->row->decide(r->state, &r->config, &r->v, (int64_t)(at_s * 1e6), &rng, &r->got);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < r->v.pool_count; i++)
        sum += r->got.choice.want[i];
    return sum;
}

/* The same each second of [from_s, to_s); the last answer. */
static inline uint32_t rig_ask_each(struct rig *r, int from_s, int to_s)
{
    uint32_t want = 0;
    for (int t = from_s; t < to_s; t++)
        want = rig_ask(r, t);
    return want;
}
