/* dispatch.h - decides where a request goes, how long it waits, and where it goes after a failure.
 *
 * Layer:    router/core (base/core, policies)
 * Threads:  the decision thread only; the simulator drives the same functions
 * Lifetime: dispatch_new takes all memory; a dispatch_request is the caller's and stays put from
 *           dispatch_arrive until it was refused or dispatch_end was called
 * Rules:    (1) no I/O, no clock, no log: time comes in, verdicts go out
 *           (2) every request that arrives ends once: refused, or dispatch_end
 *           (3) a request holds at most one ledger entry, the one of its running attempt
 *           (4) held requests, requests in flight and the index are bounded; reaching a bound is a
 *               verdict; places of held requests are shared by tenant (held_share.h)
 *           (5) an endpoint gets at most one request at a time that may have killed an engine
 *
 *     arrive ──► SENT ──► (tokens) ──► end       SENT: the caller talks to request->slot
 *        │        │ ▲
 *        │        ▼ │ fail, slice_end: elsewhere, held, or refused; the output so far may go along
 *        └────► HELD ──► refused after hold_us_max, or displaced
 */
#pragma once
#include "base/core/list.h"
#include "base/wire/sync.h"
#include "fleet/stream_perf.h"
#include "policies/predict/predict.h"
#include "policies/route/route.h"
#include "router/core/endpoint.h"
#include "router/core/failure.h"
#include "router/core/ledger.h"
#include "router/core/prefix_index.h"
#include "router/core/quarantine.h"

#define DISPATCH_ENDPOINTS 1024          /* by default: as many as a controller plans */
#define DISPATCH_SUSPEND_US_MAX 30000000 /* the longest rest of an endpoint that failed */
#define DISPATCH_REFINE_TOKENS 32        /* between two estimates of the output that is left */

struct dispatch_config {
    const struct route_policy *route;
    const struct predict_policy *predict;
    size_t index_bytes;
    uint32_t key_tokens;    /* covered by one key; 0: BLOCK_TOKENS */
    uint32_t endpoints_max; /* known at once, at most ROUTE_INSTANCES_MAX; 0: DISPATCH_ENDPOINTS */
    uint32_t requests_max;  /* in flight */
    uint32_t held_max;      /* waiting for an instance */
    int64_t hold_us_max;
    int64_t quarantine_us; /* how long a prompt that killed two engines is refused; 0: never */
    uint64_t seed;
    const struct dispatch_watch *watch; /* optional; outlives the dispatch */
};

/* Observes each routing decision: the policy's view, its verdict and the events it was told.
 * Changes nothing. `id` counts decisions. */
struct dispatch_watch {
    void *arg;
    void (*decided)(void *arg, uint64_t id, const struct route_view *view,
                    const struct route_req *req, const struct route_verdict *verdict,
                    int64_t now_us);
    void (*event)(void *arg, uint64_t id, const struct route_event *ev);
};

enum dispatch_state { DISPATCH_NEW, DISPATCH_HELD, DISPATCH_SENT, DISPATCH_ENDED };

struct dispatch_request {
    /* Read and written with every token; the core's, but for the two that their comments name. */
    enum dispatch_state state;
    uint32_t slot, slice_tokens; /* while SENT; output tokens until it is routed again, 0: never */
    uint32_t generated; /* output so far; the caller's, before dispatch_fail and _slice_end */
    struct ledger_entry *entry;
    uint32_t prompt_tokens; /* the caller's, before dispatch_arrive: at least 1, or an estimate */
    uint32_t acquitted_at;  /* output tokens that acquit its fingerprint; 0: it is no suspect */
    bool suspect;           /* counted as one at its slot */
    struct stream_watch stream; /* at an endpoint whose step times are learned */

    /* The caller's, before dispatch_arrive. */
    uint64_t model;
    uint64_t adapter; /* adapter_id: only endpoints that have it take the request; 0: none */
    const struct block_key *keys;
    uint32_t key_count;
    struct predict_features features;
    double slo_ttft_s, slo_tpot_s; /* 0: none */
    double weight;                 /* its tenant's, for places among held requests; 0: 1 */
    bool refuse_late;              /* while its fleet is overloaded (policies/route/overload.h) */
    uint64_t fingerprint;          /* of model and prompt (quarantine.h); 0: none */
    double eta_s; /* until another instance is expected; 0: not known; the caller's at any time */
    bool cached_known; /* the engine named cached_tokens; the caller's, before dispatch_end */
    uint32_t cached_tokens;

    /* The core's. */
    struct predict_verdict length;
    struct route_verdict route;
    uint32_t hit_tokens; /* believed to be cached where it went */
    uint32_t candidates; /* instances that the last decision chose from */
    int64_t arrived_us, held_us;
    int64_t hold_until_us; /* while HELD: the policy wants to be asked again then; 0: on a change */
    uint64_t decision;     /* number of the decision that sent it */
    struct retry_request retry;
    uint32_t tried[RETRY_ATTEMPTS_MAX]; /* slots that failed it */
    uint32_t tried_count;
    uint64_t boot; /* boot id of the engine that its attempt went to */
    struct list link;
};

enum dispatch_answer { DISPATCH_SEND, DISPATCH_WAIT, DISPATCH_REFUSE };

struct dispatch_verdict {
    enum dispatch_answer answer;
    int status;           /* when refused; 0: the stream already began, break it */
    double retry_after_s; /* when refused with 429 or 503; with 422: for how long, 0: not said */
    enum refusal why;     /* when refused */
};

