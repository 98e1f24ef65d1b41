/* foresight.c - the clairvoyant's count of instances, second by second. */
#include "simulator/foresight.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>

#define SECOND ((int64_t)1000000)
#define BOUND_HALF_S 30 /* needs are means over a minute */

int foresight_init(struct foresight *ret, const struct sim_control_setup *s, struct err *err)
{
    const struct scale_future *f = s->future;
    const struct sim_control_service *own = &s->service[0];
    int64_t last_us = f->count ? f->at_us[f->count - 1] : 0;
    ret->count = (uint32_t)(last_us / SECOND) + 1;
    ret->need = calloc(ret->count, sizeof *ret->need);
    if (!ret->need) return err_set(err, -ENOMEM, "no memory for what will come");
    struct scale_pool pool = { .perf = s->pool[0].prior,
                               .seqs_max = max_u32(s->pool[0].seqs_max, 1),
                               .kv_tokens_max = s->pool[0].kv_tokens_max,
                               .step_tokens = s->pool[0].step_tokens };
    for (uint32_t k = 0; k < ret->count; k++) {
        double need =
            own->scale.margin *
            scale_bound_need(f, &pool, own->ttft_slo_s, own->tpot_slo_s, k * SECOND, BOUND_HALF_S);
        ret->need[k] = (uint16_t)fmin(ceil(need - 1e-9), SCALE_COUNT_MAX);
    }
    scale_bound_plan(ret->need, ret->count, s->pool[0].lead_s);
    return 0;
}

void foresight_fini(struct foresight *f)
{
    free(f->need);
    *f = (struct foresight){ 0 };
}

/* The clairvoyant's count is set as a person's hand would set it: past signal and shaper. */
void foresight_set(const struct foresight *f, struct plan_service *service, int64_t now_us)
{
    uint32_t second = (uint32_t)min_i64(now_us / SECOND, f->count - 1);
    uint32_t want = f->count ? f->need[second] : 0;
    want = min_u32(max_u32(want, service->min), service->max);
    for (uint32_t p = 0; p < service->pool_count; p++) {
        uint32_t n = min_u32(max_u32(want, service->pool[p].min), service->pool[p].max);
        service->pool[p].manual = (int32_t)n;
        want -= min_u32(n, want);
    }
}
