/* masks.h - keeps the automata of grammars, and makes token masks on a thread beside the step.
 *
 * Layer:    engine/serve (base/grammar, base/text)
 * Threads:  the device thread, and a thread of its own, which touches automata only between masks_begin and
 *           masks_wait; the device thread touches none then
 * Lifetime: the vocabulary outlives it; masks_free after the last matcher
 *
 * Outputs that are parsed for reasoning and calls show the control tokens that are marks (dialect_is_mark).
 * Where the vocabulary has some, they have a second tree, in which these are tokens like others.
 *
 * Requests with equal descriptions share an automaton, and so the masks made so far. An automaton that no request
 * uses is kept for the next one, MASKS_IDLE_MAX of them, the latest used. The tree of the vocabulary is
 * built by the thread at its start.
 */
#pragma once
#include "base/core/hash.h"
#include "base/grammar/matcher.h"
#include "base/text/dialogue/turn.h"

#define MASKS_IDLE_MAX 16

struct masks;

/* `vocab_size`: of the model's logits; ids without a text are allowed by no grammar. */
int masks_new(const struct vocab *vocab, uint32_t vocab_size, struct masks **ret, struct err *err);
void masks_free(struct masks *m);

/* The control tokens that are marks. They live as long as the masks. */
const uint32_t *masks_marks(const struct masks *m, uint32_t *ret_count);

/* Finds the automaton of `key`, or makes it of *grammar, which is taken in both cases (and set to NULL).
 * `marks`: marks are tokens like others; they are part of what `key` describes. Waits for the tree. -ENOMEM, -E2BIG. */
int masks_open(struct masks *m, const uint8_t key[SHA256_BYTES], bool marks,
               struct grammar **grammar, struct automaton **ret);
void masks_close(struct masks *m, struct automaton *automaton); /* its matchers have ended */

/* Starts to make the masks of the matchers; the array stays as it is until masks_wait. */
void masks_begin(struct masks *m, struct matcher *const *matcher, uint32_t count);
void masks_wait(struct masks *m); /* returns at once where none was begun */
