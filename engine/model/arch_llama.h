/* arch_llama.h - what a Llama's file gives, for its steps.
 *
 * Layer:    engine/model, private to arch_llama.c and arch_llama_load.c
 * Lifetime: in the model's arena
 */
#pragma once
#include "engine/model/arch.h"

struct llama_layer {
    const float *attn_norm, *ffn_norm;
    struct weight q, k, v, out, gate, up, down;
};

struct llama {
    struct weight embedding, output;
    const float *output_norm;
    struct llama_layer *layers;
    float eps;
    float scale;        /* of scores: 1 / sqrt(head_dim) */
    uint32_t pairs;     /* of a head that are rotated */
    double *angle_step; /* radians a position, of each pair */
};

int llama_load(struct loader *l, struct model *model, struct err *err);
