/* perf.h - estimates how long a step takes, by one formula that engine, router, planner and simulator share;
 * and names the phases that an instance serves.
 *
 * Layer:   base/perf (base/core)
 * Threads: pure functions over coefficients that are copied by value
 *
 *     seconds = step_s + prefill_token_s * prefill_tokens + decode_seq_s * decoding_seqs
 *                 + kv_read_s * kv_tokens_decoding
 *                 + attend_s * (kv_tokens_read - kv_tokens_decoding)
 *
 * An engine fits its own coefficients (policies/perf) and reports them instead of its present speed, so
 * that others can price work that the engine has not met yet.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct perf_coef {
    /* Seconds, never negative. */
    double step_s;          /* fixed part of each step: the weights are read once */
    double prefill_token_s; /* one more token of a prompt */
    double decode_seq_s;    /* one more decoding sequence */
    double kv_read_s;       /* a cached token that a decoding sequence reads */
    double attend_s;        /* a prompt token attending to one token; 0: not fitted separately */
    double samples;         /* steps behind the fit; 0: only the prior, or nothing */
    double ratio_p90;       /* nine steps in ten took at most this many times the estimate */
};

/* Describes the batch of one step. kv_tokens_read counts, for each token that is computed, the cached
 * tokens it attends to: a decoding session adds its length, a chunk of n tokens behind m others adds
 * n * m + n (n + 1) / 2. A decoding session that has guessed tokens verified counts once for each of its
 * tokens, since each has logits; it reads its pages once, and the guesses attend like a chunk. On an accelerator the
 * two cost differently: attention of a decoding session is bound by memory, attention of a chunk by arithmetic. */
struct perf_shape {
    uint32_t prefill_tokens;
    uint32_t decoding_seqs;
    uint64_t kv_tokens_read;
    uint64_t kv_tokens_decoding; /* the part of kv_tokens_read that decoding sessions read */
    uint32_t prefill_chunks;     /* sessions to which prefill_tokens belong */
};

static inline double perf_step_s(const struct perf_coef *coef, const struct perf_shape *shape)
{
    return coef->step_s + coef->prefill_token_s * (double)shape->prefill_tokens +
           coef->decode_seq_s * (double)shape->decoding_seqs +
           coef->kv_read_s * (double)shape->kv_tokens_decoding +
           coef->attend_s * (double)(shape->kv_tokens_read - shape->kv_tokens_decoding);
}

/* Measures the speed of a machine by the seconds of a step that reads the weights and PERF_READ_TOKENS
 * cached tokens. Fits determine step_s and kv_read_s well, and both are the same at any load; the other
 * coefficients are slopes at the present load, so they distinguish a busy machine from an idle one
 * rather than a slow one from a fast one. */
#define PERF_READ_TOKENS 32768
static inline double perf_read_s(const struct perf_coef *coef)
{
    return coef->step_s + coef->kv_read_s * PERF_READ_TOKENS;
}

/* Returns the coefficients of the same machine at a share of full speed, (0, 1], kept by idle injection:
 * every part of a step takes longer. */
struct perf_coef perf_at_clock(const struct perf_coef *full, double clock);

/* Returns the seconds of a step that does nothing but prefill `tokens` of a prompt. */
static inline double perf_prefill_s(const struct perf_coef *coef, uint32_t tokens)
{
    double n = tokens;
    return coef->step_s + n * (coef->prefill_token_s + coef->attend_s * (n + 1) / 2);
}

/* Returns true if the coefficients can be used at all: finite, none negative, not all zero. They may
 * come from a peer. */
bool perf_coef_valid(const struct perf_coef *coef);

/* The phases of a request that an instance serves. */

enum role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE, ROLE_COUNT };
extern const char *const role_names[ROLE_COUNT + 1]; /* ends with NULL */
