/* cutter.h - cuts a text into words by the cut rules of a tokenizer.
 *
 * Layer:   base/text, private to the tokenizer
 * Threads: a cutter belongs to one thread; { 0 } plus its rules is ready
 * Memory:  a rule that changes its piece keeps one changed piece
 */
#pragma once
#include "base/core/buf.h"
#include "base/text/pretokenizer.h"
#include "base/text/text_rules.h"

struct cutter {
    struct text_rules rules;
    struct buf changed[TEXT_RULES_MAX];
    pretokenizer_word_fn word;
    void *arg;
};

void cutter_fini(struct cutter *c);

/* Calls c->word for each word in order, and stops at the first call that returns non-zero, with that value.
 * Words are never empty; a word lives until the next one. `first` says that the text begins a prompt, for
 * rules that mark only its first word. -ENOMEM. O(n). */
int cutter_run(struct cutter *c, struct str text, bool first);
