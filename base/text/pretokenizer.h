/* pretokenizer.h - cut a text into the words that byte-pair merging works on.
 *
 * Layer:   base/text (base/core)
 * Threads: pure
 * Why:     models publish these rules as regular expressions with lookahead. A regex engine on
 *          text that strangers send is a known way to hang a server, so every expression is a
 *          small hand-written matcher; each takes time linear in its text.
 */
#pragma once
#include "base/core/str.h"

#define PRETOKENIZER_STAGES_MAX 5

/* Finds the first match at or behind `from` in `text`; false when there is none. */
typedef bool (*pretokenizer_find_fn)(struct str text, size_t from, size_t *ret_start,
                                     size_t *ret_end);

struct pretokenizer {
    const char *name; /* tokenizer.ggml.pre */
    /* Each stage cuts every piece of the one before into matches and what lies between. */
    pretokenizer_find_fn stages[PRETOKENIZER_STAGES_MAX];
    bool whole_word_first; /* a word that is a token is not built by merges */
};

/* NULL when there is no row of that name. */
const struct pretokenizer *pretokenizer_find(struct str name);
const char *pretokenizer_name(size_t index); /* of the row; NULL behind the last */

/* Calls `word` for each piece in order; stops at the first that returns non-zero and returns
 * it. Pieces are never empty and together are the text. */
typedef int (*pretokenizer_word_fn)(void *arg, struct str word);
int pretokenizer_run(const struct pretokenizer *p, struct str text, pretokenizer_word_fn word,
                     void *arg);
