/* gguf_write.h - writes a GGUF v3 file front to back: values and tensor table first, then the data in
 * pieces of any size, so that files larger than memory can be made.
 *
 * Layer:    engine/files (engine/kernels for the tensor types, base/core)
 * Order:    put values and tensors, gguf_writer_begin, gguf_writer_data for all tensors in the order
 *           of the table, gguf_writer_finish
 * Lifetime: the file is PATH.partial until gguf_writer_finish renames it, and is removed if the
 *           writer is freed before that
 * Errors:   those of puts are kept and returned by gguf_writer_begin
 */
#pragma once
#include "engine/files/gguf.h"

#define GGUF_QUANT_VERSION 2u /* of general.quantization_version */

struct gguf_writer;

int gguf_writer_new(const char *path, struct gguf_writer **ret, struct err *err);
void gguf_writer_free(struct gguf_writer *w);
CLEANUP_FREEP(gguf_writer, struct gguf_writer)

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_str(struct gguf_writer *w, const char *key, struct str value);
void gguf_put_value(struct gguf_writer *w, const struct gguf_value *v); /* as it was read */

/* Adds a tensor of `dims`, fastest first. `name` is at most GGUF_NAME_BYTES_MAX long. */
void gguf_put_tensor(struct gguf_writer *w, struct str name, uint32_t n_dims, const uint64_t *dims,
                     enum weight_type_id type);

/* Writes all before the data. Returns the bytes of all tensors in *ret_bytes (may be NULL). */
int gguf_writer_begin(struct gguf_writer *w, uint64_t *ret_bytes, struct err *err);

/* Appends bytes of the tensors; padding between them is the writer's. */
int gguf_writer_data(struct gguf_writer *w, const void *data, size_t len, struct err *err);

/* Syncs the file and gives it its name. All tensors must be whole. */
int gguf_writer_finish(struct gguf_writer *w, struct err *err);
