/* role_rig.c - see role_rig.h. */
#include "tests/unit/policies/role_rig.h"

#include <string.h>

struct role_instance role_rig_instance(uint32_t id)
{
    return (struct role_instance){
        .id = id,
        .ready = true,
        .has_perf = true,
        .perf = { .step_s = 0.016,
                  .prefill_token_s = 1.1e-4,
                  .decode_seq_s = 1e-4,
                  .kv_read_s = 4.5e-7,
                  .attend_s = 1e-8 },
        .token_budget = 2048,
        .seqs_max = 256,
        .kv_tokens_max = 200000,
    };
}

struct role_view *role_rig_fleet(struct role_fleet *f, uint32_t count)
{
    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < count; i++)
        f->instance[i] = role_rig_instance(i);
    f->view = (struct role_view){
        .instance = f->instance,
        .instance_count = count,
        .demand = { .present = true,
                    .prompt_mean = 1000,
                    .prompt_m2 = 2e6,
                    .output_mean = 200,
                    .output_m2 = 7e4 },
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .attainment = 0.9,
        .link_bytes_s = 25e9,
        .token_bytes = 819200,
        .evaluator = &role_closed_form,
    };
    return &f->view;
}

struct role_verdict role_rig_decide(const char *name, const struct role_view *view, void *state)
{
    static _Alignas(8) unsigned char zero[ROLE_STATE_BYTES_MAX];
    struct role_verdict v;
    struct rng rng;
    rng_seed(&rng, 1);
    const struct role_policy *p = role_find(str_from(name));
    assert_non_null(p);
    memset(zero, 0, sizeof zero);
    memset(&v, 0x5a, sizeof v);
    role_decide(p, state ? state : zero, view, 1000, &rng, &v);
    return v;
}

uint32_t role_rig_count(const struct role_view *view, const struct role_verdict *v, enum role role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        n += v->role[i] == role;
    return n;
}

double role_rig_goodput(const struct role_view *view, uint32_t prefill, uint32_t decode)
{
    enum role role[ROLE_INSTANCES_MAX];
    uint32_t order[ROLE_INSTANCES_MAX], count = role_order(view, order);
    role_assign(view, order, count, prefill, decode, role);
    return view->evaluator->goodput_rps(view->evaluator->ctx, view, role);
}
