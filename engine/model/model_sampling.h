/* model_sampling.h - reads the sampling parameters that a model's makers recommend.
 *
 * Layer:   engine/model (base/wire, base/core)
 * Threads: pure
 * Source:  temperature, top_p, top_k, min_p and repetition_penalty of generation_config.json; the keys
 *          general.sampling.* of GGUF. Other members are passed over, do_sample too: a request that names a
 *          temperature samples at it
 * Trust:   none: a number outside the range that requests have is refused
 */
#pragma once
#include "base/wire/sampling.h"
#include "engine/files/gguf.h"

#define MODEL_SAMPLING_TEXT 160

/* Read the defaults; what is not there stays in ret->unnamed. The sentence names file and member. */
int model_sampling_gguf(const struct gguf *g, struct sampling *ret, struct err *err);
int model_sampling_folder(const char *folder, struct sampling *ret, struct err *err);

/* Writes "temperature:0.6,top_k:20", or "none", for a log line. */
void model_sampling_text(const struct sampling *s, char ret[MODEL_SAMPLING_TEXT]);
