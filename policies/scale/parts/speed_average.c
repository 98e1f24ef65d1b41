/* speed_average.c - a running mean, each reading weighted by the time that it stands for. */
#include "policies/scale/parts/speed_average.h"

#include <math.h>

#define PACE_S 120.0 /* a speed that changed for good is followed within minutes */
#define FIRST_S 1.0  /* what the first reading stands for, and one whose clock went back */
#define LEAST_S 1e-6 /* what two readings at one moment stand for */

static void follow(double *mean, double value, double weight)
{
    *mean += weight * (value - *mean);
}

static void follow_pool(struct pace_mean *m, const struct perf_coef *now, double passed_s)
{
    m->seen_s += passed_s;
    double weight = passed_s / fmin(m->seen_s, PACE_S);
    follow(&m->perf.step_s, now->step_s, weight);
    follow(&m->perf.prefill_token_s, now->prefill_token_s, weight);
    follow(&m->perf.decode_seq_s, now->decode_seq_s, weight);
    follow(&m->perf.kv_read_s, now->kv_read_s, weight);
    follow(&m->perf.attend_s, now->attend_s, weight);
}

void pace_observe(struct pace *p, const struct scale_view *view, int64_t now_us)
{
    double passed_s = (double)(now_us - p->read_us) / 1e6;
    if (p->read_us == 0 || passed_s < 0) passed_s = FIRST_S;
    p->read_us = now_us;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *pool = &view->pool[i];
        struct pace_mean *m = &p->pool[i];
        if (!pool->perf_known) continue;
        bool learned = pool->perf.samples > 0;
        if (m->seen_s <= 0 || learned != m->learned)
            *m = (struct pace_mean){ .learned = learned, .perf = pool->perf };
        follow_pool(m, &pool->perf, fmin(fmax(passed_s, LEAST_S), PACE_S));
    }
}
