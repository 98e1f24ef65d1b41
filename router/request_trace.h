/* request_trace.h - keeps what a request's trace tells, and writes its spans when the request ends.
 *
 * Layer:    router (base/io/trace)
 * Threads:  the byte loop's, but for struct route_told, which the decision thread mails with a target
 * Lifetime: a record is taken from the byte loop's pool for a request that the sampler takes, or that may be
 *           taken at its end; request_release gives it back
 * Bound:    TRACE_LEGS_MAX legs have spans; of further ones only their number is told
 *
 *     request (SERVER)
 *      ├─ route            from the question to the decision thread to its answer
 *      ├─ attempt (CLIENT) the call to the engine; the parent of the engine's own spans
 *      │   ├─ queue_prefill   only where the engine makes no spans, or died: what the stream showed
 *      │   └─ decode
 *      └─ route, attempt ...  of the next leg
 */
#pragma once
#include "base/io/trace/tracer.h"
#include "router/core/failure.h"
#include "router/target.h"

#define TRACE_LEGS_MAX 8
#define TRACE_REQUEST_SPANS 5 /* of a request with one leg; promised when it begins */

struct request;
struct byte_loop;

/* Holds the decision thread's part of a leg's trace. Fields are zero where the request is not traced. */
struct route_told {
    const char *policy;  /* static; NULL: not decided by one, as after a handoff */
    uint32_t candidates; /* instances that the policy saw */
    uint64_t decision;   /* its number, as in router.record */
    double estimate_s;   /* predicted TTFT; < 0: none */
    double runner_up_s;  /* of the second best; < 0: none */
    int64_t held_us;     /* since when it was held, on the monotonic clock; 0: it was not */
};

struct trace_leg {
    uint8_t route_id[SPAN_ID_BYTES], attempt_id[SPAN_ID_BYTES];
    /* On the monotonic clock; 0: it did not come to that. */
    int64_t asked_us, told_us, sent_us, first_us, last_us, ended_us;
    struct route_told told;
    char instance[DISPATCH_NAME_MAX], host[TARGET_HOST_MAX], kv_from[DISPATCH_NAME_MAX];
    uint16_t port;
    enum engine_kind kind;
    double length_p50, length_p90, length_mean;
    uint32_t hit_tokens, generated_from, generated;
    const char *end;   /* static: how it ended; NULL: it runs */
    bool failed;       /* `end` names a failure */
    bool engine_tells; /* the engine makes spans of its own */
};

struct request_trace {
    struct trace_passed passed; /* of the calls: its span is the running attempt's */
    uint8_t root_id[SPAN_ID_BYTES], parent_id[SPAN_ID_BYTES];
    bool has_parent, sampled;
    int64_t to_date_us; /* what is added to the monotonic clock */
    struct trace_leg leg[TRACE_LEGS_MAX];
    uint32_t leg_count, legs_left_out;
    struct trace_leg *now; /* the running leg; NULL: none, or left out */
};

/* Reads the client's headers and decides. Before the first mail. */
void request_trace_begin(struct request *r, const struct http_request *req);

/* The steps of a leg. All do nothing without a record. */
void request_trace_asked(struct request *r);
void request_trace_told(struct request *r, const struct route_told *told);
void request_trace_head(struct request *r, const struct http_response *head);
void request_trace_tokens(struct request *r, uint32_t count);
void request_trace_leg_over(struct request *r, const char *how, bool failed);
void request_trace_moved(struct request *r); /* migrated: the next leg begins at client.target */

/* Notes that the call is made, and returns how many headers pass the trace on. */
uint32_t request_trace_call(struct request *r, struct trace_headers_text *text,
                            struct http_header ret[TRACE_HEADER_COUNT]);

/* Decides late, and sends the spans. Sets client.outcome.traced. */
void request_trace_over(struct request *r);
void request_trace_release(struct request *r);

/* Returns the trace's id for a log line: "-" where the request is not sampled. Any thread. */
const char *request_trace_text(const struct request *r);
