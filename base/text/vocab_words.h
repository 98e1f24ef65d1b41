/* vocab_words.h - finds the token or the remembered ids of a whole word.
 *
 * Layer: base/text, private: called once for each word of a text, so inline
 */
#pragma once
#include "base/text/vocab_tables.h"

/* Computes the key of a word, which has at least one byte. No load reads beyond its end: the last bytes are
 * loaded together with some before them. */
static inline struct vocab_key vocab_key_of(struct str word)
{
    const char *at = word.data;
    const size_t len = word.len;
    struct vocab_key k = { .tail = (uint32_t)(len > VOCAB_WORD_HEAD ? VOCAB_WORD_HEAD + 1 : len)
                                   << 24 };
    if (len > VOCAB_WORD_HEAD) {
        k.head = load_u64(at);
        k.tail |= load_u32(at + 8) & 0xFFFFFF;
        k.hash = hash64(at, len, 0);
        return k;
    }
    if (len > 8) {
        k.head = load_u64(at);
        k.tail |= (uint32_t)(load_u64(at + len - 8) >> 8 * (16 - len));
    } else if (len >= 4) {
        k.head = load_u32(at) | (uint64_t)load_u32(at + len - 4) << 8 * (len - 4);
    } else {
        k.head = (unsigned char)at[0] | (uint64_t)(unsigned char)at[len / 2] << 8 * (len / 2) |
                 (uint64_t)(unsigned char)at[len - 1] << 8 * (len - 1);
    }
    /* Clients choose the words, but no word enters the table: a hash that collides, which is easy to
     * find, costs at most a probe of the longest run of the vocabulary's own tokens. */
    unsigned __int128 product = (unsigned __int128)(k.head ^ UINT64_C(0x9E3779B97F4A7C15)) *
                                (k.tail ^ UINT64_C(0xD6E8FEB86659FD93));
    k.hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    return k;
}

/* Returns the slot that holds the word, or the empty one where it would go. */
static inline struct vocab_word *vocab_word_slot(const struct vocab *v, struct str word,
                                                 const struct vocab_key *key)
{
    uint64_t probes = 1;
    uint32_t at = (uint32_t)key->hash & v->word_mask;
    for (;; at = (at + 1) & v->word_mask, probes++) {
        struct vocab_word *w = &v->words[at];
        const uint32_t token = atomic_load_explicit(&w->token, memory_order_relaxed);
        if (token == VOCAB_NONE) break;
        if (w->head != key->head || w->tail != key->tail) continue;
        if (word.len <= VOCAB_WORD_HEAD) break;
        if (str_eq(vocab_bytes(v, token & VOCAB_WORD_ID_MASK), word)) break;
    }
    work_add(probes);
    return &v->words[at];
}

/* Prefetches the slot of a word with that hash. */
static inline void vocab_word_fetch(const struct vocab *v, uint64_t hash)
{
    __builtin_prefetch(&v->words[(uint32_t)hash & v->word_mask]);
}

/* Returns one of the two neighbouring memos in which a word may be kept: `way` is 0 or 1. */
static inline struct vocab_memo *vocab_memo(const struct vocab *v, uint64_t hash, uint32_t way)
{
    return &v->memos[(hash >> 32 & (VOCAB_MEMOS - 1)) ^ way];
}
