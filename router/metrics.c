/* metrics.c - declares the router's metrics, and tells those of services, tenants and loops. Buckets follow vLLM's for
 * TTFT and end-to-end time, with finer steps below 10 ms for TPOT, where small models are. */
#include "router/metrics.h"

#include "base/core/bits.h"

static const double ttft_s[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                 0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160 };
static const double tpot_s[] = { 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01,
                                 0.015,  0.02,  0.025, 0.03,  0.04,  0.05,  0.075,  0.1,
                                 0.15,   0.2,   0.3,   0.5,   1,     2.5 };
static const double e2e_s[] = { 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                10,   15,  20,  30,  40,  50, 60,  120, 240, 480 };
static const double decision_s[] = { 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4,
                                     2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2 };

static const double text_s[] = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                 0.2,   0.5,   1,     2,    5,    10,   30 };

#define BUCKETS(list) .buckets = list, .bucket_count = COUNT_OF(list)
#define SERVICE .labels = { "service" }, .series_max = SYNC_SERVICES_MAX + 1

// clang-format off
const struct metric_desc router_metric_table[RM_COUNT] = {
    [RM_REQUESTS] = { .name = "muster_router_requests_total", .type = METRIC_COUNTER,
        .labels = { "outcome", "service" }, .series_max = 384, .help = "Requests by how they ended." },
    [RM_SLO_REQUESTS] = { .name = "muster_router_slo_requests_total", .type = METRIC_COUNTER,
        .labels = { "result", "service" }, .series_max = 160, .help = "Requests by whether they met "
        "their service's SLO; failed ones missed it, those refused by their tenant's limits do not "
        "count." },
    [RM_REFUSED] = { .name = "muster_router_refused_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Requests refused, by reason: a bound of the router (full, "
        "held_full, held_long, displaced), limits, late, policy, quarantined, failed, unserved." },
    [RM_RETRIES] = { .name = "muster_router_retries_total", .type = METRIC_COUNTER,
        .labels = { "failure" }, .help = "Attempts that failed, by kind of failure." },
    [RM_CONTINUED] = { .name = "muster_router_continued_total", .type = METRIC_COUNTER,
        .help = "Outputs that an engine continued after another had failed in the midst of them." },
    [RM_PD_HANDOFFS] = { .name = "muster_router_pd_handoffs_total", .type = METRIC_COUNTER,
        .help = "Outputs that a decode instance continued after a prefill instance." },
    [RM_SLICES] = { .name = "muster_router_slices_total", .type = METRIC_COUNTER,
        .labels = { "result" },
        .help = "Slices of outputs that ended, and where the rest went: stayed, moved, held or refused." },
    [RM_KV_FETCHES] = { .name = "muster_router_kv_fetches_total", .type = METRIC_COUNTER,
        .help = "Requests sent to an instance that was to ask another for K and V." },
    [RM_MIGRATIONS] = { .name = "muster_router_migrations_total", .type = METRIC_COUNTER,
        .help = "Running requests that migrated to another instance." },
    [RM_MIGRATIONS_DROPPED] = { .name = "muster_router_migrations_dropped_total", .type = METRIC_COUNTER,
        .help = "Migrations that were given up: the request stayed, ended or failed." },
    [RM_HELD] = { .name = "muster_router_held_requests", .type = METRIC_GAUGE, .unit = "requests",
        .help = "Requests that wait for an instance now." },
    [RM_HELD_MAX] = { .name = "muster_router_held_requests_max", .type = METRIC_GAUGE,
        .unit = "requests", .help = "Bound of held requests; another is refused." },
    [RM_IN_FLIGHT] = { .name = "muster_router_in_flight_requests", .type = METRIC_GAUGE,
        .unit = "requests", .help = "Requests sent to engines and not ended." },
    [RM_IN_FLIGHT_MAX] = { .name = "muster_router_in_flight_requests_max", .type = METRIC_GAUGE,
        .unit = "requests", .help = "Bound of requests in flight; another is refused." },
    [RM_ENDPOINTS] = { .name = "muster_router_endpoints", .type = METRIC_GAUGE,
        .unit = "endpoints", .help = "Endpoints that take requests now." },
    [RM_ENDPOINTS_UNNAMED] = { .name = "muster_router_endpoints_unnamed", .type = METRIC_GAUGE,
        .unit = "endpoints", .help = "Endpoints that are kept although the controller does not name "
            "them: it has started again and has not heard from every instance yet." },
    [RM_ENDPOINTS_REFUSED] = { .name = "muster_router_endpoints_refused_total",
        .type = METRIC_COUNTER, .help = "Endpoints of a list for which there was no room." },
    [RM_HOLD_SECONDS] = { .name = "muster_router_hold_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(e2e_s), .help = "Time that held requests waited." },
    [RM_TTFT] = { .name = "muster_router_time_to_first_token_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(ttft_s), SERVICE, .exemplars = true,
        .help = "From arrival to the first token." },
    [RM_TPOT] = { .name = "muster_router_time_per_output_token_seconds", .unit = "seconds",
        .type = METRIC_HISTOGRAM, BUCKETS(tpot_s),
        SERVICE, .exemplars = true,
        .help = "Mean time of a token after the first, by request." },
    [RM_E2E] = { .name = "muster_router_request_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(e2e_s), SERVICE, .exemplars = true,
        .help = "From arrival to the end." },
    [RM_DECISION_SECONDS] = { .name = "muster_router_decision_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(decision_s), .help = "Time one routing decision took." },
    [RM_PROMPT_TOKENS] = { .name = "muster_router_prompt_tokens_total", .type = METRIC_COUNTER,
        .unit = "tokens", SERVICE, .help = "Prompt tokens of requests that were answered." },
    [RM_CACHED_TOKENS] = { .name = "muster_router_cached_tokens_total", .type = METRIC_COUNTER,
        .unit = "tokens", SERVICE, .help = "Of those, found in an engine's cache." },
    [RM_EXPECTED_TOKENS] = { .name = "muster_router_expected_cached_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, SERVICE, .help = "Of those, expected to be cached by the prefix index." },
    [RM_GENERATED_TOKENS] = { .name = "muster_router_generated_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, SERVICE, .help = "Tokens generated for clients." },
    [RM_KIND_PROMPT] = { .name = "muster_router_kind_prompt_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, .labels = { "kind" },
        .help = "Prompt tokens by kind of engine, where its replies name the cached ones." },
    [RM_KIND_CACHED] = { .name = "muster_router_kind_cached_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, .labels = { "kind" }, .help = "Of those, found in the engine's cache." },
    [RM_KIND_EXPECTED] = { .name = "muster_router_kind_expected_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, .labels = { "kind" },
        .help = "Of those, expected to be cached by the prefix index." },
    [RM_TTFT_ERROR] = { .name = "muster_router_ttft_error_seconds_total", .type = METRIC_COUNTER,
        .unit = "seconds", .help = "Absolute difference of predicted and measured TTFT, summed." },
    [RM_LENGTH_COVERED] = { .name = "muster_router_length_predictions_total",
        .type = METRIC_COUNTER, .labels = { "within_p90" },
        .help = "Finished outputs, by whether they stayed within the predicted P90." },
    [RM_QUESTION_TOKENS] = { .name = "muster_router_question_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER,
        .help = "Tokens read and written to ask models how long outputs will be." },
    [RM_INDEX_BYTES] = { .name = "muster_router_index_bytes", .type = METRIC_GAUGE,
        .unit = "bytes", .help = "Memory that the prefix index holds." },
    [RM_INDEX_BLOCKS] = { .name = "muster_router_index_blocks", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks that the prefix index knows." },
    [RM_INDEX_BLOCKS_MAX] = { .name = "muster_router_index_blocks_max", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks that it has room for." },
    [RM_INDEX_EVICTED] = { .name = "muster_router_index_evicted_blocks", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks forgotten at the index's bound since the start." },
    [RM_SYNC_AGE] = { .name = "muster_router_sync_age_seconds", .type = METRIC_GAUGE,
        .unit = "seconds", .help = "Age of the controller's last reply; -1 before the first." },
    [RM_PREDICTOR_DAMAGED] = { .name = "muster_router_predictor_damaged_total",
        .type = METRIC_COUNTER,
        .help = "Files of what the predictor learned that were damaged and put aside." },
    [RM_TRACE_SPANS] = { .name = "muster_router_trace_spans_total", .type = METRIC_COUNTER,
        .unit = "spans", .labels = { "result" }, .help = "Spans by what became of them: exported, "
        "refused by the collector, queue_full, undelivered." },
    [RM_TRACE_EXPORTS] = { .name = "muster_router_trace_exports_total", .type = METRIC_COUNTER,
        .labels = { "result" }, .help = "Calls to the collector of traces: ok, partial, again (429, "
        "502, 503, 504, or out of reach), refused." },
    [RM_TRACE_REQUESTS] = { .name = "muster_router_traced_requests_total", .type = METRIC_COUNTER,
        .labels = { "decision" }, .help = "Requests that the sampler took (sampled), that were taken at "
        "their end as slow or failed (late), or that trace_spans_max left out (capped)." },
    [RM_TRACE_IGNORED] = { .name = "muster_router_trace_headers_ignored_total",
        .type = METRIC_COUNTER, .labels = { "header" },
        .help = "Malformed traceparent and tracestate headers of clients, which were ignored." },
    [RM_TUNNELS] = { .name = "muster_router_tunnels", .type = METRIC_GAUGE,
        .help = "Tunnels of agents that are open." },
    [RM_TUNNEL_STREAMS] = { .name = "muster_router_tunnel_streams", .type = METRIC_GAUGE,
        .help = "Connections to engines that are open through tunnels, idle ones included." },
    [RM_TUNNELS_LOST] = { .name = "muster_router_tunnels_lost_total", .type = METRIC_COUNTER,
        .help = "Tunnels that ended while the router ran: cut, silent, or closed by their agent." },
    [RM_TOKENIZERS] = { .name = "muster_router_tokenizers", .type = METRIC_GAUGE,
        .help = "Tokenizers of engines that are held." },
    [RM_TOKENIZERS_REFUSED] = { .name = "muster_router_tokenizers_refused_total",
        .type = METRIC_COUNTER,
        .help = "Tokenizers that were of another digest than the one asked for." },
    [RM_TOKENIZERS_EVICTED] = { .name = "muster_router_tokenizers_evicted_total",
        .type = METRIC_COUNTER, .help = "Tokenizers dropped because no instance needs them." },
    [RM_QUARANTINED] = { .name = "muster_router_quarantined_prompts", .type = METRIC_GAUGE,
        .unit = "prompts", .labels = { "state" },
        .help = "Prompts that killed two engines and are refused, or one and are watched." },
    [RM_QUARANTINE_REFUSED] = { .name = "muster_router_quarantine_refused_total",
        .type = METRIC_COUNTER, .help = "Requests refused because their prompt killed two engines." },
    [RM_QUARANTINE_FORGOTTEN] = { .name = "muster_router_quarantine_forgotten_total",
        .type = METRIC_COUNTER, .help = "Prompts forgotten because too many were suspect." },
    [RM_RATE_LIMITED] = { .name = "muster_router_rate_limited_total", .type = METRIC_COUNTER,
        .help = "Requests refused by their tenant's limits." },
    [RM_LATE_REFUSED] = { .name = "muster_router_late_refused_total", .type = METRIC_COUNTER,
        .help = "Requests refused because, in an overloaded fleet, no instance was expected to begin "
                "them within their SLO." },
    [RM_DISPLACED] = { .name = "muster_router_held_displaced_total", .type = METRIC_COUNTER,
        .help = "Held requests that gave their places to those of tenants that hold less (503)." },
    [RM_TENANT_REQUESTS] = { .name = "muster_router_tenant_requests_total", .type = METRIC_COUNTER,
        .labels = { "tenant" }, .series_max = METRIC_TENANTS_MAX,
        .help = "Requests by tenant; (no key): without one." },
    [RM_TENANT_REJECTED] = { .name = "muster_router_tenant_rejected_total", .type = METRIC_COUNTER,
        .labels = { "tenant" }, .series_max = METRIC_TENANTS_MAX,
        .help = "Of those, refused by the tenant's limits." },
    [RM_TENANT_TOKENS] = { .name = "muster_router_tenant_tokens_total", .type = METRIC_COUNTER,
        .unit = "tokens", .labels = { "tenant", "kind" }, .series_max = 3 * METRIC_TENANTS_MAX,
        .help = "Tokens by tenant and kind: prompt, cached (of the prompt), generated." },
    [RM_TENANT_IN_FLIGHT] = { .name = "muster_router_tenant_in_flight_requests",
        .type = METRIC_GAUGE, .unit = "requests", .labels = { "tenant" },
        .series_max = METRIC_TENANTS_MAX, .help = "Requests of a tenant that have not ended." },
    [RM_POLICY] = { .name = "muster_router_policy_info", .type = METRIC_GAUGE,
        .labels = { "kind", "row" }, .series_max = 64,
        .help = "1, labelled with the policy of each kind that decides; 0 for one that did before." },
    [RM_TEXT_BYTES] = { .name = "muster_router_text_bytes", .type = METRIC_GAUGE,
        .unit = "bytes", .help = "Large bodies that wait for a text worker or are at one." },
    [RM_TEXT_REFUSED] = { .name = "muster_router_text_refused_total", .type = METRIC_COUNTER,
        .help = "Large bodies refused with 429 because so many bytes were waiting." },
    [RM_TEXT_SECONDS] = { .name = "muster_router_text_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(text_s),
        .help = "From a large body's arrival to its tokens: waiting and work." },
    [RM_HTTP_CONNECTIONS] = { .name = "muster_router_http_connections", .type = METRIC_GAUGE,
        .help = "Client connections that are open." },
    [RM_HTTP_REFUSED] = { .name = "muster_router_http_refused_total", .type = METRIC_COUNTER,
        .labels = { "reason" },
        .help = "Requests and connections that never came to a handler: malformed, too large, late." },
    [RM_HTTP_CUT] = { .name = "muster_router_http_cut_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Replies that did not come to their end." },
    [RM_SIGNED] = { .name = "muster_router_signed_requests_total", .type = METRIC_COUNTER,
        .labels = { "verdict" }, .help = "Requests that a part signed, by what became of them: "
        "fresh, stale (told to sign again), foreign; forgotten: sessions beyond the bound." },
    [RM_HTTP_CLOSED] = { .name = "muster_router_http_closed_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Connections without a request that were closed: idle for "
        "too long, or the longest idle for the room of a new one." },
    [RM_HTTP_REQUESTS] = { .name = "muster_router_http_requests_total", .type = METRIC_COUNTER,
        .help = "Requests of any path that came to a handler." },
    [RM_HTTP_RECEIVED] = { .name = "muster_router_http_received_bytes_total", .unit = "bytes",
        .type = METRIC_COUNTER, .help = "Bytes read from clients." },
    [RM_HTTP_SENT] = { .name = "muster_router_http_sent_bytes_total", .unit = "bytes",
        .type = METRIC_COUNTER, .help = "Bytes sent to clients." },
    [RM_HTTP_HELD] = { .name = "muster_router_http_held_bytes", .unit = "bytes",
        .type = METRIC_GAUGE, .help = "Memory that requests of clients take while they are read "
        "and answered; at the bound requests are refused." },
    [RM_UPSTREAM_CONNECTIONS] = { .name = "muster_router_upstream_connections",
        .type = METRIC_GAUGE, .unit = "connections", .labels = { "state" },
        .help = "Connections to engines and the controller that are busy or idle." },
    [RM_UPSTREAM_CONNECTS] = { .name = "muster_router_upstream_connects_total",
        .type = METRIC_COUNTER, .help = "Connections that were opened to them." },
    [RM_UPSTREAM_REUSED] = { .name = "muster_router_upstream_reused_total",
        .type = METRIC_COUNTER, .help = "Calls that found an idle connection." },
    [RM_UPSTREAM_STALE] = { .name = "muster_router_upstream_stale_total", .type = METRIC_COUNTER,
        .help = "Of those, calls that found it closed and went on a new one." },
    [RM_UPSTREAM_REFUSED] = { .name = "muster_router_upstream_refused_total",
        .type = METRIC_COUNTER, .help = "Calls refused because too many connections were open." },
    [RM_UPSTREAM_LOCAL] = { .name = "muster_router_upstream_local_total",
        .type = METRIC_COUNTER, .help = "Calls that found no descriptor, local port or memory in "
        "this process; it says nothing of the engines." },
    [RM_NAMES_FAILED] = { .name = "muster_router_name_lookups_failed_total",
        .type = METRIC_COUNTER, .help = "Names that the resolver could not resolve." },
    [RM_NAMES_STALE] = { .name = "muster_router_name_stale_total", .type = METRIC_COUNTER,
        .help = "Calls that went to the last good address of a name which could not be resolved "
        "again." },
    [RM_LOOP_TURNS] = { .name = "muster_router_loop_turns_total", .type = METRIC_COUNTER,
        .help = "Times that a loop of the router woke up." },
    [RM_LOOP_POSTS_REFUSED] = { .name = "muster_router_loop_posts_refused_total",
        .type = METRIC_COUNTER, .help = "Posts to a loop that were refused because its mailbox was full." },
    [RM_LOG_LOST] = { .name = "muster_router_log_lost_lines", .type = METRIC_GAUGE,
        .unit = "lines", .help = "Log lines that could not be written since the start." },
};
// clang-format on

/* ---- services ---- */

#define NO_SERVICE STR("none")

static const enum router_metric service_metrics[] = {
    RM_TTFT,
    RM_TPOT,
    RM_E2E,
    RM_PROMPT_TOKENS,
    RM_CACHED_TOKENS,
    RM_EXPECTED_TOKENS,
    RM_GENERATED_TOKENS,
};

struct metric_series *router_metric_of(struct metrics *m, enum router_metric which,
                                       struct str service)
{
    struct str label = service.len > 0 ? service : NO_SERVICE;
    return metric_series(m, which, &label);
}

static struct metric_series *valued(struct metrics *m, enum router_metric which, const char *value,
                                    struct str service)
{
    const struct str labels[] = { str_from(value), service.len > 0 ? service : NO_SERVICE };
    return metric_series(m, which, labels);
}

void router_metric_count(struct metrics *m, enum router_metric which, const char *value,
                         struct str service)
{
    metric_inc(valued(m, which, value, service));
}

void router_metrics_service(struct metrics *m, struct str service)
{
    static const char *const outcomes[] = { "ok", "broken", "failed", "refused", "client_left" };
    static const char *const results[] = { "met", "missed" };
    for (size_t i = 0; i < COUNT_OF(service_metrics); i++)
        router_metric_of(m, service_metrics[i], service);
    for (size_t i = 0; i < COUNT_OF(outcomes); i++)
        valued(m, RM_REQUESTS, outcomes[i], service);
    for (size_t i = 0; i < COUNT_OF(results); i++)
        valued(m, RM_SLO_REQUESTS, results[i], service);
}

/* ---- tenants ---- */

static void tenant_meters_make(struct metrics *m, struct tenant_meters *t, struct str tenant)
{
    static const char *const kinds[] = { "prompt", "cached", "generated" };
    struct str label = tenant.len > 0 ? tenant : STR("(no key)");
    t->requests = metric_series(m, RM_TENANT_REQUESTS, &label);
    t->rejected = metric_series(m, RM_TENANT_REJECTED, &label);
    t->in_flight = metric_series(m, RM_TENANT_IN_FLIGHT, &label);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const struct str labels[] = { label, str_from(kinds[i]) };
        t->tokens[i] = metric_series(m, RM_TENANT_TOKENS, labels);
    }
}

void router_metrics_tenant(struct metrics *m, struct tenant_meters *t,
                           const struct tenant_usage *now, uint32_t in_flight)
{
    if (!t->requests && now->requests_total == 0 && now->rejected_total == 0) return;
    if (!t->requests) tenant_meters_make(m, t, now->tenant);
    const struct {
        struct metric_series *series;
        uint64_t before, now;
    } rows[] = {
        { t->requests, t->told.requests_total, now->requests_total },
        { t->rejected, t->told.rejected_total, now->rejected_total },
        { t->tokens[0], t->told.prompt_tokens_total, now->prompt_tokens_total },
        { t->tokens[1], t->told.cached_tokens_total, now->cached_tokens_total },
        { t->tokens[2], t->told.generated_tokens_total, now->generated_tokens_total },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        metric_add(rows[i].series, (double)(rows[i].now - rows[i].before));
    metric_set(t->in_flight, in_flight);
    t->told = *now;
    t->told.tenant = (struct str){ 0 };
}

/* ---- counters of all threads, summed once a second: no request pays for a metric ---- */

#define TELL_US 1000000

void loop_metrics_add(struct loop_metrics *w, const struct loop_metrics_source *wire)
{
    must(w->count < LOOP_METRICS_MAX);
    w->wire[w->count++] = *wire;
}

static void add_served(const struct loop_metrics_source *wire, struct http_server_counts *ret)
{
    struct http_server_counts s;
    if (!wire->server) return;
    http_server_counts_get(wire->server, &s);
    ret->requests += s.requests;
    ret->bytes_in += s.bytes_in;
    ret->bytes_out += s.bytes_out;
    ret->held_bytes += s.held_bytes;
}

static void sum_up(const struct loop_metrics *w, struct loop_counts *loops,
                   struct http_client_counts *calls, struct http_server_counts *served)
{
    *loops = (struct loop_counts){ 0 };
    *calls = (struct http_client_counts){ 0 };
    *served = (struct http_server_counts){ 0 };
    for (uint32_t i = 0; i < w->count; i++) {
        struct loop_counts l;
        struct http_client_counts c;
        loop_counts_get(w->wire[i].loop, &l);
        http_client_counts_get(w->wire[i].client, &c);
        loops->turns += l.turns;
        loops->posts_refused += l.posts_refused;
        calls->connections += c.connections;
        calls->idle += c.idle;
        calls->connects += c.connects;
        calls->reused += c.reused;
        calls->stale_retried += c.stale_retried;
        calls->refused += c.refused;
        calls->ended[HTTP_END_LOCAL] += c.ended[HTTP_END_LOCAL];
        calls->names.failed += c.names.failed;
        calls->names.stale += c.names.stale;
        add_served(&w->wire[i], served);
    }
}

/* Sets the gauges of busy and idle connections. The threads run on while their counts are read, so that
 * `idle` may be of a later moment than `connections`. */
static void tell_connections(struct loop_metrics *w, const struct http_client_counts *c)
{
    uint64_t idle = c->idle < c->connections ? c->idle : c->connections;
    const struct str states[] = { STR("busy"), STR("idle") };
    metric_set(metric_series(w->metrics, RM_UPSTREAM_CONNECTIONS, &states[0]),
               (double)(c->connections - idle));
    metric_set(metric_series(w->metrics, RM_UPSTREAM_CONNECTIONS, &states[1]), (double)idle);
}

void loop_metrics_tell(struct loop_metrics *w)
{
    struct loop_counts loops;
    struct http_client_counts calls;
    struct http_server_counts served;
    sum_up(w, &loops, &calls, &served);
    const struct {
        enum router_metric metric;
        uint64_t before, now;
    } rows[] = {
        { RM_UPSTREAM_CONNECTS, w->calls.connects, calls.connects },
        { RM_UPSTREAM_REUSED, w->calls.reused, calls.reused },
        { RM_UPSTREAM_STALE, w->calls.stale_retried, calls.stale_retried },
        { RM_UPSTREAM_REFUSED, w->calls.refused, calls.refused },
        { RM_UPSTREAM_LOCAL, w->calls.ended[HTTP_END_LOCAL], calls.ended[HTTP_END_LOCAL] },
        { RM_NAMES_FAILED, w->calls.names.failed, calls.names.failed },
        { RM_NAMES_STALE, w->calls.names.stale, calls.names.stale },
        { RM_HTTP_REQUESTS, w->served.requests, served.requests },
        { RM_HTTP_RECEIVED, w->served.bytes_in, served.bytes_in },
        { RM_HTTP_SENT, w->served.bytes_out, served.bytes_out },
        { RM_LOOP_TURNS, w->loops.turns, loops.turns },
        { RM_LOOP_POSTS_REFUSED, w->loops.posts_refused, loops.posts_refused },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        metric_add(metric_of(w->metrics, rows[i].metric), (double)(rows[i].now - rows[i].before));
    tell_connections(w, &calls);
    metric_set(metric_of(w->metrics, RM_HTTP_HELD), (double)served.held_bytes);
    w->loops = loops;
    w->calls = calls;
    w->served = served;
}

static void on_timer(void *arg)
{
    struct loop_metrics *w = arg;
    loop_metrics_tell(w);
    (void)loop_timer_set(w->own, &w->timer, loop_now_us(w->own) + TELL_US);
}

int loop_metrics_start(struct loop_metrics *w, struct loop *own)
{
    w->own = own;
    w->timer = (struct loop_timer){ .fn = on_timer, .arg = w };
    return loop_timer_set(own, &w->timer, loop_now_us(own) + TELL_US);
}
