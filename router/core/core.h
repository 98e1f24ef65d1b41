/* core.h - the router's decisions: where a request goes, waits, goes next after a failure.
 *
 * Layer:    router/core (base/core, policies)
 * Threads:  the decision thread only; the simulator drives the same functions
 * Lifetime: everything is taken at core_new; a core_request is the caller's memory and must stay
 *           put from core_arrive until it was refused or core_end was called
 * Rules:    (1) no I/O, no clock, no log: time comes in, answers go out
 *           (2) every request that arrives ends once: refused, or core_end
 *           (3) a request holds at most one ledger entry, the one of its running attempt
 *           (4) what is held, in flight and indexed is bounded; reaching a bound is an answer
 *           (5) of requests that may have killed an engine an endpoint has one at a time, until
 *               that has come past the point of the death: a second one is then its own
 *
 *     arrive ──► SENT ──► (tokens) ──► end       SENT: the caller talks to request->slot
 *        │        │ ▲
 *        │        ▼ │ fail: elsewhere, held, or refused; what was generated may go along
 *        └────► HELD ──► refused after hold_us_max
 */
#pragma once
#include "base/core/list.h"
#include "policies/predict.h"
#include "policies/role.h"
#include "policies/route.h"
#include "router/core/ledger.h"
#include "router/core/load.h"
#include "router/core/prefix_index.h"
#include "router/core/quarantine.h"
#include "router/core/retry.h"

#define CORE_ENDPOINTS 1024  /* known when no other number is told: as many as a controller plans */
#define CORE_INDEX_SLOTS 256 /* for which the index has room at first; it widens when more come */
#define CORE_NAME_MAX 64
#define CORE_SUSPEND_US_MIN 1000000  /* an endpoint that failed rests this long, */
#define CORE_SUSPEND_US_MAX 30000000 /* doubling up to this */
#define CORE_EXPECT_US 30000000      /* an unconfirmed block is believed this long */
#define CORE_MODELS_MAX 64           /* whose work is measured: of more, those sent some last */
#define CORE_PREFIX_TOKENS 256       /* a prompt's beginning: at least so many, two keys at least */
#define CORE_REFINE_TOKENS 32        /* between two estimates of what is left of an answer */

struct core_config {
    const struct route_policy *route;
    const struct predict_policy *predict;
    size_t index_bytes;
    uint32_t key_tokens;    /* a key covers so many; 0: BLOCK_TOKENS */
    uint32_t endpoints_max; /* known at once, at most ROUTE_INSTANCES_MAX; 0: CORE_ENDPOINTS */
    uint32_t requests_max;  /* in flight */
    uint32_t held_max;      /* waiting for an instance */
    int64_t hold_us_max;
    int64_t quarantine_us; /* for which a prompt that killed two engines is refused; 0: it is not */
    uint64_t seed;
    const struct core_watch *watch; /* optional: hears of decisions and events; outlives the core */
};

/* Hears what the policy was asked, answered and told; changes nothing. `id` counts decisions. */
struct core_watch {
    void *arg;
    void (*decided)(void *arg, uint64_t id, const struct route_view *view,
                    const struct route_req *req, const struct route_verdict *verdict,
                    int64_t now_us);
    void (*event)(void *arg, uint64_t id, const struct route_event *ev);
};

struct core_endpoint {
    char name[CORE_NAME_MAX]; /* the instance's; names it across updates */
    uint64_t model;           /* hash of the served model's name; requests match on it */
    uint64_t boot;            /* the engine's boot id: another one means its blocks are gone */
    bool ready;               /* not starting, not draining */
    bool takes_ids;           /* may go on with what another began: its prompt and answer as ids */
    enum role role;           /* a decode instance gets only what others hand over */
    bool has_perf;
    struct perf_coef perf;
    uint32_t token_budget, seqs_max;
    uint64_t kv_tokens_max;      /* 0: unknown */
    double link_bytes_s;         /* at which it is sent its peers' K and V; 0: it is not */
    uint32_t kv_bytes_per_token; /* 0: unknown */
    double price_per_hour;
};

enum core_state { CORE_NEW, CORE_HELD, CORE_SENT, CORE_ENDED, CORE_STATE_COUNT };

struct core_request {
    /* The caller's, before core_arrive. */
    uint64_t model;
    uint32_t prompt_tokens; /* at least 1; an estimate where ids are not known */
    const struct block_key *keys;
    uint32_t key_count;
    struct predict_features features;
    double slo_ttft_s, slo_tpot_s; /* 0: none promised */
    uint64_t fingerprint;          /* of model and prompt (quarantine.h); 0: none */

    /* The caller's, before core_fail: tokens of the answer that the next attempt goes on from. */
    uint32_t generated;

