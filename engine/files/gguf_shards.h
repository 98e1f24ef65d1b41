/* gguf_shards.h - opens a GGUF file, with all its shards if it is the first of several, as one file.
 *
 * Layer:    engine/files
 * Lifetime: gguf and source live until gguf_shards_free; the files stay open until then
 * Format:   NAME-00001-of-00003.gguf and its siblings; keys split.no (from 0), split.count and
 *           split.tensors.count. The first has the metadata, each has its part of the tensors
 * Offsets:  of tensors are places in `source`, which is the files one behind another
 * Trust:    none, as gguf.h: every shard is parsed and checked whole, and must belong to the others
 */
#pragma once
#include "engine/files/gguf.h"

#define GGUF_SHARDS_MAX 1024u

struct gguf_shards {
    const struct gguf *gguf;
    const struct gguf_source *source;
};

/* -EINVAL: a shard that is not the first, or that does not belong to the first, with a sentence that
 * names it; else as gguf_file_open and gguf_parse. `path` is borrowed until gguf_shards_free. */
int gguf_shards_open(const char *path, struct gguf_shards **ret, struct err *err);
void gguf_shards_free(struct gguf_shards *s);
CLEANUP_FREEP(gguf_shards, struct gguf_shards)
