/* perf.h - how long a step takes, the one model that engine, router, planner and simulator share; and the
 * phases that an instance serves.
 *
 * Layer:   policies (base/core)
 * Threads: pure functions over coefficients that are copied by value
 *
 *     seconds = step_s + prefill_token_s * prefill_tokens + decode_seq_s * decoding_seqs
 *                 + kv_read_s * kv_tokens_decoding
 *                 + attend_s * (kv_tokens_read - kv_tokens_decoding)
 *
 * An engine fits its own coefficients (policies/perf) and reports them, never a speed of the
 * moment, so that others can price work that the engine has not met yet.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct perf_coef {
    /* Seconds, never negative. */
    double step_s;          /* a step, whatever it holds: the weights are read once */
    double prefill_token_s; /* one more token of a prompt */
    double decode_seq_s;    /* one more decoding sequence */
    double kv_read_s;       /* a cached token that a decoding sequence reads */
    double attend_s;        /* a prompt token attending to one token; 0: not told from kv_read_s */
    double samples;         /* steps behind them; 0: only the prior, or nothing */
    double ratio_p90;       /* nine steps in ten took at most this many times the estimate */
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
    return coef->step_s + coef->prefill_token_s * (double)shape->prefill_tokens +
           coef->decode_seq_s * (double)shape->decoding_seqs +
           coef->kv_read_s * (double)shape->kv_tokens_decoding +
           coef->attend_s * (double)(shape->kv_tokens_read - shape->kv_tokens_decoding);
}

/* How fast the machine is: a step that reads the weights and PERF_READ_TOKENS cached tokens. Fits
 * tell step_s and kv_read_s well, and they are the same wherever an instance works; the others are slopes
 * of a curve there, so that they tell a busy machine from an idle one rather than a slow one. */
#define PERF_READ_TOKENS 32768
static inline double perf_read_s(const struct perf_coef *coef)
{
    return coef->step_s + coef->kv_read_s * PERF_READ_TOKENS;
}

/* The same machine at a share of full speed, (0, 1], that it keeps by injecting idle time: all of a
 * step stretches. */
struct perf_coef perf_at_clock(const struct perf_coef *full, double clock);

/* One step that does nothing but prefill `tokens` of a prompt. */
static inline double perf_prefill_s(const struct perf_coef *coef, uint32_t tokens)
{
    double n = tokens;
    return coef->step_s + n * (coef->prefill_token_s + coef->attend_s * (n + 1) / 2);
}

/* True when the numbers can be used at all: finite, none negative, not all zero. They may come
 * from a peer. */
bool perf_coef_valid(const struct perf_coef *coef);

/* The phases of a request that an instance serves. */

enum role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE, ROLE_COUNT };
extern const char *const role_names[ROLE_COUNT + 1]; /* ends with NULL */
