/* perf.h - how long a step takes: the one model that engine, router, planner and simulator share.
 *
 * Layer:   policies (base/core)
 * Threads: pure functions over coefficients that are copied by value
 *
 *     step_s = a + b * prefill_tokens + c * decoding_seqs
 *                + d * kv_tokens_decoding + e * (kv_tokens_read - kv_tokens_decoding)
 *
 * `a` is what a step costs whatever it holds (reading the weights once), `b` the arithmetic of a
 * prompt token, `c` what one more decoding session adds, `d` the reading of a cached token and `e`
 * a prompt token attending to one token.
 * An engine fits its own (perf_linear.h) and reports coefficients, never a speed of the moment,
 * so that others can price work that it has not met yet.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct perf_coef {
    double a, b, c, d; /* seconds; none is ever negative */
    double samples;    /* steps behind them; 0: only the prior, or nothing */
    double ratio_p90;  /* nine steps in ten took at most this many times the estimate */
    double e;          /* seconds, never negative; 0 from those that do not tell d and e apart */
};

/* What one step holds. kv_tokens_read counts, for each token that is computed, the cached tokens it
 * attends to: a decoding session adds its length, a chunk of n tokens behind m others adds
 * n * m + n (n + 1) / 2. On an accelerator the two differ: what a decoding session attends to is
 * read from memory, what a chunk attends to is computed on. */
struct perf_shape {
    uint32_t prefill_tokens;
    uint32_t decoding_seqs;
    uint64_t kv_tokens_read;
    uint64_t kv_tokens_decoding; /* the part of it that decoding sessions read */
    uint32_t prefill_chunks;     /* sessions that prefill_tokens belong to */
};

static inline double perf_step_s(const struct perf_coef *coef, const struct perf_shape *shape)
{
    return coef->a + coef->b * (double)shape->prefill_tokens +
           coef->c * (double)shape->decoding_seqs + coef->d * (double)shape->kv_tokens_decoding +
           coef->e * (double)(shape->kv_tokens_read - shape->kv_tokens_decoding);
}

/* How fast the machine is: a step that reads the weights and PERF_READ_TOKENS cached tokens. Fits
 * tell `a` and `d` well, and they are the same wherever an instance works; `b` and `c` are slopes
 * of a curve there, so that they tell a busy machine from an idle one rather than a slow one. */
#define PERF_READ_TOKENS 32768
static inline double perf_read_s(const struct perf_coef *coef)
{
    return coef->a + coef->d * PERF_READ_TOKENS;
}

/* The same machine at a share of full speed, (0, 1], that it keeps by injecting idle time: all of a
 * step stretches. */
struct perf_coef perf_at_clock(const struct perf_coef *full, double clock);

/* One step that does nothing but prefill `tokens` of a prompt. */
static inline double perf_prefill_s(const struct perf_coef *coef, uint32_t tokens)
{
    double n = tokens;
    return coef->a + n * (coef->b + coef->e * (n + 1) / 2);
}

/* True when the numbers can be used at all: finite, none negative, not all zero. They may come
 * from a peer. */
bool perf_coef_valid(const struct perf_coef *coef);
