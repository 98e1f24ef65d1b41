/* metrics.c - defines the table of the engine's metrics, and renders them under vLLM's names.
 *
 * Buckets: TTFT and e2e as vLLM's, so that dashboards overlay; ITL starts at half a millisecond,
 * because small models on fast hardware live below vLLM's first bucket of 10 ms. TPOT (mean of a
 * request) and ITL (each gap) are two metrics, because a mean hides stalls and single gaps show
 * them.
 */
#include "engine/serve/metrics.h"

#include "base/core/bits.h"
#include "base/io/log.h"

#include <errno.h>
#include <stdio.h>

static const double ttft_s[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,
                                 .75,  1,    2.5, 5,   7.5, 10,  20,  40, 80,  160 };
static const double gap_s[] = { .0005, .001, .002, .003, .004, .005, .0075, .01, .015, .02, .025,
                                .03,   .04,  .05,  .075, .1,   .15,  .2,    .3,  .5,   1,   2.5 };
static const double whole_s[] = { .05, .1, .2, .3, .5, .8, 1,  1.5, 2,   2.5, 5,
                                  10,  15, 20, 30, 40, 50, 60, 120, 240, 480, 960 };
static const double length[] = { 1,   2,    5,    10,   20,    50,    100,   200,
                                 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000 };
static const double batch[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192 };

#define SECONDS(meter_name, text, list)                                                      \
    {                                                                                        \
        .name = "muster_engine_" meter_name "_seconds", .type = METRIC_HISTOGRAM,            \
        .unit = "seconds", .help = (text), .buckets = (list), .bucket_count = COUNT_OF(list) \
    }
#define TOKENS(meter_name, text, list)                                                             \
    {                                                                                              \
        .name = "muster_engine_" meter_name "_tokens", .type = METRIC_HISTOGRAM, .unit = "tokens", \
        .help = (text), .buckets = (list), .bucket_count = COUNT_OF(list)                          \
    }
#define TOTAL(meter_name, of, text)                                                         \
    {                                                                                       \
        .name = "muster_engine_" meter_name "_total", .type = METRIC_COUNTER, .unit = (of), \
        .help = (text)                                                                      \
    }
#define GAUGE(meter_name, of, text)                                                             \
    {                                                                                           \
        .name = "muster_engine_" meter_name, .type = METRIC_GAUGE, .unit = (of), .help = (text) \
    }

