/* route.h - the interface of routing policies, which choose the instance that a request goes to.
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
#include "base/perf/perf.h"
#include "policies/role/role.h"

#define ROUTE_INSTANCES_MAX 4096 /* instances one view can hold */
#define ROUTE_STATE_BYTES_MAX 65536
#define ROUTE_SCRATCH 8        /* floats of its own that a policy may keep with a request */
#define ROUTE_HEAVY_TOKENS 128 /* an output predicted longer than this is a heavy decode */
#define ROUTE_NONE UINT32_MAX

struct route_instance {
    /* The router's slot for the endpoint, < ROUTE_INSTANCES_MAX. It is reused once the endpoint is
     * gone, so what a policy remembers about an id has to fade. */
    uint32_t id;
    uint64_t name_hash;      /* stable across restarts of the router; for consistent hashing */
    bool accepts;            /* ready, not draining, circuit closed */
    enum role role;          /* ROLE_DECODE gets no new request, only handoffs */
    bool has_perf;           /* perf was reported or learned */
    struct perf_coef perf;   /* step-time model of this instance */
    uint32_t token_budget;   /* tokens one step may carry; at least 1 */
    uint32_t seqs_max;       /* sequences it runs at once; at least 1 */
    uint32_t in_flight;      /* requests sent and not ended, by all routers as far as is known */
    uint32_t waiting;        /* of those, before their first token */
    uint32_t tenant_waiting; /* of those, of this request's tenant */
    uint32_t decoding;       /* past their first token */
    uint32_t heavy;          /* in flight and predicted longer than ROUTE_HEAVY_TOKENS */
    uint64_t kv_tokens;      /* tokens that decoding sequences hold, for the read term of perf */
    uint64_t active_tokens;  /* prompt and output so far of all in flight */
    uint64_t kv_tokens_max;  /* tokens its KV memory holds; 0: unknown */
    double output_left;      /* tokens that requests in flight are predicted still to generate */
    uint64_t prefill_tokens; /* uncached prompt tokens sent and not yet computed */
    double slot_wait_s;      /* predicted seconds until a sequence slot is free; 0 when one is */
    uint32_t hit_tokens;     /* tokens of this request's prompt believed to be on its device */
    double prompt_load; /* seconds of prompts' arithmetic a second sent to it in the last 10 s */
    double price_per_hour;
};

struct route_view {
    const struct route_instance *instance;
    uint32_t instance_count;
    bool has_load;
    double load;         /* seconds of work a second sent lately, per instance that accepts */
    double link_bytes_s; /* between instances, for KV; 0: no kv_fetch is possible */
    uint32_t kv_bytes_per_token; /* 0: unknown */
};

struct route_req {
    uint32_t prompt_tokens; /* at least 1 */
    uint64_t prefix_hash;   /* of the first blocks (or bytes) of the prompt, salted by tenant */
    uint64_t tenant;        /* hash of its name */
    double output_mean;     /* predicted output length */
    double output_p50;
    double output_p90;
    double slo_ttft_s, slo_tpot_s; /* 0: none */
};

struct route_verdict {
    uint32_t instance_id; /* ROUTE_NONE: no instance takes it now; hold or refuse the request */
    double estimate_s;    /* predicted TTFT there; < 0 when the policy has no estimate */
    uint32_t runner_up_id;
    double runner_up_s;
    uint32_t fetch_from_id; /* instance_id fetches its KV first; ROUTE_NONE: no fetch */
    uint32_t fetch_tokens;
    uint32_t decode_id;    /* continues after the first token; ROUTE_NONE: instance_id */
    bool reject;           /* with instance_id ROUTE_NONE: 429 rather than hold */
    bool late;             /* with reject: for its SLO, in an overloaded fleet (overload.h) */
    double retry_after_s;  /* with reject */
    int64_t hold_until_us; /* with instance_id ROUTE_NONE: ask again then; 0: on any change */
    float scratch[ROUTE_SCRATCH]; /* comes back with the request's events; zeros once it moved */
};

