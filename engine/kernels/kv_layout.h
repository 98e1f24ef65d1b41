/* kv_layout.h - says where the K and V of a token lie in a page.
 *
 * Layer:  engine/kernels (base/core). Inline and pure.
 * Layout: a page holds `page_tokens` tokens of all layers and KV heads, in blocks of KV_BLOCK
 *         tokens, each shaped like a weight tile, so that one kernel serves both:
 *
 *             page = [layer][kv head] { K [block][head_dim][16 tokens],
 *                                       V [block][head_dim / 16][16 tokens][16] }
 *
 *         Scores of 16 keys come out in one vector; the sum over V takes 16 values of d at once.
 */
#pragma once
#include "base/core/bits.h"

#define KV_BLOCK 16
#define KV_HEAD_DIM_MAX 512 /* sizes the scratch of attention; a multiple of 16 */

/* How K and V are stored. */
enum kv_type { KV_F16, KV_F32, KV_TYPE_COUNT };

struct kv_layout {
    enum kv_type type;
    uint32_t n_layers, n_kv_heads, head_dim, page_tokens;
};

static inline size_t kv_element_bytes(enum kv_type type)
{
    return type == KV_F16 ? 2 : 4;
}

/* Returns the bytes of K, or of V, of one block of one head. */
static inline size_t kv_block_bytes(const struct kv_layout *l)
{
    return KV_BLOCK * l->head_dim * kv_element_bytes(l->type);
}

/* Returns the bytes of all K, or all V, of one head of one layer in a page. */
static inline size_t kv_half_bytes(const struct kv_layout *l)
{
    return l->page_tokens / KV_BLOCK * kv_block_bytes(l);
}

static inline size_t kv_page_bytes(const struct kv_layout *l)
{
    return (size_t)l->n_layers * l->n_kv_heads * 2 * kv_half_bytes(l);
}

/* Returns the offset in a page of the K of (layer, head); its V lies kv_half_bytes behind. */
static inline size_t kv_head_offset(const struct kv_layout *l, uint32_t layer, uint32_t head)
{
    return ((size_t)layer * l->n_kv_heads + head) * 2 * kv_half_bytes(l);
}

/* Returns the block of a (layer, head) that holds absolute position 16 * block. `head` is the
 * address of that head in page 0. */
static inline char *kv_block_at(const struct kv_layout *l, char *head, size_t page_bytes,
                                const uint32_t *page_table, uint32_t block)
{
    uint32_t blocks_per_page = l->page_tokens / KV_BLOCK;
    return head + page_table[block / blocks_per_page] * page_bytes +
           block % blocks_per_page * kv_block_bytes(l);
}