// clang-format off
const struct metric_desc engine_metric_table[EM_COUNT] = {
    [EM_TTFT] = SECONDS("time_to_first_token", "From arrival to the first token.", ttft_s),
    [EM_ITL] = SECONDS("inter_token_latency", "Gap between two tokens of a session.", gap_s),
    [EM_TPOT] = SECONDS("time_per_output_token",
                           "Mean gap of a request, after its first token.", gap_s),
    [EM_E2E] = SECONDS("request", "From arrival to the last token.", whole_s),
    [EM_QUEUE] = SECONDS("request_queue", "From arrival to the first admission.", ttft_s),
    [EM_PREFILL] = SECONDS("request_prefill", "From admission to the first token.", ttft_s),
    [EM_DECODE] = SECONDS("request_decode", "From the first to the last token.", whole_s),
    [EM_PROMPT_LENGTH] = TOKENS("request_prompt", "Prompt length of ended requests.", length),
    [EM_OUTPUT_LENGTH] = TOKENS("request_generation", "Output length of ended requests.", length),
    [EM_STEP] = SECONDS("step", "One step, sleeping off a CPU share included.", gap_s),
    [EM_STEP_PREDICTED] = TOTAL("step_predicted_seconds", "seconds",
                                   "The step-time model's estimates of the same steps, summed."),
    [EM_STEP_TOKENS] = TOKENS("step", "Tokens computed in a step.", batch),
    [EM_PROMPT_TOKENS] = TOTAL("prompt_tokens", "tokens", "Prompt tokens of admitted requests."),
    [EM_GENERATED_TOKENS] = TOTAL("generation_tokens", "tokens", "Tokens generated."),
    [EM_DRAFTED] = TOTAL("draft_tokens", "tokens",
                            "Guessed tokens that steps computed, by the draft policy."),
    [EM_ACCEPTED] = TOTAL("draft_accepted_tokens", "tokens",
                             "Of them, those that were the output's next tokens."),
    [EM_DRAFT_GUESSED] = TOTAL("draft_guessed_tokens", "tokens",
                                  "Tokens that the draft model guessed, those included that no step computed."),
    [EM_DRAFT_COMPUTED] = TOTAL("draft_model_tokens", "tokens",
                                   "Tokens that the draft model computed, those included that it caught up on."),
    [EM_DRAFT_SECONDS] = TOTAL("draft_model_seconds", "seconds",
                                  "Time of steps that the draft model took."),
    [EM_DRAFT_KV_BYTES] = GAUGE("draft_kv_bytes", "bytes", "Memory of the draft model's KV pages, all of them."),
    [EM_DRAFT_KV_PAGES] = { .name = "muster_engine_draft_kv_pages", .type = METRIC_GAUGE, .unit = "pages",
                               .help = "The draft model's KV pages by state.", .labels = { "state" } },
    [EM_PREFIX_QUERIES] = TOTAL("prefix_cache_queries", "tokens",
                                   "Prompt tokens looked up in the prefix cache."),
    [EM_PREFIX_HITS] = TOTAL("prefix_cache_hits", "tokens",
                                "Prompt tokens found in the prefix cache."),
    [EM_PREEMPTIONS] = TOTAL("preemptions", NULL, "Sessions that gave their pages back."),
    [EM_PARKED] = TOTAL("parked", NULL,
                           "Sessions that gave their place to others and kept their pages."),
    [EM_SWAPS] = TOTAL("swaps", NULL,
                          "Preempted sessions whose pages were copied to the swap space."),
    [EM_SWAPPED] = { .name = "muster_engine_kv_pages_swapped_total", .type = METRIC_COUNTER,
                        .unit = "pages", .help = "KV pages that went to the swap space and back.",
                        .labels = { "direction" } },
    [EM_EVICTIONS] = TOTAL("kv_evictions", "pages", "Cached pages dropped for others."),
    [EM_KV_FETCHES] = { .name = "muster_engine_kv_fetches_total", .type = METRIC_COUNTER,
                         .help = "Fetches of a prefix's KV from a peer engine, by how they ended.",
                         .labels = { "end" } },
    [EM_KV_FETCHED] = TOTAL("kv_fetched_tokens", "tokens",
                              "Tokens whose KV came from a peer engine into the prefix cache."),
    [EM_KV_SENT] = TOTAL("kv_sent_bytes", "bytes", "KV of the prefix cache sent to peer engines."),
    [EM_FINISHED] = { .name = "muster_engine_requests_finished_total", .type = METRIC_COUNTER,
                         .help = "Requests that ended, by reason.", .labels = { "reason" } },
    [EM_REFUSED] = TOTAL("requests_refused", NULL, "Requests refused because too many waited."),
    [EM_EMBEDDED] = TOTAL("embedded_texts", NULL,
                             "Texts whose vector was computed, for embeddings, scores and rankings."),
    [EM_ADAPTERS] = GAUGE("adapters", NULL, "LoRA adapters that requests can name."),
    [EM_ADAPTER_BYTES] = GAUGE("adapter_bytes", "bytes",
                                  "Memory of LoRA adapters, those included that are unloaded and in use."),
    [EM_ADAPTER_REQUESTS] = { .name = "muster_engine_adapter_requests_total", .type = METRIC_COUNTER,
                                 .help = "Outputs begun with a LoRA adapter, by its name.",
                                 .labels = { "adapter" }, .series_max = 128 },
    [EM_TEXT_BYTES] = GAUGE("text_bytes", "bytes",
                               "Large bodies that wait for a text worker or are at one."),
    [EM_TEXT_REFUSED] = TOTAL("text_refused", NULL,
                                 "Large bodies refused with 429 because so many bytes were waiting."),
    [EM_TEXT_SECONDS] = SECONDS("text", "From a large body to its tokens: waiting and work.", ttft_s),
    [EM_HTTP_REQUESTS] = { .name = "muster_engine_http_requests_total", .type = METRIC_COUNTER,
                              .help = "HTTP replies by path and status.",
                              .labels = { "path", "status" }, .series_max = 256 },
    [EM_HTTP_CONNECTIONS] = { .name = "muster_engine_http_connections", .type = METRIC_GAUGE,
        .help = "Connections that are open." },
    [EM_HTTP_REFUSED] = { .name = "muster_engine_http_refused_total", .type = METRIC_COUNTER,
        .labels = { "reason" },
        .help = "Requests and connections that never came to a handler: malformed, too large, late." },
    [EM_HTTP_CUT] = { .name = "muster_engine_http_cut_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Replies that did not come to their end." },
    [EM_SIGNED] = { .name = "muster_engine_signed_requests_total", .type = METRIC_COUNTER,
        .labels = { "verdict" }, .help = "Requests that a part signed, by what became of them: "
        "fresh, stale (told to sign again), foreign; forgotten: sessions beyond the bound." },
    [EM_HTTP_CLOSED] = { .name = "muster_engine_http_closed_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Connections without a request that were closed: idle for "
        "too long, or the longest idle for the room of a new one." },
    [EM_TRACE_SPANS] = { .name = "muster_engine_trace_spans_total", .type = METRIC_COUNTER,
        .unit = "spans", .labels = { "result" }, .help = "Spans by what became of them: exported, "
        "refused by the collector, queue_full, undelivered." },
    [EM_TRACE_EXPORTS] = { .name = "muster_engine_trace_exports_total", .type = METRIC_COUNTER,
        .labels = { "result" }, .help = "Calls to the collector of traces: ok, partial, again (429, "
        "502, 503, 504, or out of reach), refused." },
    [EM_TRACE_REQUESTS] = { .name = "muster_engine_traced_requests_total", .type = METRIC_COUNTER,
        .labels = { "decision" }, .help = "Requests that the sampler took (sampled), that were taken at "
        "their end as slow or failed (late), or that trace_spans_max left out (capped)." },
    [EM_TRACE_IGNORED] = { .name = "muster_engine_trace_headers_ignored_total",
        .type = METRIC_COUNTER, .labels = { "header" },
        .help = "Malformed traceparent and tracestate headers, which were ignored." },
    [EM_LOG_LOST] = { .name = "muster_engine_log_lost_lines", .type = METRIC_GAUGE, .unit = "lines",
        .help = "Log lines that could not be written since the start." },
    [EM_RUNNING] = GAUGE("requests_running", NULL, "Requests that are computed now."),
    [EM_WAITING] = GAUGE("requests_waiting", NULL, "Requests that wait for admission."),
    [EM_PAUSED] = GAUGE("requests_paused", NULL, "Requests whose reader is slow."),
    [EM_OWED] = GAUGE("owed_prompt_tokens", "tokens",
                         "Prompt tokens of accepted requests that are not computed yet."),
    [EM_KV_USAGE] = GAUGE("kv_usage_ratio", NULL, "Share of the KV memory that requests hold."),
    [EM_KV_PAGES] = { .name = "muster_engine_kv_pages", .type = METRIC_GAUGE, .unit = "pages",
                         .help = "KV memory by state, in whole pages.", .labels = { "state" } },
    [EM_PERF] = { .name = "muster_engine_perf_coefficient_seconds", .type = METRIC_GAUGE,
                     .unit = "seconds",
                     .help = "Step-time model: step_s, prefill_token_s (a prompt token), decode_seq_s (a "
                             "decoding sequence), kv_read_s (a cached token that one reads), attend_s (a "
                             "prompt token attending to one).",
                     .labels = { "term" } },
    [EM_PERF_SAMPLES] = GAUGE("perf_samples", NULL, "Steps behind the step-time model."),
    [EM_PERF_RATIO] = GAUGE("perf_ratio_p90", NULL,
                               "Nine steps in ten took at most this many times the estimate."),
    [EM_STALLS] = TOTAL("stalls", NULL, "Times that the device held work and made no step."),
    [EM_STALLED] = GAUGE("stalled_seconds", "seconds",
                            "Since the last step of a device that has stalled; 0: it has not."),
    [EM_THROTTLED] = TOTAL("throttled_seconds", "seconds", "Slept to keep the CPU share and the clock."),
    [EM_SLEEPING] = GAUGE("sleeping", NULL, "1 while the weights are out of memory (/sleep)."),
    [EM_CLOCK] = GAUGE("clock_ratio", NULL, "Share of full speed that the engine keeps to."),
    [EM_INFO] = { .name = "muster_engine_info", .type = METRIC_GAUGE,
                     .help = "1, labelled with what is served.",
                     .labels = { "model", "digest", "numerics", "version" } },
    [EM_POLICY] = { .name = "muster_engine_policy_info", .type = METRIC_GAUGE,
                       .help = "1, labelled with the policy of each kind that decides.",
                       .labels = { "kind", "row" } },
};
// clang-format on

