/* sched_chunk.c - what the chunk row is shown: a prompt beside what the step holds, all promises. */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

#include <math.h>

#define ARRIVALS_S 60.0 /* over which arrivals are averaged, each weighed by exp(-age) */
#define OWED_STEPS 64   /* budgets; who stands behind so much work is not shown */

void sched_arrived(struct scheduler *s, const struct sched_request *req)
{
    double age = (double)(req->arrival_us - s->arrived_us) * 1e-6 / ARRIVALS_S;
    if (age > 0) { /* who was sent on brings an arrival of the past */
        s->arrivals_s *= exp(-age);
        s->arrived_owed_s *= exp(-age);
        s->arrived_us = req->arrival_us;
    }
    s->arrivals_s += 1 / ARRIVALS_S;
    s->arrived_owed_s += (req->prompt_tokens - req->imported_tokens) / ARRIVALS_S;
}

static struct chunk_session promise_of(const struct scheduler *s, const struct session *x)
{
    uint32_t generated = session_generated(x);
    double ttft_s = s->config.ttft_s_max;
    struct chunk_session ret = { .answer = x->predicted_mean ? x->predicted_mean : s->output_mean };
    ret.answer = fmax(1, ret.answer);
    if (generated > 0) {
        bool late = (double)(x->first_token_us - x->arrival_us) * 1e-6 > ttft_s;
        double used_s = (double)(s->now_us - x->first_token_us) * 1e-6;
        ret.hand_s = late ? -(double)INFINITY : s->config.step_s_max * generated - used_s;
        return ret;
    }
    ret.owed = x->prompt_tokens - min_u32(session_known(x), x->prompt_tokens - 1);
    ret.hand_s = ttft_s - (double)(s->now_us - x->arrival_us) * 1e-6;
    return ret;
}

static void add_promises(const struct scheduler *s, const struct list *sessions,
                         struct chunk_scene *ret)
{
    double most = (double)OWED_STEPS * s->config.batch_tokens_max;
    LIST_EACH (sessions, node) {
        const struct session *x = SESSION_OF(node);
        if (ret->count == s->promises_max || ret->owed >= most) return;
        if (session_stands(x)) continue;
        s->promise[ret->count] = promise_of(s, x);
        ret->owed += s->promise[ret->count++].owed;
    }
}

static uint32_t aim(struct scheduler *s, const struct chunk_view *view)
{
    double age = fmax(0, (double)(s->now_us - s->arrived_us) * 1e-6 / ARRIVALS_S);
    struct chunk_scene scene = { .session = s->promise,
                                 .ttft_s_max = s->config.ttft_s_max,
                                 .arrivals_s = s->arrivals_s * exp(-age),
                                 .arrived_owed_s = s->arrived_owed_s * exp(-age),
                                 .answer = fmax(1, s->output_mean) };
    add_promises(s, &s->running, &scene);
    add_promises(s, &s->parked, &scene);
    add_promises(s, &s->waiting, &scene);
    return s->rows.chunk->aim(view, &scene);
}

void sched_batch_shape(struct sched_batch *b)
{
    b->shape = (struct perf_shape){ 0 };
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t start = b->item[i].start, n = b->item[i].count;
        if (n == 1) {
            b->shape.decoding_seqs++;
            b->shape.kv_tokens_decoding += start + 1;
        } else {
            b->shape.prefill_tokens += (uint32_t)n;
            b->shape.prefill_chunks++;
        }
        b->shape.kv_tokens_read += n * start + n * (n + 1) / 2;
    }
}

uint32_t sched_chunk_tokens(struct scheduler *s, const struct session *session)
{
    uint32_t budget = s->config.batch_tokens_max - s->batch.tokens;
    if (budget == 0) return 0;
    if (session->total - session->computed == 1) return 1; /* decodes: it is no prompt */
    sched_batch_shape(&s->batch);
    struct chunk_view view = {
        .tokens_left = session->total - session->computed,
        .budget_left = budget,
        .computed = session->computed,
        .planned = s->batch.shape,
        .perf = s->perf,
        .step_s_max = s->config.step_s_max,
    };
    if (s->promise && !s->aimed) {
        s->aim = aim(s, &view);
        s->aimed = true;
    }
    view.aim = s->aim;
    uint32_t n = s->rows.chunk->decide(&view);
    must(n <= view.tokens_left && n <= budget && (n > 0 || s->batch.count > 0));
    return n;
}