    /* The core's. */
    enum core_state state;
    uint32_t slot; /* while SENT */
    struct predict_verdict length;
    struct route_verdict route;
    uint32_t hit_tokens; /* believed to be cached where it went */
    int64_t arrived_us, held_us;
    int64_t hold_until_us; /* while HELD: the policy wants to be asked again then; 0: on a change */
    uint64_t decision;     /* number of the decision that sent it */
    struct retry_request retry;
    uint32_t tried[RETRY_ATTEMPTS_MAX]; /* slots that failed it */
    uint32_t tried_count;
    uint32_t acquitted_at; /* tokens with which its fingerprint is; 0: it is no suspect */
    bool suspect;          /* counted as one at its slot */
    uint64_t boot;         /* of the engine that its attempt went to */
    struct ledger_entry *entry;
    struct list link;
};

enum core_answer { CORE_SEND, CORE_WAIT, CORE_REFUSE };

struct core_verdict {
    enum core_answer answer;
    int status;           /* when refused; 0: the stream already began, break it */
    double retry_after_s; /* when refused with 429 or 503; with 422: for how long, 0: not said */
};

/* What the controller wants to know; counters run from core_new. */
struct core_demand {
    uint64_t arrivals;
    uint32_t held, in_flight;
    uint64_t held_tokens;
    int64_t held_oldest_us; /* age; 0 when nothing is held */
};

struct core;
int core_new(const struct core_config *config, struct core **ret, struct err *err);
void core_free(struct core *c);
void core_route_set(struct core *c, const struct route_policy *route); /* from now on */
const struct route_policy *core_route(const struct core *c);

/* What it learned: the predictor's state, to be saved, or merged with another. */
const struct predict_policy *core_predict(const struct core *c);
void *core_predict_state(struct core *c);

/* This router is number `index` of `count` that send to the same instances; alone until told. */
void core_peers_set(struct core *c, uint32_t index, uint32_t count);

/* Adds or updates by name; the slot stays the same until core_endpoint_remove, and is the same again
 * for a name that returns before another has taken it. -ENOSPC when endpoints_max are known,
 * -ENOMEM when the index cannot widen. Requests in flight there go on. */
int core_endpoint_put(struct core *c, const struct core_endpoint *ep, uint32_t *ret_slot);
void core_endpoint_remove(struct core *c, uint32_t slot);

/* What the engine says it had at as_of_us (router's clock): the part of others is added to the view
 * until the report is stale. Reports older than the last are dropped. */
void core_endpoint_report(struct core *c, uint32_t slot, const struct core_load *load,
                          int64_t as_of_us, int64_t now_us);
/* Seconds of work a second that were sent lately to the instances of a model; < 0: none yet. */
double core_work_rate(const struct core *c, uint64_t model, int64_t now_us);
uint32_t core_endpoint_find(const struct core *c, const char *name);               /* ROUTE_NONE */
const struct core_endpoint *core_endpoint_at(const struct core *c, uint32_t slot); /* or NULL */
uint32_t core_in_flight(const struct core *c, uint32_t slot);

/* The seconds until an instance is expected for held requests; < 0: nothing is starting. */
void core_starting_set(struct core *c, double eta_s);
struct prefix_index *core_index(struct core *c);
struct quarantine *core_quarantine(struct core *c);
struct core_verdict core_arrive(struct core *c, struct core_request *r, int64_t now_us);
/* True when a suspect was acquitted by them: others that were held for it may go. */
bool core_tokens(struct core *c, struct core_request *r, uint32_t count, int64_t now_us);
uint32_t core_tokens_known(const struct core_request *r); /* prompt and answer, while SENT */

/* After the first token of a prefill instance: a decode instance that is to go on. The request
 * counts there from now on. ROUTE_NONE, and all stays as it is, when none accepts. */
uint32_t core_hand_over(struct core *c, struct core_request *r, int64_t now_us);

/* The request goes on at `slot`, which has its K and V: a migration is over. */
void core_move(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us);
struct core_verdict core_fail(struct core *c, struct core_request *r, enum retry_failure failure,
                              int64_t now_us);

/* The request is over: answered whole (censored false unless it hit its limit) or its client
 * left (censored true). `generated` 0 teaches the predictor nothing. From HELD too. */
void core_end(struct core *c, struct core_request *r, uint32_t generated, bool censored,
              int64_t now_us);

/* One held request that can go now (SENT on return) or has waited too long (refused, with its
 * verdict); NULL when neither. Call after endpoints changed, requests ended, and at the time
 * core_held_deadline_us says (INT64_MAX: nothing is held). */
struct core_request *core_held_next(struct core *c, int64_t now_us, struct core_verdict *ret);
int64_t core_held_deadline_us(const struct core *c, int64_t now_us);
void core_demand(const struct core *c, int64_t now_us, struct core_demand *ret);

/* What is held for one model. */
struct core_held {
    uint32_t count;
    uint64_t prompt_tokens;
    int64_t oldest_us; /* age */
};
void core_held_of(const struct core *c, uint64_t model, int64_t now_us, struct core_held *ret);

/* Predicted seconds of the work that is in flight at an endpoint; 0 while its speed is unknown:
 *
 *     b * prefill owed + output left / decoding * (a + c * decoding + d * kv)
 */
double core_queued_s(struct core *c, uint32_t slot, int64_t now_us);
