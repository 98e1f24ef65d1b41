/* trace.h - holds the requests that the simulator replays, recorded or generated, and the features by which a
 * length predictor knows them.
 *
 * Layer:    simulator (policies, base/core)
 * Lifetime: the trace owns everything; read-only while runs use it. Features borrow the trace, which
 *           must outlive them
 * Rules:    (1) output_tokens is the truth: the world reads it, never a view
 *           (2) at_us never falls; requests of one tick keep the file's order
 *           (3) a text is parsed, never a path: files are opened by the caller
 *           (4) features have the truth for the oracles alone; other policies do not read it
 *           (5) a conversation's earlier output is known: it is in the prompt
 *
 * Where a trace names sessions, a request follows the session's previous turn. Where it has prefix blocks,
 * it follows the earlier prompt with the last whole block that lies deepest among its own blocks, from the
 * second on: the first may be a system prompt that unrelated requests share.
 *
 * Formats:  Azure CSV       TIMESTAMP,ContextTokens,GeneratedTokens
 *           Mooncake JSONL  {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}
 *           text JSONL      as Mooncake's, with "prompt" instead of ids
 *           Both JSONL forms may say "tenant", "service", "session", "turn", "group", "output_max".
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "policies/predict/predict.h"

#define TRACE_REQUESTS_MAX 4000000
#define TRACE_BLOCKS_MAX 200000000
#define TRACE_TEXT_BYTES_MAX ((size_t)1 << 30)
#define TRACE_SCALE_MAX 1000

/* The longest span of a replay, in which reports go on in quiet time too. */
#define TRACE_SPAN_S_MAX (366 * 86400.0)

#define TRACE_MOONCAKE_BLOCK 512 /* tokens of a block that a Mooncake hash id names */

struct trace_request {
    int64_t at_us;
    uint32_t prompt_tokens; /* at least 1 */
    uint32_t output_tokens; /* at least 1; hidden from every view */
    uint32_t output_max;    /* the request's own limit; 0: none */
    uint32_t tenant;        /* 0: the trace names none */
    uint32_t service;       /* index; 0 when there is one */
    uint32_t session, turn; /* 0: unknown */
    uint32_t group;         /* the task or system prompt; 0: the trace names none */
    size_t block_first;     /* into trace->block: its prefix, block_tokens each, the last in part */
    uint32_t block_count;   /* 0: the trace does not tell what prompts share */
    size_t text_first;      /* into trace->text */
    uint32_t text_bytes;    /* 0: no text */
};

struct trace {
    struct trace_request *request;
    uint32_t count;
    uint32_t block_tokens; /* 0 without blocks */
    uint64_t *block;
    size_t block_count;
    char *text;
    size_t text_bytes;
    bool has_tenants, has_sessions;
    size_t request_capacity, block_capacity, text_capacity; /* trace_append's own */
};

enum trace_format { TRACE_AUTO, TRACE_AZURE, TRACE_MOONCAKE, TRACE_TEXT, TRACE_FORMAT_COUNT };
extern const char *const trace_format_names[TRACE_FORMAT_COUNT + 1]; /* NULL ends them */

/* Parses a trace; times count from the first request. -EINVAL names the line; -E2BIG at a bound; -ENOMEM. */
int trace_parse(struct str text, enum trace_format format, struct trace **ret, struct err *err);
void trace_free(struct trace *t);

CLEANUP_FREEP(trace, struct trace)

/* Make an empty trace and append to it (generators set block_tokens themselves). block_first and
 * text_first of `r` are ignored: r->block_count ids at `blocks` and `text` are copied. -EINVAL: `r` has
 * no tokens, is earlier than the one before, or has more blocks than its prompt fills. */
int trace_new(struct trace **ret, struct err *err);

int trace_append(struct trace *t, const struct trace_request *r, const uint64_t *blocks,
                 struct str text, struct err *err);

/* Changes a trace in this order: keeps the first `requests_max` (0: all), superposes `scale` copies, each
 * shifted by k / scale of the span (wrapping round) and with blocks, tenants and sessions of its own (a
 * session that the wrap cuts becomes two), divides times by `speed`. */
int trace_shape(struct trace *t, uint32_t requests_max, uint32_t scale, double speed,
                struct err *err);

/* A trace's figures at a glance. */
struct trace_stats {
    double span_s, rate_s, prompt_mean, output_mean;
};

void trace_stats_get(const struct trace *t, struct trace_stats *ret);

struct trace_features {
    const struct trace *trace;
    uint32_t *previous; /* of each request: 1 + the index of the turn before; 0: none */
    uint32_t have;      /* bits of enum predict_need that some request has */
};

int trace_features_new(const struct trace *t, struct trace_features **ret, struct err *err);
void trace_features_free(struct trace_features *f);

CLEANUP_FREEP(trace_features, struct trace_features)

/* Fills a request's features. `prefix` is the caller's name of the first block; 0: the trace has none. */
void trace_features_of(const struct trace_features *f, uint32_t request, uint64_t prefix,
                       struct predict_features *ret);
