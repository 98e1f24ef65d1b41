/* director.h - turns a router's events into verdicts: rules, endpoints and the events of requests come in;
 * sends, holds, refusals and migrations go out. It measures the demand for each service on the way.
 *
 * Layer:    router/core (fleet, policies, base/wire)
 * Hosts:    the decision thread, the simulator and the fault simulation: each carries verdicts out in its
 *           own way, by sockets or by events, and adds no decision
 * Threads:  the decision thread only
 * Lifetime: director_new takes all memory; a director_request is the host's and stays put from
 *           director_arrive to director_end
 * Rules:    (1) no I/O, no clock, no log: time comes in, verdicts go out
 *           (2) every request that arrived ends once by director_end, a refused one too
 *           (3) an end, a failure, an acquittal and a list of endpoints may free an instance: the host then
 *               calls director_held_next until it returns NULL; after an arrival it sets its timer
 */
#pragma once
#include "fleet/migrate_view.h"
#include "router/core/dispatch.h"
#include "router/core/services.h"

struct director;

struct director_config {
    struct dispatch_config dispatch;
    /* The director makes its view. NULL: the host drives the KV transfers itself (the simulator,
     * which makes the copies too). */
    const struct migrate_policy *migrate;
    struct service_defaults service; /* for what rules leave open */
};

int director_new(const struct director_config *config, struct director **ret, struct err *err);
void director_free(struct director *d);
struct dispatch *director_dispatch(struct director *d);
struct services *director_services(struct director *d);

/* ---- what the controller says ---- */

/* Takes the services, the times until their next instances have started and this router's number among
 * all. The host sets the routing policy, because it knows the policies' names. */
void director_rules(struct director *d, const struct router_rules *rules);

/* An endpoint as the director keeps it beside the dispatch's slot. */
struct director_endpoint {
    struct dispatch_endpoint known;
    bool draining;
    int64_t leaves_us;    /* when its provider takes it away, as told last; 0: not told */
    uint64_t group;       /* KV is copied only within a group; 0: neither from nor to here */
    uint32_t page_tokens; /* 0: unknown */
    uint64_t serial;      /* the director's: unique to this endpoint; 0: the slot is free */
    bool listed;          /* the director's: in the list that is being applied */
};

/* Converts an endpoint from the wire. `reachable`: the host has what it needs to send to it.
 * -EINVAL: a name that does not fit. */
int director_endpoint_read(struct director *d, const struct endpoint *ep, bool reachable,
                           int64_t now_us, struct director_endpoint *ret);

/* Apply a list of endpoints: begin, put each, call _gone until it returns ROUTE_NONE, end. Endpoints
 * that an incomplete list leaves out stay as they were. Errors as dispatch_endpoint_put. */
void director_endpoints_begin(struct director *d);
int director_endpoint_put(struct director *d, const struct director_endpoint *ep,
                          uint32_t *ret_slot);
uint32_t director_endpoint_gone(struct director *d, bool complete); /* removes one */

struct director_count {
    uint32_t ready, unlisted;
};
struct director_count director_endpoints_end(struct director *d);

void director_endpoint_remove(struct director *d, uint32_t slot);
/* NULL: no endpoint has the slot. */
const struct director_endpoint *director_endpoint_at(const struct director *d, uint32_t slot);
bool director_has_endpoint(const struct director *d, const struct router_service *s);
/* True when `from` may give `at` its K and V. */
bool director_may_copy(const struct director *d, uint32_t from, uint32_t at);

/* ---- requests ---- */

struct director_request {
    /* the host's: no client waits; predictor and telemetry do not learn from it */
    bool is_question;
    bool arrived;
    struct telemetry_place told; /* in its service's telemetry */
    struct kv_transfer kv;       /* as the decision thread sees it; only with a migrate policy */
    /* The host's part and the core's; the SLO is the director's. */
    struct dispatch_request dispatch;
};

