/* reasoning.h - counts the tokens of an output's reasoning by their ids, as they come.
 *
 * Layer:    base/text (base/core)
 * Threads:  one counter, one thread
 * Lifetime: the plan's names and vocabulary live as long as the counter, which stays where it was made
 * Rules:    (1) a token counts if a byte of it is reasoning, as parser.h says: marks do not count, the white space
 *               behind them does
 *           (2) the count does not depend on how many ids come at once
 *
 * The ids are parsed again, beside the output's text: that one lags behind its tokens where a character is not
 * complete or a stop string may begin, and a frame has several tokens with one text.
 */
#pragma once
#include "base/text/dialogue/turn.h"

struct reasoning {
    struct dialogue_parser parser;
    const struct vocab *vocab;                  /* NULL: nothing is counted */
    bool marks;                                 /* as the plan's */
    uint32_t tokens;                            /* of reasoning so far */
    uint32_t taken, counted;                    /* ids so far; the last that counted, from 1 */
    uint64_t begin;                             /* first byte of the token at hand */
    uint32_t token_of[DIALOGUE_MARK_BYTES_MAX]; /* of the last bytes, by their place modulo that */
};

/* Counts nothing where the plan parses nothing or the model has no dialect of reasoning. */
void reasoning_init(struct reasoning *c, const struct turn *t);
void reasoning_fini(struct reasoning *c); /* { 0 } is allowed */

/* Takes the next tokens. -ENOMEM, sticky. */
int reasoning_take(struct reasoning *c, const uint32_t *ids, uint32_t count);

/* Returns true amid reasoning. *ret_tokens: the tokens so far, if what may become its end does not. */
bool reasoning_is_open(const struct reasoning *c, uint32_t *ret_tokens);

/* The output has ended: what might have become a mark is reasoning. -ENOMEM. */
int reasoning_end(struct reasoning *c);

#define REASONING_END_MAX 16 /* tokens of the mark that ends reasoning */

/* A limit on the tokens of an output's reasoning: once they are there, the mark that ends it comes next, whatever the
 * model would choose. Constant. */
struct reasoning_limit {
    uint32_t tokens;  /* 0: no limit */
    struct turn turn; /* without calls: a mark of reasoning inside one counts, too */
    uint32_t end[REASONING_END_MAX], end_count;
};

/* No limit (*ret is { 0 }) for 0 tokens, and where the model has no dialect of reasoning. `prompt` has no output.
 * -ENOTSUP: a token of the mark would end the output, or there are too many; -ENOMEM. */
int reasoning_limit_make(const struct dialogue *d, const struct vocab *v, uint32_t tokens,
                         const uint32_t *prompt, size_t count, struct reasoning_limit *ret,
                         struct err *err);