int engine_metrics_init(struct engine_metrics *m, struct err *err)
{
    *m = (struct engine_metrics){ 0 };
    int rc = metrics_new(engine_metric_table, EM_COUNT, NULL, 0, &m->metrics, err);
    if (rc < 0) return rc;
    for (int i = SESSION_END_NONE + 1; i < SESSION_END_COUNT; i++) {
        struct str reason = str_from(session_end_name((enum session_end)i));
        m->finished[i] = metric_series(m->metrics, EM_FINISHED, &reason);
    }
    const struct str states[] = { STR("free"), STR("held"), STR("cached") };
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        m->pages[i] = metric_series(m->metrics, EM_KV_PAGES, &states[i]);
    }
    for (size_t i = 0; i < COUNT_OF(m->draft_pages); i++)
        m->draft_pages[i] = metric_series(m->metrics, EM_DRAFT_KV_PAGES, &states[i]);
    const struct str ways[] = { STR("out"), STR("in") };
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        m->swapped[i] = metric_series(m->metrics, EM_SWAPPED, &ways[i]);
    const struct str terms[] = { STR("step_s"), STR("prefill_token_s"), STR("decode_seq_s"),
                                 STR("kv_read_s"), STR("attend_s") };
    for (size_t i = 0; i < COUNT_OF(terms); i++) {
        m->perf[i] = metric_series(m->metrics, EM_PERF, &terms[i]);
    }
    return 0;
}

