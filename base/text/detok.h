/* detok.h - converts token ids back to text as they come, in whole characters.
 *
 * Layer:    base/text (base/core)
 * Threads:  one stream, one thread; { 0 } plus detok_init, nothing to free
 * Rules:    (1) bytes are held back only while they may still become a UTF-8 character, at
 *               most 3 of them
 *           (2) bytes that can never become one are written as U+FFFD, one for each maximal bad
 *               part, so the output is always valid UTF-8
 *           (3) valid bytes come out exactly, however they are split into tokens
 *           (4) a stream goes on where a prompt ended, so its first blank is kept; a whole text
 *               (detok_bytes) begins without the blank that the tokenizer put there
 */
#pragma once
#include "base/core/buf.h"
#include "base/text/vocab.h"

#define DETOK_HELD_MAX 3

struct detok {
    const struct vocab *vocab;
    bool skip_control; /* control, unknown and unused tokens write nothing, but for these: */
    const uint32_t *shown;
    uint32_t shown_count;
    uint8_t held_len;
    char held[DETOK_HELD_MAX];
};

void detok_init(struct detok *d, const struct vocab *v, bool skip_control);

/* Returns the bytes that a token adds to a text; none for a control token. */
struct str detok_heard(const struct vocab *v, uint32_t id);

/* Appends the complete characters to `out`; an id outside the vocab writes nothing. Returns out->rc. */
int detok_push(struct detok *d, uint32_t id, struct buf *out);
int detok_flush(struct detok *d, struct buf *out); /* at the end: held bytes become U+FFFD */

/* Appends the bytes of all ids, which are a whole text, unchanged (invalid UTF-8 too): for round trips and
 * /detokenize. */
int detok_bytes(const struct vocab *v, const uint32_t *ids, size_t count, bool skip_control,
                struct buf *out);