enum route_event_kind {
    ROUTE_SENT,
    ROUTE_FIRST_TOKEN, /* ttft_s is known */
    ROUTE_FINISHED,    /* its output is complete; generated and tpot_s are known */
    ROUTE_FAILED,      /* the attempt ended otherwise; its slice may be over */
    ROUTE_EVENT_COUNT
};

struct route_event {
    enum route_event_kind kind;
    uint32_t instance_id;
    uint64_t tenant;
    uint32_t prompt_tokens, hit_tokens; /* as believed when it was sent */
    uint32_t generated;
    double ttft_s; /* from sending to the first token; < 0: none yet */
    double tpot_s; /* per further token on this instance; < 0: not measured */
    double work_s; /* machine seconds it was expected to take (route_work_s) */
    int64_t at_us;
    float scratch[ROUTE_SCRATCH];
};

/* Only `observe` and `decide` write the state, which is zeros at first. */
struct route_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* where the rule comes from */
    uint32_t state_size; /* fixed, serialisable, at most ROUTE_STATE_BYTES_MAX; 0 for none */
    /* A request is routed again after this many output tokens, with its tokens so far as its prompt;
     * 0: it stays to its end. */
    uint32_t slice_tokens;
    void (*observe)(void *state, const struct route_event *ev); /* optional */
    void (*decide)(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret);
};

#define POLICY(name) extern const struct route_policy route_##name;
#include "policies/route/route.def"
#undef POLICY

extern const struct route_policy *const route_table[];
extern const uint32_t route_count;
#define ROUTE_DEFAULT "completion"

const struct route_policy *route_find(struct str name); /* NULL when there is none */

/* Functions that policies share (route.c). */

/* Returns the predicted seconds to this request's first token on `in`:
 *
 *     tokens = prefill_tokens queued + uncached part of the prompt
 *     steps  = ceil(tokens / token_budget)
 *     ttft   = slot_wait + steps * (step_s + decode_seq_s * decoding + kv_read_s * kv_tokens) +
 *     prefill_token_s * tokens
 *
 * -1 when in->has_perf is false. */
double route_ttft_s(const struct route_instance *in, const struct route_req *req);

/* Returns true if the instance takes new requests: it accepts and is not a decode instance. */
bool route_takes(const struct route_instance *in);

/* Returns the instance's highest-random-weight score for the beginning of this prompt; the largest
 * comes first in the order of instances. */
double route_hash_weight(const struct route_instance *in, const struct route_req *req);

/* Returns the machine seconds that a request takes: the arithmetic of its prompt, its share of the
 * steps that carry it, and what each of its output tokens adds to a step.
 *
 *     uncached * (prefill_token_s + step_s / token_budget)
 *     + output * (decode_seq_s + kv_read_s * (prompt + output / 2))
 */
double route_work_s(const struct perf_coef *perf, uint32_t token_budget, uint32_t prompt_tokens,
                    uint32_t hit_tokens, double output_tokens);

/* Writes the mean coefficients of the accepting instances that have any; false when none has. */
bool route_fleet_perf(const struct route_view *view, struct perf_coef *ret);

/* Returns the instance with its own speed, or with `fleet` where it has none, so that a new instance
 * gets its share at once. `fleet` NULL: no speed is known. */
struct route_instance route_known(const struct route_instance *in, const struct perf_coef *fleet);

/* Returns the TTFT at that speed. Where no speed is known, tokens stand in for seconds: those queued,
 * one for each sequence that decodes, and the uncached part of the prompt. */
double route_wait_s(const struct route_instance *in, const struct route_req *req,
                    const struct perf_coef *fleet);

/* Returns what is left of `sum`, last updated at at_us, after exponential decay with the time
 * constant window_us. Where now_us is before at_us nothing has decayed. */
double route_faded(double sum, int64_t at_us, int64_t now_us, double window_us);

/* Returns the hit tokens, at most prompt - 1: the index lags and may claim more. */
uint32_t route_hit_tokens(const struct route_instance *in, const struct route_req *req);

/* Keeps the least score seen, ties broken evenly by chance (reservoir of one), and the runner-up.
 * NaN is the worst score. Start with ROUTE_BEST_INIT. */
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
