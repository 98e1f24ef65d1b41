/* predict_looks.h - what the engine's predictor keeps of one output: the hidden states that it read.
 *
 * Layer: engine/serve (engine/model, policies)
 * Rules: (1) looks[0] is the prompt's end; of the later ones a uniform sample is kept, so that an
 *            output of any length takes the same memory
 */
#pragma once
#include "engine/model/model.h"
#include "policies/predict/predict.h"

#define PREDICT_LOOKS_MAX 9

struct predict_look {
    float hidden[MODEL_HIDDEN];
    uint32_t generated; /* output tokens that were there */
};

struct predict_looks {
    float now[MODEL_HIDDEN]; /* the step that runs writes here */
    struct predict_look look[PREDICT_LOOKS_MAX];
    uint32_t count, seen;
    struct predict_belief belief;
};
