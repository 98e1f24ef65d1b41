/* route.h - the interface of routing policies: which instance gets a request.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 * Rules:   (1) everything known comes in through (view, req, now_us, rng), everything decided
 *              goes out through the verdict
 *          (2) an instance with accepts == false never gets a request
 *          (3) absent is not zero: has_perf says whether `perf` means anything
 *          (4) equal estimates are broken by chance, so that routers with one view do not herd
 *
 * Units are seconds and tokens. The router fills the view from its own ledger and prefix index;
 * reports of the engines only correct it.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"
#include "policies/perf.h"

#define ROUTE_INSTANCES_MAX 256 /* instances one view can hold */
#define ROUTE_STATE_BYTES_MAX 8192
#define ROUTE_NONE UINT32_MAX

struct route_instance {
    uint32_t id;             /* the router's slot for the endpoint, < ROUTE_INSTANCES_MAX */
    uint64_t name_hash;      /* stable across restarts of the router; for consistent hashing */
    bool accepts;            /* ready, not draining, circuit closed */
    bool has_perf;           /* perf was reported or learned */
    struct perf_coef perf;   /* step-time model of this instance */
    uint32_t token_budget;   /* tokens one step may carry; at least 1 */
    uint32_t seqs_max;       /* sequences it runs at once; at least 1 */
    uint32_t in_flight;      /* requests sent and not ended */
    uint32_t decoding;       /* of those, past their first token */
    uint64_t kv_tokens;      /* tokens their sequences hold, for the read term of perf */
    uint64_t prefill_tokens; /* uncached prompt tokens sent and not yet computed */
    double slot_wait_s;      /* predicted seconds until a sequence slot is free; 0 when one is */
    uint32_t hit_tokens;     /* tokens of this request's prompt it should hold */
    double price_per_hour;
};

struct route_view {
    const struct route_instance *instance;
    uint32_t instance_count;
};

struct route_req {
    uint32_t prompt_tokens; /* at least 1 */
    uint64_t prefix_hash;   /* of the first blocks (or bytes) of the prompt, salted by tenant */
    double output_p50;      /* predicted output length */
    double output_p90;
};

struct route_verdict {
    uint32_t instance_id; /* ROUTE_NONE: no instance accepts; hold the request */
    double estimate_s;    /* predicted TTFT there; < 0 when the policy has no estimate */
    uint32_t runner_up_id;
    double runner_up_s;
};

struct route_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* where the rule comes from */
    uint32_t state_size; /* fixed, serialisable, at most ROUTE_STATE_BYTES_MAX; 0 for none */
    void (*decide)(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret);
};

extern const struct route_policy *const route_table[];
extern const uint32_t route_count;
#define ROUTE_DEFAULT "shortest_ttft"

const struct route_policy *route_find(struct str name); /* NULL when there is none */

/* What every row shares (route.c). */

/* Predicted seconds to this request's first token on `in`:
 *
 *     tokens = prefill_tokens queued + uncached part of the prompt
 *     steps  = ceil(tokens / token_budget)
 *     ttft   = slot_wait + steps * (a + c * decoding + d * kv_tokens) + b * tokens
 *
 * -1 when in->has_perf is false. */
double route_ttft_s(const struct route_instance *in, const struct route_req *req);

/* Hit tokens that can count: the index lags, so a claim may exceed prompt - 1. */
uint32_t route_hit_tokens(const struct route_instance *in, const struct route_req *req);

/* Keeps the least score seen, ties broken evenly by chance (reservoir of one), and the runner-up.
 * Start with ROUTE_BEST_INIT. */
struct route_best {
    uint32_t index;
    double score;
    uint32_t ties;
    uint32_t second_index;
    double second_score;
};
#define ROUTE_BEST_INIT ((struct route_best){ .index = ROUTE_NONE, .second_index = ROUTE_NONE })
void route_best_offer(struct route_best *best, uint32_t index, double score, struct rng *rng);

/* Turns view indices into a verdict with TTFT estimates; ROUTE_NONE indices are fine. */
void route_answer(const struct route_view *view, const struct route_req *req, uint32_t index,
                  uint32_t second_index, struct route_verdict *ret);
