/* decoder.h - describes transformer decoders: one body, with features that a description switches.
 *
 *     x  = embedding[id] * embedding_scale
 *     x += post(Wo attend(rope(norm(Wq n + bq)), rope(norm(Wk n + bk)), Wv n + bv) + bo)
 *     x += post(Wdown (act(Wgate n) * (Wup n)))      or the sum of some experts' outputs
 *     logits = cap(Wout (rms_norm(x) * output_norm))
 *
 * with n = rms_norm(x) * weight before each half. latent.h has another way of attention. What an architecture lacks
 * is NULL or 0 here.
 *
 * Layer:    engine/model
 * Lifetime: all of it lives in the model's arena and its mapping of weights
 * Rows:     of Wq and Wk are in the order in which RoPE turns adjacent pairs (2i, 2i + 1). Files
 *           whose RoPE turns halves (i, i + pairs) are reordered while they are packed, with biases
 *           and norms of the same heads: a product of query and key stays what it was
 */
#pragma once
#include "engine/model/arch.h"

#define DECODER_ROPES 2   /* ways to turn positions in one model: of global and of local layers */
#define DECODER_NO_ROPE 2 /* of a layer: positions are not turned */
#define DECODER_HEADS_MAX 4096u
#define DECODER_EXPERTS_MAX 1024u
#define DECODER_EXPERTS_USED_MAX 64u

/* Angles of one way to turn positions. */
struct decoder_rope {
    double *angle_step; /* radians a position, of each pair */
    double magnitude;   /* of cosine and sine: 1, or the attention factor of YaRN and LongRoPE */
};

/* The token that a row of activations stands for. After the last layer's keys and values only the
 * rows that end in logits are left. */
struct decoder_row {
    uint32_t item;
    uint32_t token; /* its index in the step, finds its angles */
    uint32_t position;
    uint32_t id;
};

/* The sizes of latent attention; kv_rank is 0 where there is none. */
struct decoder_latent_shape {
    uint32_t q_rank;        /* 0: queries are made of n at once */
    uint32_t kv_rank;       /* of c */
    uint32_t plain, turned; /* of a head's query: what is absorbed, what RoPE turns */
    uint32_t value;         /* of a head's value */
};

struct decoder_latent {
    struct weight q_a, kv_a; /* queries of heads are those of struct decoder_layer's q */
    const float *q_norm, *kv_norm;
    struct weight *k_b, *v_b; /* one for each head: [kv_rank][plain], [value][kv_rank] */
};

/* How the numbers of a router become choice and weights, see experts.h. */
struct decoder_router {
    bool sigmoid;                 /* of each number; else softmax */
    bool plain;                   /* weights of the chosen are not divided by their sum */
    float scale;                  /* of weights; 0: 1 */
    uint32_t groups, groups_used; /* experts are chosen from the best groups; 0: from all */
};

/* Feed-forward networks of which a router chooses some for each token. */
struct decoder_experts {
    struct weight router;            /* [experts][width] */
    struct weight *gate, *up, *down; /* one for each expert; NULL: the layer has no experts */
    const float *router_bias;
    const float *choice_bias;                     /* takes part in the choice, not in the weights */
    const float *gate_bias, *up_bias, *down_bias; /* [experts][rows] */
};

struct decoder_layer {
    const float *attn_norm, *ffn_norm;
    const float *attn_post_norm, *ffn_post_norm;
    const float *q_norm, *k_norm; /* of each head */
    const float *q_bias, *k_bias, *v_bias, *out_bias;
    const float *sinks; /* of each query head */
    struct weight q, k, v, out;
    struct decoder_latent latent;
    /* Of a layer with experts: those that all tokens have. No rows: there are none. */
    struct weight gate, up, down;
    struct decoder_experts experts;
    uint32_t window;   /* positions that a query sees, with its own; 0: all */
    uint32_t kv_place; /* as a layer of struct kv_layout: those that see all come first */
    uint32_t rope;     /* an index of decoder.rope, or DECODER_NO_ROPE */
};

struct decoder {
    const struct decoder_form *form;
    struct weight embedding, output;
    const float *output_norm;
    struct decoder_layer *layers;
    struct decoder_rope rope[DECODER_ROPES];
    uint32_t ropes;
    uint32_t pairs; /* of a head that are turned */
    float eps;
    float scale; /* of scores */
    float embedding_scale, attn_cap, logit_cap;
    uint32_t n_experts, experts_used, expert_ff;
    uint32_t dense_layers; /* the first ones, which have no experts */
    uint32_t shared_ff;    /* of the experts that all tokens have; 0: there are none */
    struct decoder_router router;
    struct decoder_latent_shape latent;
};

