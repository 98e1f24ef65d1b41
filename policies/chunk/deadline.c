/* deadline.c - sizes the prompt part of a step so that the fewest SLOs are missed.
 *
 * An SLO is a TTFT and a TPOT. Small chunks (chunk_slack) never miss TPOT. They miss TTFT when
 * prompts arrive faster than they are computed, because each chunk reads the weights and all cached
 * tokens again. Large chunks miss TPOT for the sequences that decode beside them. Which loses less
 * depends on load, hardware and SLO, so the policy counts the expected misses for sizes n from what
 * `slack` gives to the whole budget, each 1.5 times the last:
 *
 *     step_s = decodes alone + token_s * n        rate = n / step_s
 *     late_s = max(0, step_s - TPOT of the SLO)
 *     clear_s = owed / (rate - tokens arriving a second), at most HORIZON_S
 *
 *     broken(n) = sum over waiting sessions of   1 - (1 - P(first token late)) * (1 - P(slow))
 *               + sum over decoding sessions of  P(slow)
 *               + arrivals until the queue is short enough for their TTFT
 *               + P(slow) of arrivals from then until the queue is gone
 *
 *     P(first token late) of a session with `ahead` tokens owed before and in its prompt and `left`
 *         seconds is the probability that `ahead` and the arrivals that go before it exceed
 *         rate * left. Half of the arrivals do (orders prefer short prompts); their sum is taken as
 *         normal, sizes with C2 1, and the normal as a logistic.
 *     P(slow) of a session with `hand` seconds in hand while clear_s / step_s steps are late is the
 *         probability that its output ends after those steps have used up the time in hand and before
 *         the shorter steps after them have given it back. The rest of an output is Erlang-2 with the
 *         expected length as its mean, whatever its length so far: lengths are spread so widely that
 *         this says little.
 *
 * The policy takes the least n that misses at most TOLERANCE SLOs more than the best n: a model
 * that sees one burst at a time underestimates the cost of long steps. A session that is surely
 * late is not counted as a miss, but the tokens it owes are. Beyond `slack` a step that is half
 * full takes whole prompts only: a part of one delays the sequences of the step and gives no token.
 *
 * The chunks are those of Sarathi-Serve (arXiv 2403.02310); the count of missed SLOs is our own.
 * Decision 0005 has the comparison. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"

#include <math.h>

#define TOKENS_MIN 64 /* below it a long prompt would pay the fixed cost of a step too often */
#define GROWTH 1.5
#define SIZES_MAX 32    /* GROWTH^30 * TOKENS_MIN is over ten million, the largest budget */
#define HORIZON_S 600.0 /* how long a load beyond the rate of small chunks is assumed to last */
#define TOLERANCE 0.04  /* missed SLOs */
#define AHEAD_PART 0.5  /* of arrivals, computed before a waiting session */
#define MISS_MAX 2.0    /* as in chunk_slack */
#define LOGISTIC 1.7    /* a logistic of 1.7 x is within 0.01 of the normal distribution */
#define REGAIN_PART_MIN 0.02 /* of the TPOT: a full machine gives little back */
#define LOAD_MAX 0.95        /* cap on the load of prompts: at 1 a step without a queue diverges */
#define FULL_PART 0.5

struct plan {
    const struct chunk_scene *scene;
    double decode_s, token_s, step_s_max;
    double regain_s;                      /* seconds a step gives back when the queue is gone */
    double rate, step_s, late_s, clear_s; /* for the size in question */
};

static double above(double tokens, double mean) /* P(Erlang-2 length > tokens) */
{
    double x = 2 * tokens / mean;
    return exp(-x) * (1 + x);
}

/* Returns P(slow) of a session that still has `seconds` of late steps before it. */
static double slow(const struct plan *p, double slack_s, double output, double seconds)
{
    double steps = seconds / p->step_s, lost_s = p->late_s * steps;
    if (p->late_s <= 0 || steps <= 0 || lost_s <= slack_s) return 0;
    double from = fmax(0, slack_s) / p->late_s, to = steps + (lost_s - slack_s) / p->regain_s;
    return above(from, output) - above(to, output);
}

static double waiting(const struct plan *p, const struct chunk_session *x, double ahead)
{
    const struct chunk_scene *s = p->scene;
    double arriving = AHEAD_PART * s->arrived_owed_s;
    double size = s->arrivals_s > 0 ? s->arrived_owed_s / s->arrivals_s : 0;
    double spread = size * sqrt(AHEAD_PART * s->arrivals_s * x->slack_s * 2) + 1;
    double spare = (p->rate - arriving) * x->slack_s - ahead;
    double late = 1 / (1 + exp(LOGISTIC * spare / spread));
    double begins_s = ahead / fmax(p->rate - arriving, p->rate / 10);
    return late + (1 - late) * slow(p, 0, x->output, p->clear_s - begins_s);
}

