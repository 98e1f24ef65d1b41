/* lexicon.h - finds the entries of a sorted list that are prefixes of a text.
 *
 * Layer:   base/text, private to the tokenizer
 * Threads: immutable once sorted
 * What:    entries are sorted bytewise, which makes the list a trie: a walk holds the range of entries that
 *          share the bytes seen so far, and each further byte narrows it by binary search. A position
 *          costs the depth of the deepest entry that begins there, and an entry costs 16 bytes.
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/str.h"

struct lexicon_entry {
    const char *text; /* borrowed */
    uint32_t len, id;
};

struct lexicon {
    struct lexicon_entry *entries;
    uint32_t count;
    uint32_t starts[257]; /* entries that begin with byte b: [starts[b], starts[b + 1]) */
    uint32_t first_bytes; /* how many bytes begin an entry, and one of them */
    unsigned char first_byte;
};

struct lexicon_walk {
    uint32_t low, high;
    uint32_t depth;
};

/* Reserves room for `max` entries. -ENOMEM. */
int lexicon_init(struct lexicon *l, struct arena *arena, uint32_t max);

/* Adds an entry (not empty) within the room; lexicon_sort makes the list usable. Of entries with equal
 * texts the lowest id stays. */
void lexicon_add(struct lexicon *l, struct str text, uint32_t id);
void lexicon_sort(struct lexicon *l);

/* Begins a walk with its first byte; false if no entry begins so. */
bool lexicon_begin(const struct lexicon *l, struct lexicon_walk *w, unsigned char byte);

/* Takes one more byte; false if no entry goes on so, and the walk is over. */
bool lexicon_step(const struct lexicon *l, struct lexicon_walk *w, unsigned char byte);

/* Returns the entry that is exactly the bytes of the walk, or NULL. */
const struct lexicon_entry *lexicon_here(const struct lexicon *l, const struct lexicon_walk *w);
