/* sched_chunk.c - asks the chunk policy how many tokens a session gets in this step, and shows it what is pending.
 *
 * A policy that aims at the SLOs of TTFT and TPOT is shown running, parked and waiting sessions, once a step: as many
 * as may change its answer, since a queue may hold thousands. */
#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#include <math.h>
#include <stdlib.h>

#define WAITING_SHOWN_MAX 256 /* to the chunk policy */
#define ARRIVALS_S 60.0       /* over which arrivals are averaged, each weighed by exp(-age) */
#define OWED_STEPS 64         /* step budgets; sessions behind so much work are not shown */

/* Takes scratch for a chunk policy that aims at the SLOs of TTFT and TPOT. Without both it works as
 * a policy that does not aim. */
int sched_chunk_init(struct scheduler *s)
{
    const struct sched_config *c = &s->config;
    if (!s->policies.chunk->aim || c->ttft_s_max <= 0 || c->step_s_max <= 0) return 0;
    s->chunk.pending_max = c->seqs_max + min_u32(c->waiting_max, WAITING_SHOWN_MAX);
    s->chunk.pending = calloc(s->chunk.pending_max, sizeof *s->chunk.pending);
    return s->chunk.pending ? 0 : -ENOMEM;
}

void sched_chunk_fini(struct scheduler *s)
{
    free(s->chunk.pending);
}

void sched_chunk_begin(struct scheduler *s)
{
    s->chunk.aimed = false;
    s->chunk.aim = 0;
}

void sched_chunk_arrived(struct scheduler *s, const struct sched_request *req)
{
    double age = (double)(req->arrival_us - s->chunk.arrived_us) * 1e-6 / ARRIVALS_S;
    if (age > 0) { /* a request that was sent on may have arrived in the past */
        s->chunk.arrivals_s *= exp(-age);
        s->chunk.arrived_owed_s *= exp(-age);
        s->chunk.arrived_us = req->arrival_us;
    }
    s->chunk.arrivals_s += 1 / ARRIVALS_S;
    s->chunk.arrived_owed_s += (req->prompt_tokens - req->imported_tokens) / ARRIVALS_S;
}

static struct chunk_session pending_of(const struct scheduler *s, const struct session *x)
{
    uint32_t generated = session_generated(x);
    double ttft_s = s->config.ttft_s_max;
    struct chunk_session ret = { .output = x->predicted_mean ? x->predicted_mean : s->output_mean };
    ret.output = fmax(1, ret.output);
    if (generated > 0) {
        bool late = (double)(x->first_token_us - x->arrival_us) * 1e-6 > ttft_s;
        double used_s = (double)(s->now_us - x->first_token_us) * 1e-6;
        ret.slack_s = late ? -(double)INFINITY : s->config.step_s_max * generated - used_s;
        return ret;
    }
    ret.owed = x->prompt_tokens - min_u32(session_known(x), x->prompt_tokens - 1);
    ret.slack_s = ttft_s - (double)(s->now_us - x->arrival_us) * 1e-6;
    return ret;
}

static void add_pending(const struct scheduler *s, const struct list *sessions,
                        struct chunk_scene *ret)
{
    double most = (double)OWED_STEPS * s->config.batch_tokens_max;
    LIST_EACH (sessions, node) {
        const struct session *x = SESSION_OF(node);
        if (ret->count == s->chunk.pending_max || ret->owed >= most) return;
        if (session_stands(x)) continue;
        s->chunk.pending[ret->count] = pending_of(s, x);
        ret->owed += s->chunk.pending[ret->count++].owed;
    }
}

static uint32_t aim(struct scheduler *s, const struct chunk_view *view)
{
    double age = fmax(0, (double)(s->now_us - s->chunk.arrived_us) * 1e-6 / ARRIVALS_S);
    struct chunk_scene scene = { .session = s->chunk.pending,
                                 .ttft_s_max = s->config.ttft_s_max,
                                 .arrivals_s = s->chunk.arrivals_s * exp(-age),
                                 .arrived_owed_s = s->chunk.arrived_owed_s * exp(-age),
                                 .output = fmax(1, s->output_mean) };
    add_pending(s, &s->running, &scene);
    add_pending(s, &s->parked, &scene);
    add_pending(s, &s->waiting, &scene);
    return s->policies.chunk->aim(view, &scene);
}

/* Shortens a chunk to the rows of logits that the step has left for tokens that are scored. A chunk ends
 * with these tokens, so that its rows lie side by side. */
static uint32_t score_chunk(const struct scheduler *s, const struct session *x, uint32_t tokens)
{
    if (!session_scores(x)) return tokens;
    uint32_t first = max_u32(x->computed, x->score_next - 1);
    uint32_t end = min_u32(x->computed + tokens, x->score_end);
    end = min_u32(end, first + SCHED_SCORED_MAX - s->batch.score_rows);
    return end - x->computed;
}

/* Returns all tokens that are left, when the step has room for them and the policy would not leave some of
 * them for later, or when they are the first; 0: not in this step. */
static uint32_t whole_or_none(const struct scheduler *s, const struct session *x, uint32_t allowed)
{
    const uint32_t left = x->total - x->computed;
    if (left > s->config.batch_tokens_max - s->batch.tokens) return 0;
    return allowed == left || s->batch.count == 0 ? left : 0;
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
    if (s->chunk.pending && !s->chunk.aimed) {
        s->chunk.aim = aim(s, &view);
        s->chunk.aimed = true;
    }
    view.aim = s->chunk.aim;
    uint32_t n = s->policies.chunk->decide(&view);
    must(n <= view.tokens_left && n <= budget && (n > 0 || s->batch.count > 0));
    return s->config.whole_prompts ? whole_or_none(s, session, n) : score_chunk(s, session, n);
}
