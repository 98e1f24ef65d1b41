/* power.c - the table of power policies, the steady state at another clock that they share, and the policy without power
 * management. */
#include "policies/power/power.h"

#include "base/core/bits.h"

#include <math.h>

#define ROUNDS 12      /* of the fixed point; each removes most of the remaining error */
#define GROWTH_MAX 2.0 /* of a step's work; the room in KV memory is not known here */
#define PROBE 0.25     /* extra work for the slope, enough to differ by whole sessions */

const char *const priority_names[PRIORITY_COUNT + 1] = {
    [PRIORITY_HIGH] = "high",
    [PRIORITY_LOW] = "low",
};

const struct power_policy *const power_table[] = {
#define POLICY(name) &power_##name,
#include "policies/power/power.def"
#undef POLICY
};
const uint32_t power_count = COUNT_OF(power_table);

const struct power_policy *power_find(struct str name)
{
    for (uint32_t i = 0; i < power_count; i++) {
        if (str_eq(str_from(power_table[i]->name), name)) return power_table[i];
    }
    return NULL;
}

static bool is_idle(const struct power_instance *in)
{
    return in->shape.prefill_tokens == 0 && in->shape.decoding_seqs == 0;
}

/* Returns a step of `factor` times the work. */
static struct perf_shape times(const struct perf_shape *s, double factor)
{
    return (struct perf_shape){
        .prefill_tokens = (uint32_t)lround(factor * s->prefill_tokens),
        .prefill_chunks = (uint32_t)ceil(factor * s->prefill_chunks),
        .decoding_seqs = (uint32_t)lround(factor * s->decoding_seqs),
        .kv_tokens_read = (uint64_t)(factor * (double)(s->kv_tokens_read - s->kv_tokens_decoding)) +
                          (uint64_t)(factor * (double)s->kv_tokens_decoding),
        .kv_tokens_decoding = (uint64_t)(factor * (double)s->kv_tokens_decoding),
    };
}

static double step_s(const struct power_instance *in, double factor, double clock)
{
    struct perf_shape shape = times(&in->shape, factor);
    if (in->injects_idle) return roofline_step_s(in->roofline, &shape) / clock;
    return roofline_step_clock_s(in->roofline, &shape, clock);
}

/* Returns the mean watts during a step of `factor` times the work, injected pauses included. */
static double step_watts(const struct power_instance *in, double factor, double clock)
{
    struct perf_shape shape = times(&in->shape, factor);
    if (!in->injects_idle) return roofline_watts(in->roofline, &shape, clock);
    double idle = in->roofline->watts_idle;
    return idle + clock * (roofline_watts(in->roofline, &shape, 1) - idle);
}

void power_point_at(const struct power_instance *in, double clock, struct power_point *ret)
{
    *ret = (struct power_point){ .stretch = 1, .busy = in->busy, .stable = true };
    if (!in->roofline) return;
    ret->watts = in->roofline->watts_idle;
    if (is_idle(in)) return;

    double now_s = step_s(in, 1, in->clock), factor = 1, s = step_s(in, 1, clock);
    for (int i = 0; i < ROUNDS && factor <= GROWTH_MAX; i++) {
        factor = fmax(1, s * in->busy / now_s);
        s = step_s(in, fmin(factor, GROWTH_MAX), clock);
    }
    ret->stable = factor <= GROWTH_MAX;
    factor = fmin(factor, GROWTH_MAX);
    ret->stretch = s / now_s;
    ret->busy = fmin(1, in->busy * ret->stretch / factor);
    ret->load = ret->busy * (step_s(in, factor * (1 + PROBE), clock) / s - 1) / PROBE;
    ret->watts += ret->busy * (step_watts(in, factor, clock) - ret->watts);
}

double power_watts(const struct power_instance *in, double clock)
{
    struct power_point p;
    power_point_at(in, clock, &p);
    return p.watts;
}

void power_decide(const struct power_policy *p, void *state, const struct power_view *view,
                  int64_t now_us, struct power_verdict *ret)
{
    p->decide(state, view, now_us, ret);
    for (uint32_t i = 0; i < view->count; i++) {
        /* A clock just above a rung is that rung: sums of 0.05 are not exact. */
        double rungs = ceil(ret->clock[i] / POWER_RUNG - 1e-9);
        /* Divided, not multiplied: 19 / 20 is printed as 0.95. */
        ret->clock[i] = fmin(1, fmax(POWER_CLOCK_MIN, rungs / round(1 / POWER_RUNG)));
    }
}

/* The policy `max`: run every instance at its full clock, always.
 *
 *     clock = 1
 *
 * This is the baseline without power management that the other policies are measured against. */
#define AGAIN_US (60 * 1000000ll)

static void decide_max(void *state, const struct power_view *view, int64_t now_us,
                       struct power_verdict *ret)
{
    (void)state;
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = 1;
    ret->reason = "power is not managed";
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_max = {
    .name = "max",
    .about = "full clock, always",
    .source = "none: what is done without power management",
    .decide = decide_max,
};
