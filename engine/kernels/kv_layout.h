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
 * Latent: with latent attention all heads share one vector a token, whose first `latent` elements are V,
 *         too. It is stored as K, and nothing else is; attention turns a block's tiles to read them as V.
 * Window: the layers with a sliding window lie behind all others (decoder_layer.kv_place), from a multiple of
 *         KV_PART_ALIGN on, so that the memory of their part can be given back while the page keeps the rest.
 * Codes:  Q8 and Q4 store codes in that place, and behind those of a block its scales, in BF16,
 *         [group][16 tokens]. A group is all of a head for Q8, KV_GROUP values of d for Q4, and also for
 *         Q8 of a latent vector, whose two parts differ in size; an element is scale * code (Q8) or
 *         scale * kv_q4_values[code] (Q4, kv_code.h). Q4 has two codes in a byte, both of one token, so
 *         that tokens may be written at the same time:
 *
 *             K [group][16][16 tokens]: byte i has d = 2i of the group in its low four bits, 2i + 1
 *             V [group][16 tokens][16]: byte i has d = i in its low four bits, 16 + i in the high
 *
 *         A head of 16, 48, 80 ... ends in half a group; the other half is not read as K, and 0 as V.
 */
#pragma once
#include "base/core/bits.h"

#define KV_BLOCK 16
#define KV_HEAD_DIM_MAX 576 /* sizes the scratch of attention; a multiple of KV_GROUP */
#define KV_PART_ALIGN 4096  /* a page of the system's memory */
#define KV_GROUP 32         /* values of d with one scale */
#define KV_GROUPS_MAX (KV_HEAD_DIM_MAX / KV_GROUP)

/* How K and V are stored. Engines compare these numbers (kv_wire.h). */
enum kv_type { KV_F16, KV_F32, KV_Q8, KV_Q4, KV_TYPE_COUNT };

struct kv_layout {
    enum kv_type type;
    uint32_t n_layers, n_kv_heads, head_dim, page_tokens;
    uint32_t latent; /* so many elements of K are V; 0: V is as wide as K and stored behind it */
    uint32_t window_layers; /* the last so many are a part of their own; 0: a page has one part */
};

/* Returns the elements of V. */
static inline uint32_t kv_value_dim(const struct kv_layout *l)
{
    return l->latent > 0 ? l->latent : l->head_dim;
}

/* Returns the bytes of an element of a type without scales. */
static inline size_t kv_element_bytes(enum kv_type type)
{
    return type == KV_F16 ? 2 : 4;
}

/* Returns the elements that share a scale. */
static inline uint32_t kv_group_dim(const struct kv_layout *l)
{
    return l->type == KV_Q8 && l->latent == 0 ? l->head_dim : KV_GROUP;
}

/* Returns the scales of a head and token; 0: elements are floats. */
static inline uint32_t kv_groups(const struct kv_layout *l)
{
    if (l->type != KV_Q8 && l->type != KV_Q4) return 0;
    return ceil_div_u32(l->head_dim, kv_group_dim(l));
}

/* Returns the bytes of elements or codes of K, or of V, of one block of one head. The scales of its
 * groups lie behind them. */
static inline size_t kv_code_bytes(const struct kv_layout *l)
{
    if (l->type == KV_Q4) return (size_t)kv_groups(l) * KV_GROUP / 2 * KV_BLOCK;
    return KV_BLOCK * l->head_dim * (l->type == KV_Q8 ? 1 : kv_element_bytes(l->type));
}

/* Returns the bytes of K, or of V, of one block of one head. */
static inline size_t kv_block_bytes(const struct kv_layout *l)
{
    return kv_code_bytes(l) + (size_t)kv_groups(l) * KV_BLOCK * sizeof(uint16_t);
}

/* Returns the bytes of all K, or all V, of one head of one layer in a page. */
static inline size_t kv_half_bytes(const struct kv_layout *l)
{
    return l->page_tokens / KV_BLOCK * kv_block_bytes(l);
}

/* Returns the bytes of one head of one layer in a page. */
static inline size_t kv_head_bytes(const struct kv_layout *l)
{
    return (l->latent > 0 ? 1 : 2) * kv_half_bytes(l);
}

/* Returns the bytes of so many layers, aligned as a part of a page is. */
static inline size_t kv_part_bytes(const struct kv_layout *l, uint32_t layers)
{
    const size_t bytes = (size_t)layers * l->n_kv_heads * kv_head_bytes(l);
    return l->window_layers == 0 ? bytes
                                 : (bytes + KV_PART_ALIGN - 1) / KV_PART_ALIGN * KV_PART_ALIGN;
}

/* Returns the bytes of the part of layers that see all positions, behind which that of the others lies. */
static inline size_t kv_full_bytes(const struct kv_layout *l)
{
    return kv_part_bytes(l, l->n_layers - l->window_layers);
}

static inline size_t kv_page_bytes(const struct kv_layout *l)
{
    return kv_full_bytes(l) + kv_part_bytes(l, l->window_layers);
}

/* Returns the offset in a page of the K of (layer, head), the layer by its place; its V lies kv_half_bytes behind, if
 * it is stored. */
static inline size_t kv_head_offset(const struct kv_layout *l, uint32_t layer, uint32_t head)
{
    const uint32_t full = l->n_layers - l->window_layers;
    const size_t part = layer < full ? 0 : kv_full_bytes(l);
    return part + ((size_t)(layer < full ? layer : layer - full) * l->n_kv_heads + head) *
                      kv_head_bytes(l);
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
