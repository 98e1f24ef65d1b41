/* tiny_model.h - makes a whole model of half a megabyte: random llama, byte vocabulary, chat template.
 *
 * Its output is noise, but the same noise for the same ids, which suffices to test all around it.
 */
#pragma once
#include "base/core/buf.h"

#include <stdint.h>

#define TINY_CONTEXT 256
#define TINY_CONTEXT_LONG 4096 /* for streams longer than the test beside them */

/* Writes the model to memory; returns its descriptor, and a path that children of this process can
 * open too while the descriptor is open. */
int tiny_model_path(uint32_t context, char ret_path[64]);

/* Appends a GGUF file with an adapter of it: all matrices of both layers, random. */
#define TINY_ADAPTER_RANK 4
void tiny_adapter(uint64_t seed, struct buf *ret);

/* As tiny_model_path, with wide heads: K and V of a token take WIDE_KV_BYTES in F32, so 512 tokens take 8
 * MiB. */
#define WIDE_KV_BYTES 16384
int wide_model_path(char ret_path[64]);

/* The same with `layers` layers, of which the first alone adds anything: models of one seed give the
 * same logits, so that a small one is a draft model of a large one and always right. */
int layered_model_path(uint32_t layers, uint64_t seed, char ret_path[64]);

/* As tiny_model_path, with four layers and a window of `window` tokens: in all, or with `period` 2 in every other one.
 * The K and V of a page of 16 tokens take whole pages of the system's memory. */
int windowed_model_path(uint32_t window, uint32_t period, char ret_path[64]);
