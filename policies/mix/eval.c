/* eval.c - finds the fixed point of a step, and the highest rate by bisection. */
#include "policies/mix/eval.h"

#include <math.h>

#define EVAL_SIGMAS 1.282 /* EVAL_QUANTILE of a normal distribution */
#define EVAL_SPREAD 1.4   /* nine prompts in ten of a bucket are below this times its mean */
#define STEP_ROUNDS 30
#define RATE_ROUNDS 40
#define STEP_S_MIN 1e-6
#define STEP_S_MAX 60.0 /* a longer step means that there is no steady state */

/* Returns the shape of a step of s seconds that holds the work arriving during s seconds. */
static struct perf_shape shape_of(const struct mix_bucket *w, double rate_s, double s)
{
    double n = fmax(1, rate_s * w->output_tokens * s); /* at least one session is in the step */
    double q = rate_s * w->prompt_tokens * s;
    double context = w->prompt_tokens + w->output_tokens / 2;
    double decoding = n * context;
    uint32_t chunks = q < 0.5 ? 0 : (uint32_t)lround(fmin(fmax(rate_s * s, 1), 1e9));
    double attended = q * (w->prompt_tokens + 1) / 2;
    return (struct perf_shape){ .prefill_tokens = (uint32_t)lround(fmin(q, 1e9)),
                                .decoding_seqs = (uint32_t)lround(fmin(n, 1e9)),
                                .kv_tokens_read =
                                    (uint64_t)llround(fmin(decoding + attended, 1e15)),
                                .kv_tokens_decoding = (uint64_t)llround(fmin(decoding, 1e15)),
                                .prefill_chunks = chunks };
}

/* Returns the fixed point step(s) = s; once step(s) is below s it stays below. STEP_S_MAX: there is
 * none. */
static double steady_step_s(const struct roofline *r, const struct mix_bucket *w, double rate_s)
{
    struct perf_shape one = shape_of(w, 0, 0);
    double low = roofline_step_s(r, &one), high = fmax(low, STEP_S_MIN);
    for (; high < STEP_S_MAX; high *= 2) {
        struct perf_shape shape = shape_of(w, rate_s, high);
        if (roofline_step_s(r, &shape) <= high) break;
        low = high;
    }
    if (!(high < STEP_S_MAX)) return STEP_S_MAX;
    for (int i = 0; i < STEP_ROUNDS; i++) {
        double mid = (low + high) / 2;
        struct perf_shape shape = shape_of(w, rate_s, mid);
        if (roofline_step_s(r, &shape) <= mid)
            high = mid;
        else
            low = mid;
    }
    return high;
}

static double prompt_s(const struct roofline *r, double tokens)
{
    double left = tokens, behind = 0, sum = 0;
    struct perf_shape empty = { .decoding_seqs = 1, .kv_tokens_read = 1, .kv_tokens_decoding = 1 };
    double bare = roofline_step_s(r, &empty);
    while (left >= 1) {
        double n = fmin(left, EVAL_CHUNK_TOKENS);
        struct perf_shape s = { .prefill_tokens = (uint32_t)n,
                                .decoding_seqs = 1,
                                .kv_tokens_read = (uint64_t)(1 + n * behind + n * (n + 1) / 2),
                                .kv_tokens_decoding = 1,
                                .prefill_chunks = 1 };
        sum += fmax(0, roofline_step_s(r, &s) - bare);
        behind += n;
        left -= n;
    }
    return sum;
}

/* Returns the rate in a bunch: over the life of a request, life_s, the arriving work is EVAL_SIGMAS
 * standard deviations above its mean, for a Poisson stream of requests that differ in work (C2 =
 * 1). */
static double burst_rate(double rate_s, double life_s)
{
    return rate_s + EVAL_SIGMAS * sqrt(2 * rate_s / life_s);
}

bool eval_at(const struct roofline *r, const struct mix_bucket *work, double rate_s,
             struct mix_score *ret)
{
    double mean = steady_step_s(r, work, rate_s);
    if (mean >= STEP_S_MAX) return false;
    double rate = burst_rate(rate_s, fmax(work->output_tokens * mean, mean));
    double s = steady_step_s(r, work, rate);
    if (s >= STEP_S_MAX) return false;
    double n = rate * work->output_tokens * s;
    double context = work->prompt_tokens + work->output_tokens / 2;
    if (rate * work->prompt_tokens * s > EVAL_CHUNK_TOKENS) return false;
    if (n > EVAL_SEQS_MAX || n * context > (double)roofline_kv_tokens(r)) return false;
    if (work->prompt_tokens + work->output_tokens > (double)roofline_kv_tokens(r)) return false;

    double longer = work->prompt_tokens * EVAL_SPREAD;
    double steps = ceil(longer / EVAL_CHUNK_TOKENS);
    double margin = prompt_s(r, work->prompt_tokens);
    double own = s / 2 + s * steps + prompt_s(r, longer); /* half a step until it is seen */
    double load = rate_s * margin;
    if (load >= 1) return false;
    double wait = load / (1 - load) * margin * log(1 / (1 - EVAL_QUANTILE));
    *ret = (struct mix_score){ .rate_s = rate_s, .ttft_s = wait + own, .tpot_s = s };
    return true;
}

static bool keeps(const struct eval_fleet *f, uint32_t type, const struct mix_bucket *work,
                  double rate_s, struct mix_score *ret)
{
    struct mix_score score;
    if (!eval_at(&f->type[type], work, rate_s, &score)) return false;
    if (score.ttft_s > f->slo_ttft_s || score.tpot_s > f->slo_tpot_s) return false;
    *ret = score;
    return true;
}

void eval_score(const void *fleet, uint32_t type, const struct mix_bucket *work,
                struct mix_score *ret)
{
    const struct eval_fleet *f = fleet;
    struct mix_score best = { 0 };
    double low = 0, high = 1e-3;
    if (!keeps(f, type, work, high, &best)) {
        *ret = best;
        return;
    }
    while (high < 1e5 && keeps(f, type, work, high * 2, &best))
        high *= 2;
    low = high;
    high *= 2;
    for (int i = 0; i < RATE_ROUNDS; i++) {
        double mid = (low + high) / 2;
        if (keeps(f, type, work, mid, &best))
            low = mid;
        else
            high = mid;
    }
    *ret = best;
}
