/* vllm.c - the engine kind `vllm`.
 *
 * Readiness: /health answers 200 once the model serves; while it loads nothing listens. Drain: it gets no
 * new requests, and after the last one SIGTERM ends it; SIGTERM alone would cut what runs. KV events: on
 * Unix sockets in the instance's folder, because a TCP endpoint that vLLM binds to is open to the network
 * and tells every prompt's tokens.
 *
 * Names and forms are those of release 0.32 (tests/vectors/engines has its metrics and events). */
#include "agent/engines/engine_driver.h"

#include <stdio.h>

static bool is_serve(const struct engine_command *c)
{
    return c->arg_count > 0 && strcmp(c->arg[c->arg_count - 1], "serve") == 0;
}

static void add(struct engine_command *c, const struct engine_start *start)
{
    const struct launch_spec *s = start->spec;
    if (is_serve(c)) /* `vllm serve MODEL`; the module behind it takes a flag */
        command_arg(c, s->model);
    else
        command_flag(c, "--model", s->model);
    command_flag(c, "--served-model-name", s->served_name);
    command_flag(c, "--host", s->engine_host);
    command_number(c, "--port", start->port);
    command_number(c, "--max-model-len", s->context_tokens);
    command_number(c, "--max-num-seqs", s->seqs_max);
    command_text(c, "--enable-prompt-tokens-details"); /* its replies then name cached tokens */
    command_kv_events(c, start, true);
}

static void command(struct engine_command *c, const struct engine_start *start)
{
    char devices[REPORT_NAME_BYTES_MAX + 32];
    command_env(c, "VLLM_NO_USAGE_STATS=1");
    command_env(c, "DO_NOT_TRACK=1");
    snprintf(devices, sizeof devices, "CUDA_VISIBLE_DEVICES=" STR_FMT,
             STR_ARG(start->spec->device));
    if (start->spec->device.len > 0) command_env(c, devices);
    command_make(c, start, add);
}

static const struct engine_ask asks[] = {
    { .path = "/health", .take = take_nothing },
    { .path = "/v1/models", .once = true, .take = take_models },
    { .path = "/metrics", .take = take_metrics },
};

static const struct meter_row meters[] = {
    METER("vllm:num_requests_running", METER_RUNNING),
    METER("vllm:num_requests_waiting", METER_WAITING),
    METER("vllm:kv_cache_usage_perc", METER_KV_SHARE, .most = true),
    METER("vllm:cache_config_info", METER_PAGES, .label = "num_gpu_blocks"),
    METER("vllm:cache_config_info", METER_PAGE_TOKENS, .label = "block_size", .most = true),
    METER("vllm:prompt_tokens_total", METER_PROMPT_TOKENS),
    METER("vllm:prefix_cache_hits_total", METER_CACHED_TOKENS),
    METER("vllm:generation_tokens_total", METER_GENERATED_TOKENS),
    METER("vllm:request_success_total", METER_REQUESTS),
    METER("process_start_time_seconds", METER_STARTED_S, .most = true),
};

const struct engine_driver engine_vllm = {
    .kind = ENGINE_VLLM,
    .command = command,
    .ask = asks,
    .ask_count = COUNT_OF(asks),
    .meter = meters,
    .meter_count = COUNT_OF(meters),
    .start_us = 1800000000, /* weights, compiling and graphs of a large model */
    .publishes_kv = true,
};
