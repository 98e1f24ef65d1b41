/* encoder.h - describes encoders of BERT's kind: every token of a text sees all of its tokens.
 *
 *     x = norm(word[id] + position[p] + type[t])
 *     x = norm(x + Wo attend(Wq x + bq, Wk x + bk, Wv x + bv) + bo)          in each layer
 *     x = norm(x + Wdown act(Wup x + bup) + bdown)
 *     score = out . act(Wdense x[0] + bdense) + bout                          with a head
 *
 * with norm = layer_norm, and attend over all tokens of the same text (Devlin et al. 2019). A form says what is
 * otherwise: norms before each half and one behind the last (ModernBERT), positions that RoPE turns instead of a
 * table, a feed-forward of two products, act(Wgate x) * (Wup x), layers whose tokens see only those nearby, no biases.
 *
 * Layer:    engine/model
 * Lifetime: all of it lives in the model's arena and its mapping of weights
 * Files:    RoBERTa's positions begin behind its padding token; GGUF files leave out the rows before, and
 *           so do folders (hf_encoder.h). Both kinds are one architecture here
 */
#pragma once
#include "engine/model/arch.h"

#define ENCODER_HEADS_MAX 4096u
#define ENCODER_TYPES_MAX 64u /* of tokens; files have one or two */

#define ENCODER_ROPES 2 /* of layers that see all tokens, and of those that see the near ones */

struct encoder_norm {
    /* Weight NULL: there is none. bias: of zeros where files have none. */
    const float *weight, *bias;
};

/* A product, with a bias unless that is NULL. */
struct encoder_linear {
    struct weight w;
    const float *bias;
};

struct encoder_layer {
    struct encoder_linear q, k, v, out, down;
    struct encoder_linear up;                /* of a fused gate: gate's rows, then those of up */
    struct encoder_linear gate;              /* no rows: none, or in `up` */
    struct encoder_norm attn_norm, ffn_norm; /* behind each half, or before it */
    uint32_t reach;                          /* tokens that a token sees on either side; 0: all */
    uint32_t rope;                           /* an index of encoder.angle_step */
};

/* Features that an architecture's files always have. */
struct encoder_form {
    const struct key_rule *keys;
    size_t key_count;
    bool positions;  /* a table of them; else RoPE turns halves (i, i + pairs) of each head */
    bool pre_norm;   /* norms stand before each half, and one behind the last layer */
    bool biased;     /* products have biases, and norms */
    bool norm_bias;  /* norms have biases in any case */
    bool fused;      /* q, k and v in one tensor */
    bool fused_gate; /* gate and up in one tensor */
    bool gated;      /* act(gate) * up, of `gate` and `up`; else act(up) */
    bool silu;       /* the gate's activation, where files do not say; else GELU */
    float freq_base; /* of RoPE, where files do not say */
    bool gelu_head;  /* the head's hidden layer has GELU and a norm; else tanh */
    /* Every so many layers, from the first on, see all tokens, where files have a window. */
    uint32_t period;
};

/* The head of a cross-encoder. */
struct encoder_head {
    struct encoder_linear dense; /* no rows: the state goes to the output as it is */
    struct encoder_norm norm;
    bool of_mean;     /* it judges the mean of all states, not the first token's */
    const float *out; /* n_embd; NULL: there is no head */
    float out_bias;
};

struct encoder {
    const struct encoder_form *form;
    struct weight words, positions, types; /* types: one row for each type of token */
    struct encoder_norm norm, last_norm;   /* of embeddings; behind the last layer */
    struct encoder_layer *layers;
    struct encoder_head head;
    double *angle_step[ENCODER_ROPES]; /* radians a position, of each pair of a head; NULL: none */
    const float *zeros;                /* as many as the wider of state and feed-forward */
    bool silu;                         /* a gate's activation; else GELU */
    float eps;
    float scale; /* of scores */
};

/* Keys that every encoder here reads or may pass over. */
/* clang-format off */
#define ENCODER_KEYS                                                                               \
    { "vocab_size", KEY_READ },                                                                    \
    { "context_length", KEY_READ },                                                                \
    { "embedding_length", KEY_READ },                                                              \
    { "block_count", KEY_READ },                                                                   \
    { "feed_forward_length", KEY_READ },                                                           \
    { "attention.head_count", KEY_READ },                                                          \
    { "attention.layer_norm_epsilon", KEY_READ },                                                  \
    { "attention.causal", KEY_ZERO },                                                              \
    { "pooling_type", KEY_READ },                                                                  \
    { "classifier.activation", KEY_READ },                                                         \
    { "classifier.output_labels", KEY_IGNORED },                                                   \
    { "tensor_data_layout", KEY_IGNORED }
/* clang-format on */

/* Reads what m->arch->encoder describes. */
int encoder_load(struct loader *l, struct model *m, struct err *err);

/* The members of struct model_arch. */
int encoder_state_new(const struct model *m, uint32_t tokens_max, uint32_t seqs_max, void **ret);
void encoder_state_free(void *state);
void encoder_step(const struct model *m, void *state, const struct arch_step *step);

#define ENCODER                                                                             \
    .load = encoder_load, .state_new = encoder_state_new, .state_free = encoder_state_free, \
    .step = encoder_step
