/* ended.h - the flight recorder: what became of the requests that ended last, for people who ask by id.
 *
 * Layer:    router
 * Threads:  put belongs to the decision thread; render may be called by any
 * Lifetime: embedded in struct decide; its thread has ended before fini
 * Bound:    ENDED_MAX requests; the oldest goes first. Times, counts and names only: no text
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/trace_context.h"
#include "base/io/loop/lock.h"
#include "router/core/dispatch.h"

#define ENDED_MAX 2048
#define ENDED_ID_BYTES 65 /* as REQUEST_ID_MAX, NUL included */

struct ended_request {
    char id[ENDED_ID_BYTES];
    char trace_id[TRACE_ID_HEX + 1]; /* "": it has no trace */
    char service[DISPATCH_NAME_MAX], tenant[DISPATCH_NAME_MAX], instance[DISPATCH_NAME_MAX];
    const char *ended;                /* static: answered, cut: why, failed, refused */
    int64_t ended_us;                 /* a date */
    bool held;                        /* waited for an instance before it was sent */
    int64_t ttft_us, tpot_us, e2e_us; /* 0: not measured */
    uint32_t attempts;                /* engines that it was sent to */
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    uint32_t hit_tokens;                 /* believed to be cached where it went */
    double predicted_p50, predicted_p90; /* output tokens */
    double estimate_s;                   /* of the TTFT, by the routing policy; < 0: none */
    uint64_t decision;                   /* number of the routing decision, as in router.record */
};

struct ended_requests {
    struct lock lock;
    struct ended_request *request; /* ENDED_MAX */
    uint32_t first, count;
};

int ended_init(struct ended_requests *f); /* -ENOMEM */
void ended_fini(struct ended_requests *f);
void ended_put(struct ended_requests *f, const struct ended_request *one);

/* Appends {"request":{..}} for the last request of this id. -ENOENT. */
int ended_render(struct ended_requests *f, struct str id, struct buf *out);
