/* roofline.h - seconds and watts of a step from the shape of the batch, the model, the hardware.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure functions; the struct holds no pointer and may be copied as bytes
 *
 *     struct roofline r;
 *     roofline_init(&r, hardware_find(STR("a100")), &spec, 1);
 *     roofline_step_s(&r, &shape)
 */
#pragma once
#include "base/perf/hardware.h"
#include "base/perf/model_spec.h"
#include "base/perf/perf.h"

/* Everything that does not depend on the batch, once. Seconds are of one layer on one of the tp
 * devices unless said; names end in what they are multiplied with. */
struct roofline {
    double layers, tp;
    double weights_s;            /* reading what every token reads: attention, a dense ffn */
    double expert_s;             /* reading one expert; 0: a dense model */
    double experts, expert_miss; /* 1 - active/experts: the chance that a token passes one by */
    double token_flop_s;         /* arithmetic of one token's matrices */
    double token_row_s;          /* its norms, rotations, activations, sums */
    double layer_s;              /* what its kernels take beside that */
    double kv_token_s;           /* reading one cached token for a decoding session */
    double pair_s;               /* a token of a long chunk attending to one token */
    double attn_s, attn_tile, attn_spare, attn_seq, attn_mixed; /* as hardware.h says */
    double head_s, head_token_s;     /* output matrix, whole model: reading, and a sampled token */
    double reduce_s, reduce_token_s; /* one all-reduce: least, and a token's */
    double host_s, seq_s;            /* of a step */
    double kv_token_bytes, weight_bytes, kv_room_bytes; /* all tp devices together */
    double watts_idle, watts_max;                       /* all tp devices together */
    double tokens_validated_max;
    bool validated;
};

/* tp: devices that share each layer, at least 1. False, and *r is not to be used, when the model
 * cannot be split so: heads do not divide, or the devices have no link. */
bool roofline_init(struct roofline *r, const struct hardware *h, const struct model_spec *m,
                   uint32_t tp);

double roofline_step_s(const struct roofline *r, const struct perf_shape *shape);

/* At `clock`, a share of the full one (0, 1]: arithmetic slows down with it, memory does not. */
double roofline_step_clock_s(const struct roofline *r, const struct perf_shape *shape,
                             double clock);

/* Its parts, as measured tables have them, each of one layer: matrices and small kernels; both
 * kinds of attention; one all-reduce. */
double roofline_layer_s(const struct roofline *r, uint32_t tokens);
double roofline_attention_s(const struct roofline *r, const struct perf_shape *shape);
double roofline_reduce_s(const struct roofline *r, uint32_t tokens);

/* The step's seconds by what they are spent on: they sum to roofline_step_s. */
enum roofline_part {
    ROOFLINE_DENSE, /* matrices, small kernels, all-reduces */
    ROOFLINE_READ,  /* attention of those that decode */
    ROOFLINE_PAIRS, /* attention of chunks */
    ROOFLINE_HOST,
    ROOFLINE_SEQS,
    ROOFLINE_PARTS
};
void roofline_parts(const struct roofline *r, const struct perf_shape *shape,
                    double ret[ROOFLINE_PARTS]);

/* Each part takes so many times as long from now on. */
void roofline_scale(struct roofline *r, const double factor[ROOFLINE_PARTS]);

/* Mean watts of all devices while the step runs. An empty shape: idle. */
double roofline_watts(const struct roofline *r, const struct perf_shape *shape, double clock);

/* KV capacity in tokens: 0.9 of the memory less weights, activations and what the runtime keeps.
 * 0: the model does not fit. */
uint64_t roofline_kv_tokens(const struct roofline *r);

/* The point that a linear surrogate is taken at: what usual steps look like. */
struct roofline_point {
    uint32_t decoding_seqs;  /* at least 1 */
    uint32_t context_tokens; /* of each of them */
    uint32_t chunk_tokens;   /* of a prompt, in one step; at least 1 */
};
#define ROOFLINE_POINT_DEFAULT ((struct roofline_point){ 32, 1024, 512 })

/* Coefficients that agree with the roofline for an empty-handed decode step and at the point. */
void roofline_linear(const struct roofline *r, struct roofline_point at, struct perf_coef *ret);

/* False: estimates of this shape are extrapolated. */
bool roofline_range_ok(const struct roofline *r, const struct perf_shape *shape);

/* Coefficients that agree with step_s for an empty-handed decode step and at the point: each is
 * the difference that one more of its kind makes there. samples and ratio_p90 are 0 and 1. */
void perf_surrogate(double (*step_s)(const void *state, const struct perf_shape *shape),
                    const void *state, struct roofline_point at, struct perf_coef *ret);
