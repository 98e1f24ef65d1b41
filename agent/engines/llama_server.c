/* llama_server.c - the engine kind `llama_server`: llama.cpp's own server.
 *
 * Readiness: /health answers 503 while it loads the model and 200 then. Drain: SIGTERM comes after the last
 * request. It publishes no KV events and has no pages: each of its slots keeps the KV of the sequence that
 * it ran last, so what it has cached is known from what was sent to it and from the cached tokens that
 * its replies name.
 *
 * Its context is shared out among its slots, so that the flag is the context of one times their number. */
#include "agent/engines/engine_driver.h"
#include "base/core/json.h"

static void add(struct engine_command *c, const struct engine_start *start)
{
    const struct launch_spec *s = start->spec;
    uint32_t slots = s->seqs_max ? s->seqs_max : engine_traits[ENGINE_LLAMA_SERVER].seqs;
    command_flag(c, "--model", s->model);
    command_flag(c, "--alias", s->served_name);
    command_flag(c, "--host", s->engine_host);
    command_number(c, "--port", start->port);
    command_number(c, "--ctx-size", (uint64_t)s->context_tokens * slots);
    command_number(c, "--parallel", slots);
    command_flag(c, "--device", s->device);
    command_text(c, "--metrics");
    command_text(c, "--no-webui");
}

static void command(struct engine_command *c, const struct engine_start *start)
{
    command_make(c, start, add);
}

static int take_props(struct engine_sight *s, struct str body, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the server's properties");
    while (json_next(&r) == JSON_KEY) {
        uint64_t slots;
        if (!json_key_is(&r, "total_slots")) {
            json_skip(&r);
            continue;
        }
        json_next(&r);
        if (json_u64(&r, &slots) == 0 && slots > 0 && slots < 1u << 16)
            s->seqs_max = (uint32_t)slots;
        json_skip_rest(&r);
    }
    return r.token == JSON_OBJECT_END ? 0 : json_fail(&r, err, "the server's properties");
}

static const struct engine_ask asks[] = {
    { .path = "/health", .take = take_nothing },
    { .path = "/v1/models", .once = true, .take = take_models },
    { .path = "/props", .once = true, .optional = true, .take = take_props },
    { .path = "/metrics", .take = take_metrics },
};

static const struct meter_row meters[] = {
    METER("llamacpp:requests_processing", METER_RUNNING),
    METER("llamacpp:requests_deferred", METER_WAITING),
    METER("llamacpp:prompt_tokens_total", METER_COMPUTED_TOKENS),
    METER("llamacpp:prompt_tokens_cached_total", METER_CACHED_TOKENS),
    METER("llamacpp:tokens_predicted_total", METER_GENERATED_TOKENS),
};

const struct engine_driver engine_llama_server = {
    .kind = ENGINE_LLAMA_SERVER,
    .command = command,
    .ask = asks,
    .ask_count = COUNT_OF(asks),
    .meter = meters,
    .meter_count = COUNT_OF(meters),
    .tokenizer_in_model = true,
};
