/* matcher.h - follows an output through a grammar, and says which tokens may come next.
 *
 * Layer:    base/grammar (base/core)
 * Threads:  an automaton and all its matchers belong to one thread at a time
 * Lifetime: the grammar belongs to the automaton from automaton_new on; the trie outlives it; a matcher ends
 *           before its automaton
 *
 * An automaton is a grammar with all that was learned of it: its states, their steps and their masks, shared
 * by every output that follows the same grammar. A matcher is one output's place in it.
 *
 * A state is the set of all ways in which the output so far fits: pairs of a place in the grammar and a set
 * of places to return to (a graph-structured stack). Ways that differ only in their past are one, so
 * the cost of a byte does not grow with the number of ways (Tomita, "An Efficient Augmented-Context-Free
 * Parsing Algorithm", 1987; entered rules are shared a position, so there are at most rules times places of
 * them). States are made at their first use and kept, so a step that was taken before is one look-up.
 *
 * Every table is bounded. When they are half full between two calls, all is dropped but the states in
 * use, and again when half of the rest is. An output that needs more is given up with -E2BIG; one alone
 * cannot fill the tables by its depth, so others of the automaton go on.
 */
#pragma once
#include "base/core/list.h"
#include "base/grammar/grammar.h"
#include "base/grammar/token_trie.h"

#define AUTOMATON_SETS_MAX 32768       /* states and return sets */
#define AUTOMATON_PAIRS_MAX (1u << 18) /* in all of them: 2 MiB */
#define AUTOMATON_SET_PAIRS_MAX 4096   /* in one: ways at once */
#define AUTOMATON_STEPS_MAX 8192       /* states whose steps are kept: 512 bytes each */
#define AUTOMATON_DEPTH_MAX 1024       /* rules that one output has entered and not left */
#define AUTOMATON_MASK_BYTES_MAX (2u << 20)

struct automaton;

/* Takes the grammar. `trie` NULL: no masks are asked for. -ENOMEM, -E2BIG: the grammar stays the
 * caller's. */
int automaton_new(struct grammar *g_owned, const struct token_trie *trie, struct automaton **ret);
void automaton_free(struct automaton *m);
CLEANUP_FREEP(automaton, struct automaton)

struct automaton_stats {
    uint64_t masks_made, masks_found; /* since it was made */
    uint64_t nodes_walked;            /* of the trie */
    uint32_t sets, drops;             /* kept now; times that all was dropped */
};

void automaton_stats_get(const struct automaton *m, struct automaton_stats *ret);

struct matcher {
    struct automaton *automaton;
    struct list link;
    uint32_t state;
};

/* Stands at the beginning of an output. -E2BIG, -ENOMEM. */
int matcher_init(struct matcher *t, struct automaton *m);
void matcher_fini(struct matcher *t); /* { 0 } is allowed */

/* Goes on over bytes. -EINVAL: the grammar does not allow them; -E2BIG, -ENOMEM. On failure the matcher
 * stays where it was. */
int matcher_advance(struct matcher *t, struct str bytes);

bool matcher_may_end(const struct matcher *t); /* the output so far is a whole one */
bool matcher_is_over(const struct matcher *t); /* and nothing may follow it */

/* Returns the tokens that may come next: bit id % 64 of word id / 64 for each id below the trie's
 * vocab_size. Valid until the next call for any matcher of the automaton. -E2BIG, -ENOMEM. */
int matcher_mask(struct matcher *t, const uint64_t **ret);
bool matcher_has_mask(const struct matcher *t); /* it was made and kept */

/* The words of a mask. */
static inline size_t mask_words(uint32_t vocab_size)
{
    return ((size_t)vocab_size + 63) / 64;
}

static inline bool mask_has(const uint64_t *mask, uint32_t id)
{
    return mask[id / 64] >> (id % 64) & 1;
}
