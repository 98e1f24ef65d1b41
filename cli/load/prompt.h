/* prompt.h - text for a trace that has only lengths: equal blocks become equal text.
 *
 * Layer:   cli (base/core)
 * Threads: pure
 *
 * A block id becomes plain sentences that depend on (seed, id) alone, so requests share exactly the
 * prefixes that the trace says. Behind the blocks stands one question, and the answer's length
 * follows from the question: outputs end by themselves.
 */
#pragma once
#include "base/core/buf.h"

/* One block: sentences of about `tokens` tokens, given `tokens_per_word` of the model. */
int prompt_block(uint64_t seed, uint64_t id, uint32_t tokens, double tokens_per_word,
                 struct buf *out);

/* The question number `index` (wraps around); the list is compiled in from
 * tests/models/questions.txt. */
struct str prompt_question(uint64_t index);

struct prompt_shape {
    uint64_t seed;
    const uint64_t *ids; /* blocks; NULL: all text is this request's own */
    uint32_t id_count;
    uint64_t own;          /* number of the request: names what it shares with nobody */
    uint32_t tokens;       /* wanted length, question included */
    uint32_t block_tokens; /* tokens a block stands for in this prompt */
    double tokens_per_word;
};

/* The whole user message. */
int prompt_text(const struct prompt_shape *shape, struct buf *out);