void engine_metrics_fini(struct engine_metrics *m)
{
    metrics_free(m->metrics);
    m->metrics = NULL;
}

static void series_rose(struct metric_series *s, uint64_t before, uint64_t now)
{
    if (now > before) metric_add(s, (double)(now - before));
}

static void rose(struct engine_metrics *m, enum engine_metric which, uint64_t before, uint64_t now)
{
    series_rose(engine_metric(m, which), before, now);
}

void engine_metrics_counts(struct engine_metrics *m, const struct sched_counts *before,
                           const struct sched_counts *now)
{
    rose(m, EM_PROMPT_TOKENS, before->prompt_tokens, now->prompt_tokens);
    rose(m, EM_GENERATED_TOKENS, before->generated_tokens, now->generated_tokens);
    rose(m, EM_DRAFTED, before->drafted_tokens, now->drafted_tokens);
    rose(m, EM_ACCEPTED, before->accepted_tokens, now->accepted_tokens);
    rose(m, EM_PREFIX_QUERIES, before->query_tokens, now->query_tokens);
    rose(m, EM_PREFIX_HITS, before->hit_tokens, now->hit_tokens);
    rose(m, EM_PREEMPTIONS, before->preemptions, now->preemptions);
    rose(m, EM_PARKED, before->parked, now->parked);
    rose(m, EM_SWAPS, before->swaps, now->swaps);
    series_rose(m->swapped[0], before->swapped_out, now->swapped_out);
    series_rose(m->swapped[1], before->swapped_in, now->swapped_in);
    rose(m, EM_REFUSED, before->refused, now->refused);
    for (int i = SESSION_END_NONE + 1; i < SESSION_END_COUNT; i++)
        series_rose(m->finished[i], before->ended[i], now->ended[i]);
    metric_set(engine_metric(m, EM_RUNNING), now->running);
    metric_set(engine_metric(m, EM_WAITING), now->waiting);
    metric_set(engine_metric(m, EM_PAUSED), now->paused);
}