struct dispatch_demand { /* counters run from dispatch_new */
    uint64_t arrivals;
    uint32_t held, in_flight;
    uint64_t held_tokens;
    int64_t held_oldest_us; /* age; 0 when nothing is held */
};
struct dispatch;
int dispatch_new(const struct dispatch_config *config, struct dispatch **ret, struct err *err);
void dispatch_free(struct dispatch *c);
void dispatch_route_set(struct dispatch *c, const struct route_policy *route); /* from now on */
const struct route_policy *dispatch_route(const struct dispatch *c);

/* The predictor and its state, to be saved or merged with another's. */
const struct predict_policy *dispatch_predict(const struct dispatch *c);
void *dispatch_predict_state(struct dispatch *c);

/* This router is number `index` of `count` that send to the same instances; alone until told. */
void dispatch_peers_set(struct dispatch *c, uint32_t index, uint32_t count);

/* Adds or updates by name. A removed name gets its old slot back unless another has taken it.
 * -ENOSPC when endpoints_max are known, -ENOMEM when the index cannot widen. */
int dispatch_endpoint_put(struct dispatch *c, const struct dispatch_endpoint *ep,
                          uint32_t *ret_slot);
void dispatch_endpoint_remove(struct dispatch *c, uint32_t slot);

/* Takes an engine's report of its load at as_of_us (router's clock). Other routers' part of it is
 * added to views until the report is stale. A report older than the last is dropped. */
void dispatch_endpoint_report(struct dispatch *c, uint32_t slot, const struct reported_load *load,
                              int64_t as_of_us, int64_t now_us);
/* Returns the seconds of work a second sent lately to a model's instances; < 0: none yet. */
double dispatch_work_rate(const struct dispatch *c, uint64_t model, int64_t now_us);
uint32_t dispatch_endpoint_find(const struct dispatch *c, const char *name); /* ROUTE_NONE */
/* NULL: no endpoint has the slot. */
const struct dispatch_endpoint *dispatch_endpoint_at(const struct dispatch *c, uint32_t slot);
uint32_t dispatch_in_flight(const struct dispatch *c, uint32_t slot);
/* Returns until when an endpoint gets no requests after a failure; a past time: it may get some. */
int64_t dispatch_rests_until_us(const struct dispatch *c, uint32_t slot);

struct prefix_index *dispatch_index(struct dispatch *c);
struct quarantine *dispatch_quarantine(struct dispatch *c);
struct dispatch_verdict dispatch_arrive(struct dispatch *c, struct dispatch_request *r,
                                        int64_t now_us);
/* Counts output tokens. Returns true if they acquitted a suspect: requests held for it may go. */
bool dispatch_tokens(struct dispatch *c, struct dispatch_request *r, uint32_t count,
                     int64_t now_us);
uint32_t
dispatch_tokens_known(const struct dispatch_request *r); /* prompt and output; while SENT */

/* Picks a decode instance after the first token of a prefill instance and counts the request there
 * from now on. ROUTE_NONE, and nothing changes, when none accepts. */
uint32_t dispatch_pd_handoff(struct dispatch *c, struct dispatch_request *r, int64_t now_us);

/* Counts a migrated request at `to`, which has its KV now. */
void dispatch_migrate(struct dispatch *c, struct dispatch_request *r, uint32_t to, int64_t now_us);
struct dispatch_verdict dispatch_fail(struct dispatch *c, struct dispatch_request *r,
                                      enum retry_failure failure, int64_t now_us);
/* Routes a request again: its slice is over, its output is not. */
struct dispatch_verdict dispatch_slice_end(struct dispatch *c, struct dispatch_request *r,
                                           int64_t now_us);
/* Returns, after a DISPATCH_WAIT, the held request that lost its place to the new one and is refused.
 * NULL: there was room. Must be called after each DISPATCH_WAIT. */
struct dispatch_request *dispatch_displaced(struct dispatch *c, struct dispatch_verdict *ret);

/* Ends a request, SENT or HELD: censored where it hit its limit or its client left. `generated` 0
 * teaches the predictor nothing. */
void dispatch_end(struct dispatch *c, struct dispatch_request *r, uint32_t generated, bool censored,
                  int64_t now_us);

/* Returns one held request that can go now (SENT on return) or has waited too long (refused, with
 * its verdict); NULL when neither. Call after endpoints changed, requests ended, and at the time
 * dispatch_held_deadline_us says (INT64_MAX: nothing is held). */
struct dispatch_request *dispatch_held_next(struct dispatch *c, int64_t now_us,
                                            struct dispatch_verdict *ret);
int64_t dispatch_held_deadline_us(const struct dispatch *c, int64_t now_us);
/* Calls fn with each held request, in order of arrival; it changes no state of any. */
void dispatch_held_each(struct dispatch *c, void (*fn)(void *arg, struct dispatch_request *r),
                        void *arg);
void dispatch_demand(const struct dispatch *c, int64_t now_us, struct dispatch_demand *ret);

/* Adds the dispatch's part to a service's report: held, in flight, queued seconds. */
void dispatch_report(struct dispatch *c, uint64_t model, int64_t now_us,
                     struct service_demand *ret);

/* Gets the step times that were learned from an endpoint's streams; false: none yet. */
bool dispatch_learned_perf(const struct dispatch *c, uint32_t slot, struct perf_coef *ret);

/* Returns the seconds of work in flight at an endpoint; 0 while its speed is unknown. */
double dispatch_queued_s(struct dispatch *c, uint32_t slot, int64_t now_us);
