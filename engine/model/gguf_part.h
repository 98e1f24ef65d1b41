/* gguf_part.h - what the files of the GGUF reader share; of no use outside of it.
 *
 *     gguf.c        the pass over the file: header, tensor table, and gguf_parse
 *     gguf_values.c metadata: read into values, found by key
 *     gguf_cursor.c numbers and strings, through a window over the source
 *     gguf_file.c   a file as a source
 *
 * Layer:  engine/model, private to gguf*.c
 * Errors: every gguf_take* is -EINVAL with a sentence when the file ends too early, or returns
 *         what the source's read returned; `what` is the sentence's subject
 */
#pragma once
#include "base/core/arena.h"
#include "engine/model/gguf.h"

enum { GGUF_WINDOW_BYTES = 64 << 10 };

struct gguf_cursor {
    const struct gguf_source *source;
    struct arena *arena; /* where strings, values and tensors go */
    struct err *err;
    uint64_t pos;
    uint64_t window_start;
    size_t window_len;
    char window[GGUF_WINDOW_BYTES];
};

static inline uint64_t gguf_bytes_left(const struct gguf_cursor *c)
{
    return c->source->bytes - c->pos;
}

int gguf_take(struct gguf_cursor *c, void *data, size_t len, const char *what);
int gguf_take_u32(struct gguf_cursor *c, uint32_t *ret, const char *what);
int gguf_take_u64(struct gguf_cursor *c, uint64_t *ret, const char *what);

/* Into the arena, with a NUL behind it. -E2BIG: more than `max` bytes. */
int gguf_take_string(struct gguf_cursor *c, size_t max, struct str *ret, const char *what);

/* All `count` values, into g->values, sorted. */
int gguf_take_values(struct gguf_cursor *c, struct gguf *g, uint64_t count);

/* general.alignment of the values, or its default. */
int gguf_alignment(const struct gguf *g, uint32_t *ret, struct err *err);
