/* stream_perf.h - learns the step times of an engine that reports none from the streams of its outputs.
 *
 * Layer:   fleet (policies, base/perf)
 * Threads: pure; the owner's. A value of fixed size without pointers
 * Rules:   (1) only clean observations are learned: a first token of a prompt that no other prompt waited
 *              with, and gaps in which no prompt came. Of others it is not known which work they paid for
 *          (2) the coefficients are those of base/perf/perf.h, so that policies treat such an engine as
 *              any other; the time on the network and in the engine's front is part of them
 *          (3) absent is not zero: nothing is known before both kinds of observations came
 *
 *     first token   one step: the uncached part of the prompt, beside what decoded then
 *     gap           one step: the sequences that decoded, and the tokens that they read
 */
#pragma once
#include "policies/perf/linear.h"

#define STREAM_GAP_TOKENS 16 /* between two looks at a stream: their mean gap is one observation */
#define STREAM_SAMPLES_MIN 3 /* of each kind, before the coefficients are used */

struct stream_perf {
    bool begun;
    uint32_t firsts, gaps;
    struct perf_linear fit;
};

/* Describes an engine's work at a moment, as far as its router knows. */
struct stream_moment {
    uint32_t decoding, waiting; /* sequences past their first token; before it */
    uint64_t kv_tokens;         /* read by those that decode */
    uint64_t uncached_total; /* prompt tokens ever sent, less hits: it rises when a prompt comes */
};

/* A stream from its last look on. { 0 }: none was made. */
struct stream_watch {
    int64_t from_us;
    uint32_t tokens; /* of the output at from_us */
    bool clean;      /* nothing else waited at from_us */
    struct stream_moment load;
};

/* Begins to watch a request that was sent just now; `load` includes it. */
void stream_watch_sent(struct stream_watch *w, const struct stream_moment *load, int64_t now_us);

/* Takes news of the stream: `tokens` so far, of a prompt of which `uncached` tokens were to be computed
 * behind `cached` ones. Learns when the first came, and after every STREAM_GAP_TOKENS. */
void stream_watch_tokens(struct stream_watch *w, struct stream_perf *p, uint32_t tokens,
                         uint32_t uncached, uint32_t cached, const struct stream_moment *load,
                         int64_t now_us);

/* Returns true and fills *ret once enough is known. */
bool stream_perf_get(const struct stream_perf *p, struct perf_coef *ret);