void engine_metrics_drafter(struct engine_metrics *m, const struct drafter_counts *before,
                            const struct drafter_counts *now)
{
    rose(m, EM_DRAFT_GUESSED, before->guessed, now->guessed);
    rose(m, EM_DRAFT_COMPUTED, before->computed, now->computed);
    if (now->seconds > before->seconds)
        metric_add(engine_metric(m, EM_DRAFT_SECONDS), now->seconds - before->seconds);
    metric_set(m->draft_pages[0], now->pages_free);
    metric_set(m->draft_pages[1], now->pages_held);
}

static double seconds(int64_t from_us, int64_t to_us)
{
    return (double)(to_us - from_us) * 1e-6;
}

void engine_metrics_ended(struct engine_metrics *m, const struct session *session, int64_t last_us)
{
    uint32_t generated = session_generated(session);
    int64_t first_us = session->first_token_us;
    metric_observe(engine_metric(m, EM_PROMPT_LENGTH), session->prompt_tokens);
    metric_observe(engine_metric(m, EM_OUTPUT_LENGTH), generated);
    metric_observe(engine_metric(m, EM_E2E), seconds(session->arrival_us, session->ended_us));
    if (session->admitted_once) {
        metric_observe(engine_metric(m, EM_QUEUE),
                       seconds(session->arrival_us, session->admitted_us));
    }
    if (generated == 0) return;
    metric_observe(engine_metric(m, EM_PREFILL), seconds(session->admitted_us, first_us));
    metric_observe(engine_metric(m, EM_DECODE), seconds(first_us, last_us));
    if (generated > 1) {
        metric_observe(engine_metric(m, EM_TPOT), seconds(first_us, last_us) / (generated - 1));
    }
}

void engine_metrics_policy(struct engine_metrics *m, const char *kind, const char *row)
{
    if (!row) return;
    const struct str labels[] = { str_from(kind), str_from(row) };
    metric_set(metric_series(m->metrics, EM_POLICY, labels), 1);
}

void engine_metrics_adapter(struct engine_metrics *m, struct str name)
{
    metric_inc(metric_series(m->metrics, EM_ADAPTER_REQUESTS, &name));
}

void engine_metrics_http(struct engine_metrics *m, struct str path, int status)
{
    char code[12];
    int len = snprintf(code, sizeof code, "%d", status);
    const struct str labels[] = { path, str_of(code, (size_t)len) };
    metric_inc(metric_series(m->metrics, EM_HTTP_REQUESTS, labels));
}

/* ---- metrics under vLLM's names ------------------------------------------------------------- */

struct vllm_row {
    const char *name;
    enum engine_metric meter;
};

static const struct vllm_row vllm_gauges[] = {
    { "vllm:num_requests_running", EM_RUNNING },
    { "vllm:num_requests_waiting", EM_WAITING },
    { "vllm:kv_cache_usage_perc", EM_KV_USAGE },
};
static const struct vllm_row vllm_counters[] = {
    { "vllm:prefix_cache_queries_total", EM_PREFIX_QUERIES },
    { "vllm:prefix_cache_hits_total", EM_PREFIX_HITS },
    { "vllm:num_preemptions_total", EM_PREEMPTIONS },
    { "vllm:prompt_tokens_total", EM_PROMPT_TOKENS },
    { "vllm:generation_tokens_total", EM_GENERATED_TOKENS },
    { "vllm:spec_decode_num_draft_tokens_total", EM_DRAFTED },
    { "vllm:spec_decode_num_accepted_tokens_total", EM_ACCEPTED },
};
static const struct vllm_row vllm_histograms[] = {
    { "vllm:time_to_first_token_seconds", EM_TTFT },
    { "vllm:inter_token_latency_seconds", EM_ITL },
    { "vllm:e2e_request_latency_seconds", EM_E2E },
    { "vllm:request_queue_time_seconds", EM_QUEUE },
};

