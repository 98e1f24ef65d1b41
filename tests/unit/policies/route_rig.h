/* route_rig.h - gives tests of route policies a view of instances, a request and the verdict on
 * it. */
#pragma once
#include "base/core/bits.h"
#include "policies/route/route.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROUTE_RIG_INSTANCES 6

struct route_rig {
    const struct route_policy *policy;
    uint64_t state[ROUTE_STATE_BYTES_MAX / 8];
    struct rng rng;
    struct route_instance in[ROUTE_RIG_INSTANCES]; /* shown by the view */
    struct route_view view;
    struct route_req req;
    int64_t now_us;
};

static inline struct route_instance route_rig_instance(uint32_t id)
{
    return (struct route_instance){
        .id = id,
        .name_hash = id * 7919 + 1,
        .accepts = true,
        .has_perf = true,
        .perf = { .step_s = 0.01, .prefill_token_s = 0.001, .decode_seq_s = 0.002 },
        .token_budget = 512,
        .seqs_max = 8
    };
}

/* Sets up `count` equal instances, numbered from 0; returns them for the test to change. */
static inline struct route_instance *route_rig_init(struct route_rig *rig, const char *name,
                                                    uint32_t count)
{
    assert_true(count <= ROUTE_RIG_INSTANCES);
    *rig = (struct route_rig){ .policy = route_find(str_from(name)),
                               .view = { .instance = rig->in, .instance_count = count },
                               .req = { .prompt_tokens = 1000,
                                        .prefix_hash = 5,
                                        .tenant = 1,
                                        .output_mean = 100,
                                        .output_p50 = 100,
                                        .output_p90 = 200 } };
    assert_non_null(rig->policy);
    rng_seed(&rig->rng, 1);
    for (uint32_t i = 0; i < count; i++)
        rig->in[i] = route_rig_instance(i);
    return rig->in;
}

static inline struct route_verdict route_rig_ask(struct route_rig *rig)
{
    struct route_verdict v;
    rig->policy->decide(rig->state, &rig->view, &rig->req, rig->now_us, &rig->rng, &v);
    return v;
}

static inline void route_rig_tell(struct route_rig *rig, const struct route_event *ev)
{
    if (rig->policy->observe) rig->policy->observe(rig->state, ev);
}

#define ASSERT_ROUTED(rig, id) assert_int_equal(route_rig_ask(rig).instance_id, id)
