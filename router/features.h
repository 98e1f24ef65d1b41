/* features.h - what the length predictor may know of a request, read off its text.
 *
 * Layer:   router (base/core, base/wire)
 * Threads: pure
 */
#pragma once
#include "base/core/arena.h"
#include "base/wire/openai.h"
#include "policies/predict.h"

#define FEATURE_PREFIX_BYTES 96 /* of the prompt's beginning, where no block key is known */

/* What a router can feed: rows that need more are refused at start. */
#define FEATURES_HAVE \
    (PREDICT_TEXT | PREDICT_TENANT | PREDICT_PREVIOUS | PREDICT_GROUP | PREDICT_REPORTED)

/* All fields but output_max, which the caller knows. The text lives in the arena; without memory it
 * is empty. */
void features_of(const struct openai_request *api, struct str tenant, uint32_t prompt_tokens,
                 struct arena *arena, struct predict_features *ret);
