/* trace_context.h - reads and writes the headers of W3C Trace Context, and decides which traces are kept.
 *
 * Layer:  base/core (libc)
 * Source: W3C Trace Context, level 1 (Recommendation of 23 November 2021)
 * Rules:  (1) a header that is not exactly as the specification says is refused whole; without a valid
 *             traceparent there is no tracestate
 *         (2) of the flags only `sampled` is known; others are passed on as zero
 *         (3) whether a trace is taken depends on its id alone, so that all processes with one ratio take
 *             the same traces
 */
#pragma once
#include "base/core/err.h"
#include "base/core/rng.h"
#include "base/core/str.h"

#define TRACE_ID_BYTES 16
#define SPAN_ID_BYTES 8
#define TRACE_ID_HEX (2 * TRACE_ID_BYTES)
#define SPAN_ID_HEX (2 * SPAN_ID_BYTES)
#define TRACE_PARENT_BYTES 55     /* 00-<32>-<16>-<2> */
#define TRACE_STATE_BYTES_MAX 512 /* passed on; the specification's least */
#define TRACE_STATE_MEMBERS_MAX 32

struct trace_context {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t span_id[SPAN_ID_BYTES];
    bool sampled;
};

/* Reads a traceparent. -EINVAL: it is to be ignored. */
int trace_parent_read(struct str header, struct trace_context *ret);
void trace_parent_print(const struct trace_context *c, char ret[TRACE_PARENT_BYTES + 1]);

/* Joins the tracestate headers of a request into one list, in their order. Of a list above
 * TRACE_STATE_BYTES_MAX members above 128 bytes go first, then the last ones. -EINVAL: one member is
 * malformed, there are more than TRACE_STATE_MEMBERS_MAX, or a key comes twice: the list is to be ignored. */
int trace_state_join(const struct str *headers, uint32_t count,
                     char ret[TRACE_STATE_BYTES_MAX + 1]);

/* Draw ids that are not zero. */
void trace_id_draw(struct rng *rng, uint8_t ret[TRACE_ID_BYTES]);
void span_id_draw(struct rng *rng, uint8_t ret[SPAN_ID_BYTES]);

void trace_hex(const uint8_t *bytes, size_t count, char *ret); /* 2 * count digits and a NUL */

/* ---- sampling ---- */

/* The samplers of OpenTelemetry: always_on, always_off, traceidratio, and those with parentbased_ before
 * them, which do as the caller did and decide only where there is no caller. */
struct trace_sampler {
    bool parent_based;
    double ratio; /* of the traces without a caller, or of all; 0: none, 1: all */
};

/* -EINVAL with a sentence that lists the names. `ratio` is used by the ratio samplers alone. */
int trace_sampler_make(struct str name, double ratio, struct trace_sampler *ret, struct err *err);

/* `parent` NULL: the trace begins here. */
bool trace_sampler_takes(const struct trace_sampler *s, const struct trace_context *parent,
                         const uint8_t trace_id[TRACE_ID_BYTES]);

/* A bound on spans a second, which saves up at most one second's worth. */
struct trace_budget {
    double per_s, saved;
    int64_t at_us;
};

/* Takes `spans` if so many are saved; else takes none and returns false. */
bool trace_budget_take(struct trace_budget *b, uint32_t spans, int64_t now_us);
/* Takes more spans than were asked for: what is saved may become negative. */
void trace_budget_owe(struct trace_budget *b, uint32_t spans);
