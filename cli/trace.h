/* trace.h - a recorded stream of requests: when each came, how long it was, what it shared.
 *
 * Layer:    cli (base/core, base/io)
 * Lifetime: the trace owns everything; read-only after trace_load
 * Formats:  Mooncake JSONL  {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}
 *                           each id names TRACE_MOONCAKE_BLOCK tokens of prefix
 *           Azure CSV       TIMESTAMP,ContextTokens,GeneratedTokens  (2023-11-16 18:15:46.6805900)
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

#define TRACE_FILE_BYTES_MAX ((size_t)512 << 20)
#define TRACE_REQUESTS_MAX 1000000
#define TRACE_IDS_MAX 64000000
#define TRACE_MOONCAKE_BLOCK 512

struct trace_request {
    int64_t at_us; /* since the first request; never falls */
    uint32_t input_tokens, output_tokens;
    const uint64_t *ids; /* prefix blocks; NULL when the trace has none */
    uint32_t id_count;
};

struct trace {
    struct trace_request *request;
    uint32_t count;
    uint64_t *ids;
    size_t id_count;
};

/* The format is told by the first byte. -EINVAL names the line; -E2BIG at a bound. */
int trace_load(const char *path, struct trace **ret, struct err *err);
void trace_free(struct trace *t);
CLEANUP_FREEP(trace, struct trace)
