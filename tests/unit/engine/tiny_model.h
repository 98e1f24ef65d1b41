/* tiny_model.h - a whole model in half a megabyte: random llama, byte vocabulary, chat template.
 *
 * Its answers are noise, but the same noise for the same ids: enough for everything around it.
 */
#pragma once
#include <stdint.h>

#define TINY_CONTEXT 256
#define TINY_CONTEXT_LONG 4096 /* for streams that outlast what is tested beside them */

/* Writes it to memory and gives a path that children of this process can open too, as long as the
 * returned descriptor is open. */
int tiny_model_path(uint32_t context, char ret_path[64]);

/* The same with wide heads: K and V of a token take WIDE_KV_BYTES in F32, so that 512 tokens are
 * 8 MiB. */
#define WIDE_KV_BYTES 16384
int wide_model_path(char ret_path[64]);
