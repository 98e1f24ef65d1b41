/* roofline.h - computes seconds and watts of a step from the shape of the batch, the model and the hardware.
 *
 * Layer:   base/perf (base/core, libm)
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

/* Holds the terms that do not depend on the batch. Seconds are of one layer on one of the tp devices
 * unless noted; a name with token, pair or seq is multiplied by their number. */
struct roofline {
    double layers, tp;
    double weights_s;            /* reading weights that every token uses: attention, a dense ffn */
    double expert_s;             /* reading one expert; 0: a dense model */
    double experts, expert_miss; /* 1 - active/experts: chance that a token does not use one */
    double token_flop_s;         /* arithmetic of one token's matrices */
    double token_row_s;          /* norms, rotations, activations and sums of one token */
    double layer_s;              /* time of a layer's kernels beyond that */
    double kv_token_s;           /* reading one cached token for a decoding session */
    double pair_s;               /* a token of a long chunk attending to one token */
    double attn_s, attn_tile, attn_spare, attn_seq, attn_mixed; /* as in hardware.h */
    double head_s, head_token_s;     /* output matrix, whole model: reading it, one sampled token */
    double reduce_s, reduce_token_s; /* one all-reduce: least time, and for each token */
    double host_s, seq_s;            /* of a step, as in hardware.h */
    double kv_token_bytes, weight_bytes, kv_room_bytes; /* all tp devices together */
    double watts_idle, watts_max;                       /* all tp devices together */
    double tokens_validated_max;
    bool validated;
};

/* Computes the terms for `tp` devices that share each layer, at least 1. False, with *r unusable, when
 * the model cannot be split so: heads do not divide, or the devices have no link. */
bool roofline_init(struct roofline *r, const struct hardware *h, const struct model_spec *m,
                   uint32_t tp);

double roofline_step_s(const struct roofline *r, const struct perf_shape *shape);

/* Returns the seconds of a step at a device clock of `clock` times the full one, (0, 1]: arithmetic slows
 * down with it, memory does not. */
double roofline_step_clock_s(const struct roofline *r, const struct perf_shape *shape,
                             double clock);

/* Return the seconds of parts of one layer, divided as measured tables are: matrices and small kernels;
 * both kinds of attention; one all-reduce. */
double roofline_layer_s(const struct roofline *r, uint32_t tokens);
double roofline_attention_s(const struct roofline *r, const struct perf_shape *shape);
double roofline_reduce_s(const struct roofline *r, uint32_t tokens);

/* Divides the step's seconds by their cause; the parts sum to roofline_step_s. */
enum roofline_part {
    ROOFLINE_DENSE, /* matrices, small kernels, all-reduces */
    ROOFLINE_READ,  /* decode attention */
    ROOFLINE_PAIRS, /* attention of chunks */
    ROOFLINE_HOST,
    ROOFLINE_SEQS,
    ROOFLINE_PARTS
};
void roofline_parts(const struct roofline *r, const struct perf_shape *shape,
                    double ret[ROOFLINE_PARTS]);

/* Multiplies the time of each part by its factor. */
void roofline_scale(struct roofline *r, const double factor[ROOFLINE_PARTS]);

/* Returns the mean watts of all devices while the step runs; idle watts for an empty shape. */
double roofline_watts(const struct roofline *r, const struct perf_shape *shape, double clock);

/* Returns the KV capacity in tokens: 0.9 of the memory less weights, activations and the runtime's own
 * memory. 0: the model does not fit. */
uint64_t roofline_kv_tokens(const struct roofline *r);

/* The shape of a usual step, at which a linear surrogate is computed. */
struct roofline_point {
    uint32_t decoding_seqs;  /* at least 1 */
    uint32_t context_tokens; /* of each of them */
    uint32_t chunk_tokens;   /* of a prompt, in one step; at least 1 */
};
#define ROOFLINE_POINT_DEFAULT ((struct roofline_point){ 32, 1024, 512 })

/* Computes coefficients that agree with the roofline for a decode step without context and at the point. */
void roofline_linear(const struct roofline *r, struct roofline_point at, struct perf_coef *ret);

/* Returns false if estimates of this shape are extrapolated. */
bool roofline_range_ok(const struct roofline *r, const struct perf_shape *shape);

/* Computes coefficients that agree with step_s for a decode step without context and at the point: each
 * is the extra time of one more token or sequence there. samples is 0 and ratio_p90 is 1. */
void perf_surrogate(double (*step_s)(const void *state, const struct perf_shape *shape),
                    const void *state, struct roofline_point at, struct perf_coef *ret);