/* Describes the parts that an architecture's files always have. */
struct decoder_form {
    const struct key_rule *keys;
    size_t key_count;
    bool halves; /* RoPE turns (i, i + pairs) in the file's order of rows */
    bool qkv_bias;
    bool out_bias;
    bool qk_norm;
    bool fused;      /* q, k, v in one tensor, gate and up in another */
    bool long_rope;  /* two tensors of factors, for short and for long contexts */
    bool yarn_exact; /* YaRN's bounds are not rounded to whole dimensions */
    bool yarn_plain; /* YaRN does not multiply cosine and sine unless the file says by what */
    bool latent;     /* attention of latent.h */
    bool sinks;
    bool experts_bias;
    /* As attention.sliding_window_pattern, for files that do not say; 0: all layers. */
    uint32_t window_period;
    const char *ffn_norm; /* names of tensors of a layer */
    const char *attn_post_norm, *ffn_post_norm;
    enum { GATE_SILU, GATE_GELU, GATE_CLAMPED } gate;
    /* Sets what the keys say beyond the common ones, before tensors are read. Optional. */
    int (*adjust)(struct loader *l, struct decoder *d, struct model_info *info, struct err *err);
};

/* Keys that every architecture here reads or may pass over. */
/* clang-format off */
#define DECODER_KEYS                                                                               \
    { "vocab_size", KEY_READ },                                                                    \
    { "context_length", KEY_READ },                                                                \
    { "embedding_length", KEY_READ },                                                              \
    { "block_count", KEY_READ },                                                                   \
    { "feed_forward_length", KEY_READ },                                                           \
    { "attention.head_count", KEY_READ },                                                          \
    { "attention.head_count_kv", KEY_READ },                                                       \
    { "attention.key_length", KEY_READ },                                                          \
    { "attention.value_length", KEY_READ },                                                        \
    { "attention.layer_norm_rms_epsilon", KEY_READ },                                              \
    { "rope.dimension_count", KEY_READ },                                                          \
    { "rope.freq_base", KEY_READ },                                                                \
    { "rope.scaling.type", KEY_READ },                                                             \
    { "rope.scaling.factor", KEY_READ },                                                           \
    { "rope.scaling.original_context_length", KEY_READ },                                          \
    { "rope.scaling.attn_factor", KEY_READ },                                                      \
    { "rope.scaling.yarn_beta_fast", KEY_READ },                                                   \
    { "rope.scaling.yarn_beta_slow", KEY_READ },                                                   \
    { "pooling_type", KEY_READ },                                                                  \
    { "rope.scaling.finetuned", KEY_IGNORED },                                                     \
    { "tensor_data_layout", KEY_IGNORED }
/* clang-format on */

/* Reads keys and tensors into m->arch_model, which becomes a struct decoder. */
int decoder_load(struct loader *l, struct model *m, struct err *err);

/* Reads attention.sliding_window and, if there is one, attention.sliding_window_pattern, a period
 * or a list with one value a layer: of each `period` layers all but the last have the window; with
 * period 0 all have it. */
int decoder_windows(struct loader *l, struct decoder *d, const struct model_info *info,
                    struct err *err);

/* Returns true if a layer has the window. The list has a value for it; NULL: by the period. */
bool decoder_layer_has_window(const struct gguf_value *list, uint32_t period, uint32_t layer);

/* Reads expert_count, expert_used_count and, if `own_ff`, expert_feed_forward_length. */
int decoder_expert_keys(struct loader *l, struct decoder *d, const struct model_info *info,
                        bool own_ff, struct err *err);

/* Computes the angles of rope[index] with base `freq_base` and, if `scaled`, the scaling that the
 * keys say. rope[0] is read before form->adjust, which may add another. */
int decoder_rope_load(struct loader *l, struct decoder *d, const struct model_info *info,
                      uint32_t index, float freq_base, bool scaled, struct err *err);

/* Returns the operation that joins gate and up. */
typedef void (*decoder_gate_fn)(float *gate, const float *up, uint32_t n);
decoder_gate_fn decoder_gate(const struct decoder *d, const struct ops *ops);

/* The members of struct model_arch. */
int decoder_state_new(const struct model *m, uint32_t tokens_max, uint32_t seqs_max, void **ret);
void decoder_state_free(void *state);
void decoder_step(const struct model *m, void *state, const struct arch_step *step);

#define DECODER                                                                             \
    .load = decoder_load, .state_new = decoder_state_new, .state_free = decoder_state_free, \
    .step = decoder_step