static void put_values(const struct engine_metrics *m, const struct vllm_row *row, size_t count,
                       const char *type, const char *labels, struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "# TYPE %s %s\n%s{%s} %.17g\n", row[i].name, type, row[i].name, labels,
                   metric_value(engine_metric(m, row[i].meter)));
    }
}

static void put_histogram(const struct engine_metrics *m, const struct vllm_row *row,
                          const char *labels, struct buf *out)
{
    struct metric_snapshot s;
    metric_snapshot(engine_metric(m, row->meter), &s);
    buf_printf(out, "# TYPE %s histogram\n", row->name);
    uint64_t below = 0;
    for (uint32_t i = 0; i < s.bucket_count; i++) {
        below += s.counts[i];
        buf_printf(out, "%s_bucket{%s,le=\"%g\"} %lu\n", row->name, labels, s.bounds[i],
                   (unsigned long)below);
    }
    buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %lu\n", row->name, labels, (unsigned long)s.count);
    buf_printf(out, "%s_sum{%s} %.17g\n%s_count{%s} %lu\n", row->name, labels, s.sum, row->name,
               labels, (unsigned long)s.count);
}

int engine_metrics_render_vllm(const struct engine_metrics *m, struct str model, struct buf *out)
{
    CLEANUP(buf_fini) struct buf labels = { 0 };
    buf_text(&labels, "model_name=\"");
    for (size_t i = 0; i < model.len; i++) {
        if (model.data[i] == '"' || model.data[i] == '\\') buf_byte(&labels, '\\');
        buf_byte(&labels, model.data[i] == '\n' ? ' ' : model.data[i]);
    }
    buf_text(&labels, "\",engine=\"0\"");
    if (labels.rc < 0) return labels.rc;
    put_values(m, vllm_gauges, COUNT_OF(vllm_gauges), "gauge", labels.data, out);
    put_values(m, vllm_counters, COUNT_OF(vllm_counters), "counter", labels.data, out);
    for (size_t i = 0; i < COUNT_OF(vllm_histograms); i++) {
        put_histogram(m, &vllm_histograms[i], labels.data, out);
    }
    return out->rc;
}

/* The step log buffers its lines and flushes none between a step and the next. */

int step_log_open(struct step_log *log, struct str path, struct err *err)
{
    *log = (struct step_log){ 0 };
    if (path.len == 0) return 0;
    log->file = fopen(path.data, "we");
    if (!log->file) {
        int rc = -errno;
        return err_set(err, rc, "--step-log " STR_FMT ": %s", STR_ARG(path), err_text(NULL, rc));
    }
    fputs("prefill_tokens,prefill_chunks,decoding_seqs,kv_tokens_read,kv_tokens_decoding,seconds\n",
          log->file);
    return 0;
}

static void end_log(struct step_log *log, const char *why)
{
    log_event(LOG_WARN, "step_log_ended", "lines=%u why=%s", log->lines, why);
    step_log_close(log);
}

void step_log_add(struct step_log *log, const struct perf_shape *shape, double seconds)
{
    if (!log->file) return;
    int rc =
        fprintf(log->file, "%u,%u,%u,%lu,%lu,%.9f\n", shape->prefill_tokens, shape->prefill_chunks,
                shape->decoding_seqs, (unsigned long)shape->kv_tokens_read,
                (unsigned long)shape->kv_tokens_decoding, seconds);
    if (rc < 0) {
        end_log(log, "write_failed");
    } else if (++log->lines == STEP_LOG_LINES) {
        end_log(log, "full");
    }
}

void step_log_close(struct step_log *log)
{
    if (log->file && fclose(log->file) != 0) log_event(LOG_WARN, "step_log_incomplete", " ");
    log->file = NULL;
}
