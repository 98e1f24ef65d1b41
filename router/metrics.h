/* metrics.h - lists the router's metrics in one table, keeps those of services and tenants, and adds up the
 * counters of its loops.
 *
 * Layer:   router (base/io)
 * Threads: any (base/io/metrics.h)
 */
#pragma once
#include "base/io/http/http_client.h"
#include "base/io/http/http_server.h"
#include "base/io/metrics.h"
#include "base/wire/sync.h"

enum router_metric {
    RM_REQUESTS,
    RM_SLO_REQUESTS,
    RM_REFUSED,
    RM_RETRIES,
    RM_CONTINUED,
    RM_PD_HANDOFFS,
    RM_SLICES,
    RM_KV_FETCHES,
    RM_MIGRATIONS,
    RM_MIGRATIONS_DROPPED,
    RM_HELD,
    RM_HELD_MAX,
    RM_IN_FLIGHT,
    RM_IN_FLIGHT_MAX,
    RM_ENDPOINTS,
    RM_ENDPOINTS_UNNAMED,
    RM_ENDPOINTS_REFUSED,
    RM_HOLD_SECONDS,
    RM_TTFT,
    RM_TPOT,
    RM_E2E,
    RM_DECISION_SECONDS,
    RM_PROMPT_TOKENS,
    RM_CACHED_TOKENS,
    RM_EXPECTED_TOKENS,
    RM_GENERATED_TOKENS,
    RM_KIND_PROMPT,
    RM_KIND_CACHED,
    RM_KIND_EXPECTED,
    RM_TTFT_ERROR,
    RM_LENGTH_COVERED,
    RM_QUESTION_TOKENS,
    RM_INDEX_BYTES,
    RM_INDEX_BLOCKS,
    RM_INDEX_BLOCKS_MAX,
    RM_INDEX_EVICTED,
    RM_SYNC_AGE,
    RM_RATE_LIMITED,
    RM_LATE_REFUSED,
    RM_DISPLACED,
    RM_TENANT_REQUESTS,
    RM_TENANT_REJECTED,
    RM_TENANT_TOKENS,
    RM_TENANT_IN_FLIGHT,
    RM_PREDICTOR_DAMAGED,
    RM_TRACE_SPANS,
    RM_TRACE_EXPORTS,
    RM_TRACE_REQUESTS,
    RM_TRACE_IGNORED,
    RM_TUNNELS,
    RM_TUNNEL_STREAMS,
    RM_TUNNELS_LOST,
    RM_TOKENIZERS,
    RM_TOKENIZERS_REFUSED,
    RM_TOKENIZERS_EVICTED,
    RM_QUARANTINED,
    RM_QUARANTINE_REFUSED,
    RM_QUARANTINE_FORGOTTEN,
    RM_POLICY,
    RM_TEXT_BYTES,
    RM_TEXT_REFUSED,
    RM_TEXT_SECONDS,
    RM_HTTP_CONNECTIONS,
    RM_HTTP_REFUSED,
    RM_HTTP_CUT,
    RM_SIGNED,
    RM_HTTP_CLOSED,
    RM_HTTP_REQUESTS,
    RM_HTTP_RECEIVED,
    RM_HTTP_SENT,
    RM_HTTP_HELD,
    RM_UPSTREAM_CONNECTIONS,
    RM_UPSTREAM_CONNECTS,
    RM_UPSTREAM_REUSED,
    RM_UPSTREAM_STALE,
    RM_UPSTREAM_REFUSED,
    RM_UPSTREAM_LOCAL,
    RM_NAMES_FAILED,
    RM_NAMES_STALE,
    RM_LOOP_TURNS,
    RM_LOOP_POSTS_REFUSED,
    RM_LOG_LOST,
    RM_COUNT
};

extern const struct metric_desc router_metric_table[RM_COUNT];

/* Returns a service's series of a metric whose only label is `service`. An empty name: of requests that name
 * no service that is known. */
struct metric_series *router_metric_of(struct metrics *m, enum router_metric which,
                                       struct str service);
/* Counts a request of the service in a metric with a second label, whose value comes first. */
void router_metric_count(struct metrics *m, enum router_metric which, const char *value,
                         struct str service);

/* Makes all series of a service, with zeros: a rate needs a value before the first event. */
void router_metrics_service(struct metrics *m, struct str service);

#define METRIC_TENANTS_MAX 1024 /* with series of their own */

/* A tenant's series, made with its first request, and what was told of it. Zeros at first. */
struct tenant_meters {
    struct metric_series *requests, *rejected, *in_flight;
    struct metric_series *tokens[3]; /* prompt, cached, generated */
    struct tenant_usage told;        /* without its name */
};

/* Adds what the tenant's counters have gained. */
void router_metrics_tenant(struct metrics *m, struct tenant_meters *t,
                           const struct tenant_usage *now, uint32_t in_flight);

/* Publishes the counters of the router's loops and connections as metrics.
 *
 * Threads:  the thread of the loop it was given; the loops, clients and servers it reads belong to others,
 *           whose counts may be read from anywhere (base/io/loop/count.h)
 * Lifetime: ends before the loops, clients and servers that were added
 */

#define LOOP_METRICS_MAX 65 /* byte loops and the decision thread's */

struct loop_metrics_source {
    const struct loop *loop;
    const struct http_client *client;
    const struct http_server *server; /* NULL: the loop serves nothing */
};

struct loop_metrics {
    struct metrics *metrics;
    struct loop_metrics_source wire[LOOP_METRICS_MAX];
    uint32_t count;
    struct loop *own;
    struct loop_timer timer;
    struct loop_counts loops; /* sums told last, as the next two; their gauges are unused */
    struct http_client_counts calls;
    struct http_server_counts served;
};

void loop_metrics_add(struct loop_metrics *w, const struct loop_metrics_source *wire);

/* Adds the counts since its last call to the metrics. */
void loop_metrics_tell(struct loop_metrics *w);

/* Tells once a second from now on, as a timer of `own`. -ENOSPC, -ENOMEM. */
int loop_metrics_start(struct loop_metrics *w, struct loop *own);
