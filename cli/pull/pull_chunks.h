/* pull_chunks.h - fetches one large file in chunks, several at once: from agents that have it, else from its source.
 *
 * Layer: cli
 * Files: PATH.part, written in any order; PATH.part.map beside it, a byte for each chunk that is there, and
 *        PATH.part.source as pull_file.h has it
 * Trust: the file's own digest alone decides. An agent's seal says which chunks to take meanwhile; it is dropped, and
 *        with it the agent, when the source or the whole file contradicts it, and the next agent's is taken. Each
 *        round ends with one agent less, the last with the source alone (docs/decisions/0033)
 * Bound: PULL_ORIGIN_MAX calls to the source, PULL_SEED_CALLS_MAX to an agent, PULL_CALLS_MAX in all
 */
#pragma once
#include "cli/pull/pull_file.h"
#include "cli/pull/pull_seed.h"

#define PULL_ORIGIN_MAX 8u
#define PULL_SEED_CALLS_MAX 2u
#define PULL_CALLS_MAX 16u
#define PULL_CHUNKED_BYTES (2 * SEAL_CHUNK_BYTES) /* a file that is smaller comes in one piece */
/* The source knows no parts, or its file is another one: pull_file it. */
#define PULL_ONE_PIECE (-EOPNOTSUPP)

/* Fetches the file, whose size must be known. `seeds` NULL: from its source alone; `index` is the file's number in
 * their seals. The errors of pull_file, and PULL_ONE_PIECE: nothing of it stays. ret->chunk is allocated. */
int pull_chunks(struct pull_wire *w, const struct pull_file *file, struct pull_seeds *seeds,
                uint32_t index, struct pull_got *ret, struct err *err);

/* Returns true if an earlier command has left a part that this goes on with. */
bool pull_chunks_has_part(const char *path);
