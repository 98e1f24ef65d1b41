/* pretokenizer.h - cuts a text into the words on which byte-pair merging works.
 *
 * Layer:   base/text (base/core)
 * Threads: pure
 * Why:     models publish these rules as regular expressions with lookahead. A regex engine on
 *          text of clients is a known way to hang a server, so every expression is a small
 *          hand-written matcher; each takes time linear in its text.
 */
#pragma once
#include "base/core/str.h"

#define PRETOKENIZER_STAGES_MAX 6

/* Finds the first match at or behind `from` in `text`; false when there is none. */
typedef bool (*pretokenizer_find_fn)(struct str text, size_t from, size_t *ret_start,
                                     size_t *ret_end);

struct pretokenizer {
    const char *name; /* tokenizer.ggml.pre */
    /* Each stage cuts every piece of the stage before into matches and the gaps between them. */
    pretokenizer_find_fn stages[PRETOKENIZER_STAGES_MAX];
    bool whole_word_first; /* a word that is a token is taken without merging */
};

/* Finds a pretokenizer by name; NULL when there is none. */
const struct pretokenizer *pretokenizer_find(struct str name);
const char *pretokenizer_name(size_t index); /* in the table's order; NULL behind the last */

/* Returns the name of a pretokenizer of model files with the stages of `p` that treats whole words so; NULL when there
 * is none. */
const char *pretokenizer_alias(const struct pretokenizer *p, bool whole_word_first);

/* Returns the name of the pretokenizer with one stage that does what the expression says (as models publish
 * it, in their notations); NULL when we have none. */
const char *pretokenizer_of_regex(struct str regex);

/* Calls `word` for each word in order; stops at the first call that returns non-zero and returns that
 * value. Words are never empty, and joined they are the text. */
typedef int (*pretokenizer_word_fn)(void *arg, struct str word);
int pretokenizer_run(const struct pretokenizer *p, struct str text, pretokenizer_word_fn word,
                     void *arg);
