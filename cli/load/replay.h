/* replay.h - turns a slice of a trace into a load run: arrivals sped up, lengths scaled, prompts made.
 *
 * Layer:    cli (base/core, base/io)
 * Lifetime: the replay borrows the trace and must outlive the load run that reads it
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/str.h"
#include "cli/load/load_run.h"
#include "cli/target.h"
#include "simulator/trace.h"

/* prompt_* make text for a trace that has only lengths: equal blocks become equal text.
 *
 * Threads: pure
 *
 * A block id becomes plain sentences that depend on (seed, id) alone, so requests share exactly the
 * prefixes of the trace. A question follows the blocks, and the output's length follows from the
 * question: outputs end by themselves.
 */

/* Appends one block: sentences of about `tokens` tokens, given `tokens_per_word` of the model. */
int prompt_block(uint64_t seed, uint64_t id, uint32_t tokens, double tokens_per_word,
                 struct buf *out);

/* Returns question number `index` (wraps around); the list is compiled in from
 * tests/models/questions.txt. */
struct str prompt_question(uint64_t index);

struct prompt_shape {
    uint64_t seed;
    const uint64_t *ids; /* blocks; NULL: all text is this request's own */
    uint32_t id_count;
    uint64_t own;          /* number of the request: seeds the text that is its own */
    uint32_t tokens;       /* wanted length, question included */
    uint32_t block_tokens; /* tokens a block stands for in this prompt */
    double tokens_per_word;
};

/* Appends the whole user message. */
int prompt_text(const struct prompt_shape *shape, struct buf *out);

struct replay {
    const struct trace *trace;
    uint32_t first, count; /* requests of the trace, from `first` */
    double speed;          /* arrivals come this many times as fast */
    uint32_t divide;       /* prompt lengths are divided by this; a block shrinks alike */
    uint32_t tokens_max;   /* longer prompts are cut to this */
    uint64_t seed;         /* of the texts: runs with different seeds share no text */
    double tokens_per_word;
    uint32_t cut; /* prompts that tokens_max cut, counted by replay_message */
};

/* Returns the number of requests from `first` on that arrive within `span_us` of the trace's time. */
uint32_t replay_count_within(const struct trace *t, uint32_t first, int64_t span_us);
int64_t replay_due_us(const struct replay *r, uint32_t index);
int replay_message(struct replay *r, uint32_t index, struct buf *out);

/* Asks the server's /tokenize for the tokens per word of replayed text; an empty model is the server's
 * only one. Tries again for ten seconds while
 * the reply is 503, as it is from a router that has just come up. */
int replay_calibrate(const struct target *target, struct str api_key, struct str model, double *ret,
                     struct err *err);

#define QUESTIONS_MAX 1024

struct str questions_text(void); /* lines: kind, tab, question */
