/* features.h - what the length predictor may know of a request, read off its text.
 *
 * Layer:   router (base/core, base/wire)
 * Threads: pure
 */
#pragma once
#include "base/wire/openai.h"
#include "policies/predict.h"

#define FEATURE_ASK_WORDS 3     /* words of the question that name its kind: "List five animals" */
#define FEATURE_PREFIX_BYTES 96 /* of the prompt's beginning, where no block key is known */

/* All fields but prompt_tokens and output_max, which the caller knows. */
void features_of(const struct openai_request *api, struct str tenant, struct predict_features *ret);
