/* op.h - lists the operations of a model as a table of functions: one entry an instruction set.
 *
 * Layer:    engine/kernels (base/core)
 * Threads:  all operations are pure functions of their arguments; threads share nothing but
 *           what they are given
 * Equality: within an entry of the table, an output element is computed by the same operations in
 *           the same order whatever else is computed in the same call: the number of tokens, the
 *           split into calls and the pages do not matter. op_ref is the truth that the other
 *           entries are tested against (they round differently); it also runs on a processor for
 *           which there is no entry.
 * Strides:  in floats. A row of activations of n values is activation_stride(n) long: padded to
 *           whole vectors, and shifted so that rows of a power of two do not fall into the same
 *           cache sets.
 */
#pragma once
#include "engine/kernels/kv_layout.h"
#include "engine/kernels/q8.h"

#include <stdbool.h>

#define ATTEND_ROWS_MAX 12 /* of any entry of the table: what fits the registers of AVX-512 */

static inline size_t activation_stride(uint32_t n)
{
    return (size_t)ceil_div_u32(n, TILE_ROWS) * TILE_ROWS + TILE_ROWS;
}

/* y[t][r] = sum over k of w[r][k] * x[t][k] (+ y[t][r] when `accumulate`). Rows of y are written
 * in whole tiles. */
struct gemm {
    const struct weight *w;
    const float *x;
    size_t x_stride;
    /* x rounded by ops.q8_round, rows q8_row_bytes(w->cols) apart, aligned to 64. Read instead of x if
     * q8_types of the ops has the type of w. */
    const struct q8_super *x_q8;
    /* x rounded by ops.bf16_round, as far apart. Read instead of x by products with BF16 weights, which round
     * themselves if it is NULL, with the same bits. */
    const uint16_t *x_bf16;
    float *y;
    size_t y_stride;
    uint32_t tokens;
    bool accumulate;
};

/* Softmax attention of some rows of queries over the keys of one KV head. Row r stands for the
 * query at `position` + r / group, query head r % group of this KV head's group; it sees the
 * positions up to its own, with a window the last `window` of these. A cap holds scores within
 * -cap .. cap: s = cap * tanh(s / cap). A sink is a score without a key: its weight takes part in
 * the softmax, and no value comes with it. Rows row_first .. row_first + row_count are computed. */
struct attend {
    const struct kv_layout *layout;
    char *head; /* this layer's and head's K in page 0 */
    size_t page_bytes;
    const uint32_t *page_table;
    const float *q; /* of row 0: q + (r / group) * q_stride + (r % group) * head_dim */
    size_t q_stride;
    float *out; /* of row r: out + (r / group) * out_stride + (r % group) * out_head */
    size_t out_stride, out_head;
    uint32_t group;
    uint32_t position;
    uint32_t row_first, row_count; /* row_count <= attend_rows of the ops */
    float scale;
    uint32_t window;    /* 0: all positions */
    float cap;          /* 0: none */
    const float *sinks; /* one for each query head of the group; NULL: none */
};

/* The constants of GATE_CLAMPED; the names are those of gpt-oss' model card. */
#define GATE_LIMIT 7.0f
#define GATE_ALPHA 1.702f

struct ops {
    const char *name; /* as in --kernels */
    /* Changes whenever a result of this entry may change; entries with one id agree bit for bit. */
    const char *numerics;
    const char *about;
    bool (*supported)(void);
    /* Products with BF16 weights round x to BF16: `numerics` and this name their bits. NULL: they do not round. */
    const char *bf16;
    uint32_t q8_types; /* bit i: products with weight type i want x rounded to int8, see q8.h */

    /* As q8_round of q8.h, with the same bits; NULL if q8_types is 0. */
    void (*q8_round)(const float *x, uint32_t cols, struct q8_super *ret);

    /* Rounds to nearest, ties to even; columns up to a multiple of 32 become 0. NULL: no product reads x_bf16. */
    void (*bf16_round)(const float *x, uint32_t cols, uint16_t *ret);

    /* Computes tiles [tile_first, tile_first + tile_count) of all tokens. `scratch`:
     * OP_SCRATCH_BYTES, aligned to 64, of the calling thread. */
    void (*gemm)(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);

    /* y = x / sqrt(mean(x^2) + eps) * w */
    void (*rms_norm)(const float *x, const float *w, float eps, uint32_t n, float *y);

    /* Rotates the pairs (x[2i], x[2i+1]), i < pairs, of each head by the angles whose cosine and
     * sine are cos[i] and sin[i]; the rest of a head stays. */
    void (*rope)(float *x, uint32_t heads, uint32_t head_dim, const float *cos, const float *sin,
                 uint32_t pairs);

    /* gate = silu(gate) * up; n is a multiple of TILE_ROWS */
    void (*silu_mul)(float *gate, const float *up, uint32_t n);

    /* gate = gelu(gate) * up, gelu by its tanh form (Hendrycks and Gimpel 2016); n as above */
    void (*gelu_mul)(float *gate, const float *up, uint32_t n);

    /* g = min(gate, GATE_LIMIT), u = up held within -GATE_LIMIT .. GATE_LIMIT;
     * gate = g * sigmoid(GATE_ALPHA * g) * (u + 1); n as above */
    void (*clamped_mul)(float *gate, const float *up, uint32_t n);

    /* x = cap * tanh(x / cap); n as above, cap above 0 */
    void (*soft_cap)(float *x, float cap, uint32_t n);

    /* Rounds K and V of one token and head to the storage type, at `lane` (position % 16) of
     * the given blocks. Of a latent layout v and v_block are not read. */
    void (*kv_put)(const struct kv_layout *layout, const float *k, const float *v, uint32_t lane,
                   char *k_block, char *v_block);

    uint32_t attend_rows; /* the most that one call of attend takes */
    void (*attend)(const struct attend *a, void *scratch);
};

/* Scratch of each thread: the unpacked panels of gemm (32 rows x 256 of F32), or op_ref's row;
 * attention's queries, scores and outputs. */
#define OP_SCRATCH_BYTES ((size_t)256 << 10)
#define OP_COLS_MAX (OP_SCRATCH_BYTES / sizeof(float)) /* op_ref keeps a row of a matrix there */

extern const struct ops op_ref;
#ifdef MUSTER_X86
extern const struct ops op_avx2;
extern const struct ops op_avx2_vnni;
extern const struct ops op_avx512;
extern const struct ops op_avx512_vnni;
extern const struct ops op_avx512_bf16;
extern const struct ops op_amx;
#endif

#ifdef MUSTER_NEON
extern const struct ops op_neon;
extern const struct ops op_neon_dotprod;
#endif

/* Returns true if a product with weights of this type reads x_q8. */
static inline bool ops_round(const struct ops *o, enum weight_type_id type)
{
    return o->q8_types >> type & 1;
}

/* Best first; NULL behind the last. op_ref is always there and always supported. */
extern const struct ops *const ops_table[];

const struct ops *ops_best(void);
const struct ops *ops_find(struct str name); /* NULL: no such entry; does not ask supported() */

/* Return true if this processor can run the entry of that name. */

bool op_avx2_supported(void);
bool op_avx2_vnni_supported(void);
bool op_avx512_supported(void);
bool op_avx512_vnni_supported(void);
bool op_avx512_bf16_supported(void);
bool op_neon_supported(void);
bool op_neon_dotprod_supported(void);
bool op_amx_supported(void); /* asks the kernel for the tiles' registers, once for the process */