struct director_verdict {
    enum dispatch_answer answer;
    int status; /* REFUSE: as in dispatch_verdict; WAIT: of `displaced`, as the next */
    double retry_after_s;
    enum refusal why;                   /* REFUSE; a displaced one's is REFUSAL_DISPLACED */
    struct director_request *displaced; /* WAIT: the held one refused in its favour; NULL: none */
    uint32_t slot;                      /* SEND: to which endpoint */
    bool prefills;                      /* SEND: the slot computes only its first token */
    uint32_t kv_from;           /* SEND: the endpoint that has KV of its beginning; ROUTE_NONE */
    bool hurry;                 /* the controller should hear of it soon */
    enum retry_failure failure; /* of director_fail: the failure it was counted as */
};

void director_arrive(struct director *d, struct director_request *r, int64_t now_us,
                     struct director_verdict *ret);
/* Counts output tokens. Returns true if they acquitted a suspect. */
bool director_tokens(struct director *d, struct director_request *r, uint32_t count,
                     int64_t now_us);
/* An attempt failed. The host has set dispatch.generated, .fingerprint and .retry.answering. */
void director_fail(struct director *d, struct director_request *r, enum retry_failure failure,
                   int64_t now_us, struct director_verdict *ret);
/* Its slice is over; the host has set dispatch.generated and .fingerprint. */
void director_slice_end(struct director *d, struct director_request *r, int64_t now_us,
                        struct director_verdict *ret);
/* The prefill leg is over. The request goes on at the verdict's slot: its own if no other takes it. */
void director_prefilled(struct director *d, struct director_request *r, int64_t now_us,
                        struct director_verdict *ret);

struct director_end {
    bool ok;
    bool censored;                    /* cut by a limit, or its client left */
    bool cached_known;                /* outcome.cached_tokens is the engine's word */
    uint32_t generated;               /* as the predictor learns it; 0: nothing */
    struct telemetry_outcome outcome; /* where ok; the SLO is the director's */
};
/* How the SLO counts a request. One that was refused before it came to the director, that asks a question,
 * or whose service is gone does not count. */
enum slo_result { SLO_UNCOUNTED, SLO_MET, SLO_MISSED };
enum slo_result director_end(struct director *d, struct director_request *r,
                             const struct director_end *end, int64_t now_us);

/* Returns one held request that can go now or is refused; NULL: none. */
struct director_request *director_held_next(struct director *d, int64_t now_us,
                                            struct director_verdict *ret);

/* Calls fn with each held request; its dispatch.eta_s is as told last. */
void director_held_each(struct director *d, void (*fn)(void *arg, struct director_request *r),
                        void *arg);

/* ---- migrations; only with a policy ---- */

struct director_host {
    void *arg;
    /* Returns the load that the engine reported last, and when; NULL: it reports none. */
    const struct reported_load *(*told)(void *arg, uint32_t slot, int64_t *ret_told_us);
    void (*migrate)(void *arg, struct director_request *r, uint32_t to); /* begins it */
};

/* Lets the policy choose migrations. Returns when to look again; INT64_MAX: never. */
int64_t director_look(struct director *d, const struct director_host *host, int64_t now_us);
const struct migrate_policy *director_migrate_policy(const struct director *d);

/* Returns true while the request's KV is being copied; false: a message about the copy came late. */
bool director_is_copied(const struct director_request *r);
/* End a migration: the request counts at the target from now on, or stays where it is. */
void director_migrated(struct director *d, struct director_request *r, int64_t now_us);
void director_stays(struct director *d, struct director_request *r, int64_t now_us);

/* Fills an endpoint of the policy's view but for its load. False: no endpoint has the slot. */
bool director_migrate_endpoint(const struct director *d, uint32_t slot,
                               struct migrate_endpoint *ret);

/* ---- what the controller is told ---- */

struct director_report {
    struct service_demand service[SYNC_SERVICES_MAX];
    struct endpoint_demand endpoint[DISPATCH_ENDPOINTS];
    uint32_t service_count, endpoint_count;
};
/* Fills the report for the controller. Its strings are good until services or endpoints change. */
void director_report(struct director *d, int64_t now_us, struct director_report *ret);
void director_report_service(struct director *d, const struct router_service *s, int64_t now_us,
                             struct service_demand *ret);
