/* token_trie.h - holds the texts of a vocabulary's tokens as a tree of their common beginnings.
 *
 * Layer:    base/grammar (base/core)
 * Threads:  immutable after token_trie_new
 * Lifetime: copies what it is given
 *
 * The nodes lie in depth-first order. A node's subtree is [node, node + skip), so a walk leaves a branch
 * that a grammar forbids in one step, and 128,000 tokens cost one look at each beginning they share.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

struct trie_node {
    uint32_t skip;   /* nodes of its subtree, itself included */
    uint32_t tokens; /* token[] up to here end in this node or before it */
    uint16_t depth;  /* bytes of its text; at least 1 */
    uint8_t byte;
};

struct token_trie {
    struct trie_node *node;
    uint32_t node_count;
    uint32_t *token; /* ids in the order of the nodes */
    uint32_t token_count;
    uint32_t vocab_size;
    uint32_t depth_max;
};

/* Builds the tree of `count` tokens; one without bytes is left out, and so is allowed by no grammar. Texts
 * are at most 65535 bytes. -E2BIG, -ENOMEM. */
int token_trie_new(const struct str *bytes, uint32_t count, struct token_trie **ret);
void token_trie_free(struct token_trie *t);
CLEANUP_FREEP(token_trie, struct token_trie)
