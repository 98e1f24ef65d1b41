/* charsmap.h - maps characters by the precompiled map of a SentencePiece model.
 *
 * Layer:   base/text, private to the tokenizer. Pure
 * Format:  u32 bytes of the trie; the trie, a double array of u32 units (darts-clone); then the texts that
 *          the trie's values point to, each ended by a zero byte
 * Rules:   a map comes from a file: each unit is checked before it is followed
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

struct charsmap {
    struct str units, texts;
};

/* Checks the outer form. -EINVAL, -E2BIG. */
int charsmap_check(struct str blob, struct err *err);

/* Opens a blob that charsmap_check accepted. */
struct charsmap charsmap_open(struct str blob);

/* Finds an entry that is a prefix of `text`, the longest or the shortest; returns its bytes, 0 for none,
 * and what it becomes (perhaps nothing) in *ret. */
size_t charsmap_find(const struct charsmap *m, struct str text, bool longest, struct str *ret);
