/* chiron.c - add or remove one instance by the share of busy instances.
 *
 *     busy / all > 0.6: up one;  otherwise down one
 *
 * This is Chiron as SageServe re-implements it, for interactive requests. An instance is busy while a
 * request waits there, nine tenths of its KV memory are in use, or its steps, with the prompts between
 * them, take longer than TPOT allows. Chiron's batch queue (up when the backlog exceeds 24 h) is left
 * out: all requests here are interactive. The published comparison gave it free start-up; here
 * start-up is paid. We do not know the original's period: ours is 10 s, and nothing changes while an
 * instance is starting. */
#include "policies/scale/scale.h"

#include <math.h>

#define BUSY_SHARE 0.6
#define KV_BUSY 0.9
#define FREE_SHARE_MIN 0.05 /* of an instance's time, however many prompts come */
#define PERIOD_S 10
#define AGAIN_US ((int64_t)1000000)

struct chiron {
    int64_t next_us;
};

static bool is_busy(const struct scale_view *view, const struct scale_instance *in, double margin)
{
    const struct scale_pool *p = &view->pool[in->pool];
    if (in->waiting > 0) return true;
    if (margin * (double)in->kv_tokens >= KV_BUSY * (double)in->kv_tokens_max) return true;
    if (!p->perf_known) return false;
    double step_s = p->perf.step_s + p->perf.decode_seq_s * in->running +
                    p->perf.kv_read_s * (double)in->kv_tokens;
    double prompts = view->demand.arrivals_s * p->perf.prefill_token_s *
                     view->demand.prompt_tokens /
                     fmax(scale_ready_all(view), 1); /* share of its time */
    return margin * step_s / fmax(1 - prompts, FREE_SHARE_MIN) >= view->tpot_slo_s;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct chiron *c = state;
    uint32_t busy = 0, seen = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        seen++;
        busy += is_busy(view, in, config->margin);
    }
    uint32_t have = scale_have_all(view);
    const char *reason = "the next decision is not due";
    int by = 0;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && have == 0) {
        by = 1;
        reason = "requests came and nothing runs";
    } else if (seen == 0) {
        reason = "no instance has reported its load: keep what there is";
    } else if (scale_starting_all(view) > 0) {
        reason = "an instance is starting";
    } else if (scale_due(&c->next_us, PERIOD_S, now_us)) {
        double share = (double)busy / seen;
        by = share > BUSY_SHARE ? 1 : have > 1 ? -1 : 0;
        reason = share > BUSY_SHARE ? "more than 0.6 of the instances are busy"
                                    : "no more than 0.6 of the instances are busy";
    }
    *ret = (struct scale_verdict){ .reason = reason,
                                   .load = seen ? (double)busy / seen : 0,
                                   .estimate_s = -1,
                                   .again_us = now_us + AGAIN_US };
    scale_nudge(view, by, false, &ret->choice);
}

const struct scale_policy scale_chiron = {
    .name = "chiron",
    .about = "one step by the share of busy instances",
    .source = "Chiron, as SageServe re-implements it",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV | SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct chiron),
    .decide = decide,
};
