/* call_trace.h - makes the spans of one generating request from the engine's own times.
 *
 * Layer:    engine/serve (base/io/trace)
 * Threads:  the loop's
 * Lifetime: from call_trace_begin to call_trace_over, which frees it
 *
 *     generate (SERVER)   from arrival to the end
 *      ├─ queue           to the first admission; a copy of K and V from a peer included
 *      ├─ prefill         to the first token
 *      └─ decode          to the last
 */
#pragma once
#include "base/io/trace/tracer.h"
#include "engine/serve/device.h"

#define TRACE_CALL_SPANS 4

struct call_trace;

struct call_trace_facts {
    struct str id, model;
    struct str operation;                 /* chat, text_completion */
    uint32_t prompt_tokens, begun_tokens; /* begun: generated elsewhere before */
    uint32_t max_tokens;
    int64_t arrival_us;
};

/* Reads the headers of a request and decides. NULL: it is not traced, or memory is short. `rng` is the
 * caller's. */
struct call_trace *call_trace_begin(struct tracer *t, const struct http_request *req,
                                    struct rng *rng, struct metrics *metrics, int64_t now_us);

/* Returns true if its spans will be sent whatever happens. */
bool call_trace_is_sampled(const struct call_trace *c);

/* Returns the trace's id for a log line; "-" for NULL, and for one that is not sampled. */
const char *call_trace_text(const struct call_trace *c);

/* Writes and sends the spans, if it is kept. `mail` NULL: the request ended before the device had it. */
void call_trace_over(struct call_trace *c, const struct call_trace_facts *facts,
                     const struct job_mail *mail, int64_t now_us);
