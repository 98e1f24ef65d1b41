/* sglang.c - the engine kind `sglang`.
 *
 * Readiness: /health answers 200 once the model serves and 503 before. Drain: as with vLLM, SIGTERM comes
 * after the last request. KV events: as with vLLM, in the array form; with a page of one token, its
 * default, sixteen of its blocks make one of ours.
 *
 * Its names are those of its sources and documents; no release of it was run here, so the tests use a
 * stand-in (tests/proc/rig/fake_server.c). */
#include "agent/engines/engine_driver.h"
#include "base/core/json.h"

static void add(struct engine_command *c, const struct engine_start *start)
{
    const struct launch_spec *s = start->spec;
    command_flag(c, "--model-path", s->model);
    command_flag(c, "--served-model-name", s->served_name);
    command_flag(c, "--host", s->engine_host);
    command_number(c, "--port", start->port);
    command_number(c, "--context-length", s->context_tokens);
    command_number(c, "--max-running-requests", s->seqs_max);
    command_flag(c, "--device", s->device);
    command_text(c, "--enable-metrics");
    command_text(c, "--enable-cache-report"); /* its replies then name cached tokens */
    command_kv_events(c, start, false);
}

static void command(struct engine_command *c, const struct engine_start *start)
{
    command_make(c, start, add);
}

/* Reads what the server was started with: the size of a page, and how many requests it runs at once. */
static int take_server(struct engine_sight *s, struct str body, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the server's settings");
    while (json_next(&r) == JSON_KEY) {
        uint64_t number;
        uint32_t *to = json_key_is(&r, "page_size")              ? &s->page_tokens
                       : json_key_is(&r, "max_running_requests") ? &s->seqs_max
                                                                 : NULL;
        if (!to) {
            json_skip(&r);
            continue;
        }
        json_next(&r);
        if (json_u64(&r, &number) == 0 && number > 0 && number < 1u << 20) *to = (uint32_t)number;
        json_skip_rest(&r);
    }
    return r.token == JSON_OBJECT_END ? 0 : json_fail(&r, err, "the server's settings");
}

static const struct engine_ask asks[] = {
    { .path = "/health", .take = take_nothing },
    { .path = "/v1/models", .once = true, .take = take_models },
    { .path = "/get_server_info", .once = true, .optional = true, .take = take_server },
    { .path = "/server_info", .once = true, .optional = true, .take = take_server },
    { .path = "/metrics", .take = take_metrics },
};

static const struct meter_row meters[] = {
    METER("sglang:num_running_reqs", METER_RUNNING),
    METER("sglang:num_queue_reqs", METER_WAITING),
    METER("sglang:token_usage", METER_KV_SHARE, .most = true),
    METER("sglang:max_total_num_tokens", METER_KV_TOKENS_MAX),
    METER("sglang:prompt_tokens_total", METER_PROMPT_TOKENS),
    METER("sglang:cached_tokens_total", METER_CACHED_TOKENS),
    METER("sglang:generation_tokens_total", METER_GENERATED_TOKENS),
    METER("sglang:num_requests_total", METER_REQUESTS),
    METER("process_start_time_seconds", METER_STARTED_S, .most = true),
};

const struct engine_driver engine_sglang = {
    .kind = ENGINE_SGLANG,
    .command = command,
    .ask = asks,
    .ask_count = COUNT_OF(asks),
    .meter = meters,
    .meter_count = COUNT_OF(meters),
    .start_us = 1800000000, /* weights, compiling and graphs of a large model */
    .publishes_kv = true,
    .page_tokens = 1, /* its default */
};
