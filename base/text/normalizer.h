/* normalizer.h - changes a text by the normal rules of a tokenizer.
 *
 * Layer:   base/text, private to the tokenizer. Pure
 * Memory:  8 bytes for each byte of the text while it runs
 * Taint:   content stays marked: the result lists the bytes that came from bytes of `content`
 */
#pragma once
#include "base/core/buf.h"
#include "base/text/text_rules.h"
#include "base/text/tokenizer.h"

#define NORMAL_CHARS_MAX ((size_t)64 << 20) /* of the text at any step */

struct normal_text {
    struct buf text;
    struct text_spans content;
};

void normal_text_fini(struct normal_text *t);

/* Returns true if the rules leave this text as it is, seen without running them. */
bool normalizer_leaves(struct text_rules rules, struct str text);

/* Writes the changed text to *out, emptied first. `content` (ascending ranges of `text`) may be NULL. With
 * `keep_bytes` invalid UTF-8 passes unchanged, else each maximal bad part becomes U+FFFD. -E2BIG at the
 * bound, -ENOMEM. O(n log n). */
int normalizer_run(struct text_rules rules, struct str text, const struct text_spans *content,
                   bool keep_bytes, struct normal_text *out);
