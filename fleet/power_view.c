/* power_view.c - keeps windows of tails, and takes the work between two reports. */
#include "fleet/power_view.h"

#include "base/core/bits.h"

#include <math.h>

#define WINDOW_US 14000000   /* a second less than routers measure over: no response is left out */
#define TAIL_MIN 100         /* fewer responses have no P99 */
#define MEAN_MAX 1e9         /* of a peer's numbers: far above any step */
#define AGAIN_US_MIN 5000000 /* reports come once a second; a window should hold some steps */
#define AGAIN_US_MAX 120000000 /* a due time beyond this was set by a clock that has gone back */

static void add_quantile(const struct wire_quantiles *q, uint64_t *count, double *worst_s)
{
    if (q->count == 0) return;
    *count += q->count;
    *worst_s = fmax(*worst_s, q->p99);
}

void power_tail_add(struct power_tail *t, const struct service_demand *report)
{
    add_quantile(&report->ttft_s, &t->ttft_count, &t->ttft_s);
    add_quantile(&report->tpot_s, &t->tpot_count, &t->tpot_s);
}

bool power_tails_due(const struct power_tails *t, int64_t now_us)
{
    int64_t past_us = now_us - t->taken_us;
    return past_us < 0 || past_us >= WINDOW_US;
}

void power_tails_take(struct power_tails *t, const struct power_tail *now, int64_t now_us)
{
    t->taken_us = now_us;
    t->window[t->next++ % POWER_TAIL_WINDOWS] = *now;
}

bool power_tails_merge(const struct power_tails *t, const struct power_tail *now,
                       struct power_tail *ret)
{
    struct power_tail sum = { 0 };
    for (uint32_t i = 0; i < POWER_TAIL_WINDOWS; i++) {
        const struct power_tail *w = &t->window[i];
        sum.ttft_count += w->ttft_count;
        sum.tpot_count += w->tpot_count;
        sum.ttft_s = fmax(sum.ttft_s, w->ttft_s);
        sum.tpot_s = fmax(sum.tpot_s, w->tpot_s);
    }
    sum.ttft_s = fmax(sum.ttft_s, now->ttft_s);
    sum.tpot_s = fmax(sum.tpot_s, now->tpot_s);
    sum.ttft_count = max_u64(sum.ttft_count, now->ttft_count);
    sum.tpot_count = max_u64(sum.tpot_count, now->tpot_count);
    *ret = sum;
    return sum.ttft_count >= TAIL_MIN && sum.tpot_count >= TAIL_MIN;
}

/* Returns the mean of a step, rounded: a sequence that decodes in nine steps of ten counts as one. */
static double mean(uint64_t now, uint64_t before, double steps)
{
    return fmin(MEAN_MAX, round((double)(now - before) / steps));
}

void power_work_since(const struct wire_work *now, const struct wire_work *seen,
                      struct power_instance *ret)
{
    static const struct wire_work none;
    bool rose = now->steps >= seen->steps && now->span_s > seen->span_s &&
                now->busy_s >= seen->busy_s && now->prefill_tokens >= seen->prefill_tokens &&
                now->prefill_chunks >= seen->prefill_chunks &&
                now->decoding_seqs >= seen->decoding_seqs && now->kv_tokens >= seen->kv_tokens &&
                now->kv_tokens_decoding >= seen->kv_tokens_decoding;
    if (!rose) seen = &none;
    double span_s = now->span_s - seen->span_s, steps = (double)(now->steps - seen->steps);
    ret->busy = span_s > 0 ? fmin(1, (now->busy_s - seen->busy_s) / span_s) : 0;
    ret->shape = (struct perf_shape){ 0 };
    if (steps < 1) return;
    struct perf_shape *s = &ret->shape;
    s->prefill_tokens = (uint32_t)mean(now->prefill_tokens, seen->prefill_tokens, steps);
    s->prefill_chunks = (uint32_t)mean(now->prefill_chunks, seen->prefill_chunks, steps);
    s->decoding_seqs = (uint32_t)mean(now->decoding_seqs, seen->decoding_seqs, steps);
    s->kv_tokens_read = (uint64_t)mean(now->kv_tokens, seen->kv_tokens, steps);
    s->kv_tokens_decoding =
        (uint64_t)mean(now->kv_tokens_decoding, seen->kv_tokens_decoding, steps);
    /* A roofline needs numbers that fit together; those of a peer need not. */
    if (s->prefill_tokens + s->decoding_seqs == 0) s->decoding_seqs = 1;
    s->prefill_chunks = s->prefill_tokens ? max_u32(1, s->prefill_chunks) : 0;
    s->prefill_chunks = min_u32(s->prefill_chunks, s->prefill_tokens);
    s->kv_tokens_decoding = min_u64(s->kv_tokens_decoding, s->kv_tokens_read);
}

int64_t power_again_us(int64_t again_us, int64_t now_us)
{
    return min_i64(max_i64(again_us, now_us + AGAIN_US_MIN), now_us + AGAIN_US_MAX);
}

bool power_is_due(int64_t due_us, int64_t now_us)
{
    return now_us >= due_us || due_us - now_us > AGAIN_US_MAX;
}

void power_instance_see(const struct power_facts *f, const struct power_tail *tail,
                        struct power_instance *ret)
{
    *ret = (struct power_instance){ .roofline = f->roofline,
                                    .clock = f->clock,
                                    .injects_idle = f->injects_idle,
                                    .tail_known = tail != NULL,
                                    .ttft_s = tail ? tail->ttft_s : 0,
                                    .tpot_s = tail ? tail->tpot_s : 0,
                                    .waiting = f->waiting,
                                    .priority = f->priority };
}
