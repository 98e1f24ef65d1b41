/* seal.h - describes a model's files chunk by chunk, so that they can be fetched from several agents at once.
 *
 *     muster-seal 1
 *     model SHA256
 *     file SHA256 BYTES NAME      of each file; NAME is "-" where the model is one file
 *     chunk SHA256                of each SEAL_CHUNK_BYTES of the file before, the last may be shorter
 *
 * Layer: base/wire (base/core). Pure.
 * Trust: seal_read takes a seal only if the digests of its files make the model's, which the reader knows. Its sizes
 *        and chunks are claims of whoever wrote it until the file they describe has its digest
 *        (docs/decisions/0033-agents-give-each-other-weights.md)
 * Bound: SEAL_BYTES_MAX of text, SEAL_FILES_MAX files
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/hash.h"

#define SEAL_CHUNK_BYTES ((uint64_t)8 << 20)
#define SEAL_BYTES_MAX ((size_t)32 << 20) /* chunks of 3.7 TB */
#define SEAL_FILES_MAX 1024u
#define SEAL_NAME_BYTES_MAX 512u
#define SEAL_ONE_FILE "-"

struct seal_file {
    struct str name;
    uint64_t bytes;
    char sha256[SHA256_HEX + 1];
    uint8_t (*chunk)[SHA256_BYTES]; /* seal_chunks(bytes) of them */
};

struct seal {
    char sha256[SHA256_HEX + 1]; /* of the model */
    struct seal_file *file;      /* in the order of their names */
    uint32_t file_count;
};

static inline uint32_t seal_chunks(uint64_t bytes)
{
    return (uint32_t)((bytes + SEAL_CHUNK_BYTES - 1) / SEAL_CHUNK_BYTES);
}

/* Returns the bytes of a chunk of a file. */
static inline uint64_t seal_chunk_bytes(uint64_t bytes, uint32_t chunk)
{
    uint64_t from = chunk * SEAL_CHUNK_BYTES, left = bytes - from;
    return left < SEAL_CHUNK_BYTES ? left : SEAL_CHUNK_BYTES;
}

int seal_write(const struct seal *s, struct buf *out);

/* Reads a seal of the model; texts and chunks live in the arena. -EINVAL: malformed, or of another model; -E2BIG. */
int seal_read(struct str text, struct str sha256, struct arena *arena, struct seal *ret,
              struct err *err);