static double decoding(const struct plan *p, const struct chunk_session *x)
{
    double mend_s = x->output / 2 * p->regain_s;
    return x->slack_s + mend_s < 0 ? 0 : slow(p, fmax(0, x->slack_s), x->output, p->clear_s);
}

/* Returns the expected misses of arrivals: first those that miss TTFT, then those that are slow. */
static double coming(const struct plan *p)
{
    const struct chunk_scene *s = p->scene;
    double over = s->owed - s->ttft_s_max * p->rate, drain = p->rate - s->arrived_owed_s;
    double late_s = over > 0    ? (drain > 0 ? fmin(HORIZON_S, over / drain) : HORIZON_S)
                    : drain < 0 ? fmax(0, HORIZON_S + over / -drain)
                                : 0;
    double after_s = fmax(0, p->clear_s - late_s);
    return s->arrivals_s * (late_s + after_s * slow(p, 0, s->output, after_s / 2));
}

/* Returns the expected misses for a size; once they exceed `most`, which no size is chosen beyond, a part
 * of them. */
static double broken(struct plan *p, double tokens, double most)
{
    const struct chunk_scene *s = p->scene;
    p->step_s = p->decode_s + tokens * p->token_s;
    p->rate = tokens / p->step_s;
    p->late_s = fmax(0, p->step_s - p->step_s_max);
    double drain = p->rate - s->arrived_owed_s;
    p->clear_s = drain > 0 ? fmin(HORIZON_S, s->owed / drain) : HORIZON_S;
    double sum = coming(p), ahead = 0;
    for (uint32_t i = 0; i < s->count && sum <= most; i++) {
        const struct chunk_session *x = &s->session[i];
        ahead += x->owed;
        if (x->owed == 0)
            sum += decoding(p, x);
        else if (x->slack_s > 0)
            sum += waiting(p, x, ahead);
    }
    return sum;
}

static double decodes_s(const struct chunk_view *view)
{
    const struct perf_shape decodes = { .decoding_seqs = view->planned.decoding_seqs,
                                        .kv_tokens_read = view->planned.kv_tokens_decoding,
                                        .kv_tokens_decoding = view->planned.kv_tokens_decoding };
    return perf_step_s(&view->perf, &decodes);
}

static uint32_t aim(const struct chunk_view *view, const struct chunk_scene *scene)
{
    double most = view->budget_left, token_s = view->perf.prefill_token_s,
           decode_s = decodes_s(view);
    if (view->planned.decoding_seqs == 0 || view->step_s_max <= 0 || token_s <= 0) return 0;
    double miss = fmax(1, fmin(view->perf.ratio_p90, MISS_MAX));
    double small = fmax(TOKENS_MIN, (view->step_s_max / miss - decode_s) / token_s);
    if (scene->owed <= small || small >= most) return 0;

    double load = fmin(scene->arrived_owed_s * token_s, LOAD_MAX);
    struct plan p = {
        .scene = scene, .decode_s = decode_s, .token_s = token_s, .step_s_max = view->step_s_max
    };
    p.regain_s = fmax(p.step_s_max - decode_s / (1 - load), REGAIN_PART_MIN * p.step_s_max);
    double cost[SIZES_MAX], size[SIZES_MAX], least = (double)INFINITY;
    uint32_t count = 0;
    for (double n = small; count < SIZES_MAX && n < most * GROWTH; n *= GROWTH, count++) {
        size[count] = fmin(n, most);
        cost[count] = broken(&p, size[count], least + TOLERANCE);
        least = fmin(least, cost[count]);
    }
    uint32_t best = 0;
    while (cost[best] > least + TOLERANCE)
        best++;
    return best == 0 ? 0 : (uint32_t)size[best];
}

static uint32_t decide(const struct chunk_view *view)
{
    uint32_t most = min_u32(view->tokens_left, view->budget_left);
    uint32_t planned = view->planned.prefill_tokens;
    uint32_t left = view->aim > planned ? view->aim - planned : 0;
    if (view->tokens_left <= min_u32(left, view->budget_left)) return view->tokens_left;
    if (planned < FULL_PART * view->aim) return min_u32(left, most);
    return chunk_slack.decide(view);
}

const struct chunk_policy chunk_deadline = {
    .name = "deadline",
    .about = "as much prompt as misses the fewest SLOs of TTFT and TPOT",
    .source = "our own, after Sarathi-Serve (arXiv 2403.02310)",
    .aim = aim,
    .decide = decide,
};
