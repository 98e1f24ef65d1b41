/* sync.h - defines the messages between router and controller: demand one way, endpoints and rules back.
 *
 * Layer:    base/wire (base/core)
 * Path:     POST /api/v1/routers/sync, every half second, and at once when a first request is held
 * Lifetime: decoded strings and lists live in the arena
 * Rules:    counters count from the router's boot, so a lost message loses nothing; a new boot id
 *           starts them at zero. Quantiles cover the window and are absent with count 0.
 */
#pragma once
#include "base/perf/lengths.h"
#include "base/perf/perf.h"
#include "base/wire/report.h"

#define SYNC_SERVICES_MAX 64
#define SYNC_ENDPOINTS_MAX 1024
#define SYNC_ADAPTERS_MAX 8192 /* of all endpoints together; routers are not told of more */
#define SYNC_TENANTS_MAX 10000
/* That a tenant's tokens are told apart by; more: in its sums alone. */
#define TENANT_SERVICES_MAX 8
#define SYNC_KEYS_MAX 16 /* API keys of one tenant */
#define SYNC_TOKENS_MAX 100
#define SYNC_STARTING_MAX 256
#define SYNC_REFUSED_MAX 64              /* quarantined prompts reported by one router */
#define SYNC_ELSEWHERE_MAX 1024          /* quarantined prompts of all other routers */
#define SYNC_BYTES_MAX ((size_t)8 << 20) /* of one message: bound of body and arena */

struct wire_quantiles {
    uint64_t count; /* 0: nothing was measured in the window */
    double mean, p50, p90, p99;
};

struct service_demand {
    struct str service;
    uint64_t arrivals_total, finished_total, failed_total, rejected_total;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total; /* of the finished */
    uint64_t slo_met_total, slo_missed_total;
    double arrival_per_s;      /* over the window */
    double late_refused_per_s; /* arrivals that overload control refused, as they would be late */
    double prompt_tokens_mean, predicted_tokens_mean; /* of arrivals in the window */
    uint32_t in_flight;                               /* sent, response not complete */
    uint32_t held;                                    /* waiting in the router for an instance */
    uint64_t held_prompt_tokens;
    double held_oldest_s;
    double queued_s; /* predicted seconds of work in flight at all endpoints */
    struct wire_quantiles ttft_s, tpot_s, e2e_s;
    bool has_expected, has_queued; /* false: no request came lately; none waits */
    /* Bins hold whole requests; a message is refused if their sum differs from the count. */
    struct lengths expected; /* of requests that arrived in the last five minutes */
    struct lengths queued;   /* of requests that are held, or sent and without a first token */
};

struct endpoint_demand {
    struct str instance;
    uint32_t in_flight;
    bool has_perf;         /* learned by the router from its streams, as the engine reports none */
    struct perf_coef perf; /* at full speed */
};

struct tenant_usage {
    struct str tenant;
    uint64_t requests_total, rejected_total;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total;
    const struct tenant_work {
        struct str service;
        uint64_t computed_tokens_total; /* prompts less what was cached, and outputs */
    } * work;
    uint32_t work_count;
};

/* A prompt that killed engines (router/core/quarantine.h); all routers of a fleet have the same fingerprint for it. */
struct refused_prompt {
    uint64_t fingerprint;
    uint32_t left_ms;
};

struct router_sync {
    struct str router; /* id, stable over restarts */
    uint64_t boot, seq;
    struct str host; /* address at which clients reach it */
    uint32_t port;
    struct str reach; /* [https://]HOST:PORT at which agents may dial it; empty: they may not */
    double window_s;
    uint64_t tenants_version; /* of the list of tenants that it holds; 0: none */
    struct str version;       /* of its program; empty: not reported */
    int64_t date_us;          /* its wall clock when it wrote this; 0: not reported */
    const struct service_demand *services;
    uint32_t service_count;
    const struct endpoint_demand *endpoints;
    uint32_t endpoint_count;
    const struct tenant_usage *usage;
    uint32_t usage_count;
    const struct refused_prompt *refused; /* quarantined by this router itself */
    uint32_t refused_count;
};

int router_sync_encode(const struct router_sync *s, struct buf *out);
int router_sync_decode(struct str text, struct arena *arena, struct router_sync *ret,
                       struct err *err);

enum endpoint_state { ENDPOINT_STARTING, ENDPOINT_READY, ENDPOINT_DRAINING, ENDPOINT_STATE_COUNT };
extern const char *const endpoint_state_names[ENDPOINT_STATE_COUNT];

/* An instance to which a router may send requests. */
struct endpoint {
    struct str instance, service, pool, model, digest, host;
    const struct wire_adapter *adapters; /* as in struct engine_report */
    uint32_t adapter_count;
    uint32_t port;
    bool tls; /* it speaks TLS there */
    enum engine_kind kind;
    struct str agent_host; /* as in struct engine_report; port 0: it has no agent to ask */
    uint32_t agent_port;
    bool agent_tls;
    bool kv_events; /* as in struct engine_report */
    enum endpoint_state state;
    enum role role;
    uint64_t boot;
    double price_per_h;
    uint32_t context_tokens, page_tokens, pages_total, running_max;
    uint32_t step_tokens;    /* from the engine's report; 0: not reported */
    uint32_t kv_token_bytes; /* likewise */
    enum model_task task;    /* likewise */
    bool has_perf;
    struct perf_coef perf; /* at full speed */
    double clock;          /* share of full speed in force; 0: it has no clock to set */
    uint32_t leaves_ms;    /* time until the provider takes it away; 0: not announced */
    bool at_risk;          /* it may be: as in struct agent_report */
};

/* An instance that launches: tells the router whether and how long to hold requests. */
struct starting {
    struct str service;
    uint32_t eta_ms;
};

struct service_rules {
    struct str service; /* the model name that clients send */
    struct str policy;  /* routing policy; empty: the router's own configuration */
    bool paused;        /* hold no requests, respond 503 */
    bool may_start;     /* an instance would be started for held work; false: 503 at once */
    double slo_ttft_s, slo_tpot_s; /* 0: the router's own setting */
    bool refuse_late;              /* refuse late requests while the fleet is overloaded */
    bool has_kv_link;              /* kv_link_bytes_s is given; false: the router's own setting */
    double kv_link_bytes_s;        /* rate at which engines copy K and V; 0: they do not */
    uint32_t wake_ms; /* an instance that were asked for now would be ready then; 0: not known */
};

/* Bounds of a tenant's weight: with a wider range, the share of one tenant would hide all others. */
#define TENANT_WEIGHT_MIN 1e-6
#define TENANT_WEIGHT_MAX 1e6

struct tenant_rules {
    struct str tenant;
    const struct str *key_hashes; /* SHA-256 of each API key, hexadecimal */
    uint32_t key_hash_count;
    uint32_t requests_per_min, tokens_per_min, concurrency; /* 0: unlimited */
    struct str salt;                                        /* of its cache blocks */
    double weight; /* its share of engines, relative to other tenants; 0 means 1 */
};

/* The access token of a person or program that may read, or change, the router itself. */
struct token_rules {
    struct str hash; /* SHA-256, hexadecimal */
    bool admin;      /* false: reads only */
};

struct router_rules {
    const struct endpoint *endpoints;
    uint32_t endpoint_count;
    bool has_complete; /* `complete` is given; false: the list is complete */
    bool complete;     /* false: partial, the controller has not heard from every agent yet */
    const struct starting *starting;
    uint32_t starting_count;
    const struct service_rules *services;
    uint32_t service_count;
    uint32_t router_index, router_count; /* among the routers that sync; 0 of 0: not given */
    bool keys_required;                  /* requests without a known API key are refused */
    bool keys_opened; /* a person has opened the service: ends an earlier keys_required */
    uint64_t tenants_version;
    bool has_tenants; /* false: unchanged since the router's version, list left out */
    const struct tenant_rules *tenants;
    uint32_t tenant_count;
    const struct token_rules *tokens; /* sent with the tenants */
    uint32_t token_count;
    /* by other routers, and by this one before it restarted */
    const struct refused_prompt *refused;
    uint32_t refused_count;
    uint32_t again_ms; /* time until the router should sync again */
    uint64_t epoch;    /* of the controller's term; 0: not given */
};

/* Returns true if the list is complete, so that an endpoint missing from it is gone. */
static inline bool router_rules_complete(const struct router_rules *r)
{
    return !r->has_complete || r->complete;
}

int router_rules_encode(const struct router_rules *r, struct buf *out);
int router_rules_decode(struct str text, struct arena *arena, struct router_rules *ret,
                        struct err *err);
