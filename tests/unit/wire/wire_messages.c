/* wire_messages.c - see wire_messages.h. */
#include "tests/unit/wire/wire_messages.h"

static const uint32_t ids[] = { 1, 2, 3, 0xffffff };
static const struct str stops[] = { { "a\n", 2 }, { "\xc3\xa4", 2 } };
static const struct block_key block_list[] = { { 1, 2 }, { UINT64_MAX, 3 } };

const struct generate_request wire_generate = {
    .id = { "req-1", 5 },
    .ids = ids,
    .id_count = 4,
    .prompt_tokens = 3,
    .sampling = { .temperature = 0.7,
                  .top_p = 0.95,
                  .min_p = 0.01,
                  .presence_penalty = -1,
                  .frequency_penalty = 2,
                  .repetition_penalty = 1.1,
                  .top_k = 40,
                  .has_seed = true,
                  .seed = UINT64_MAX },
    .max_tokens = 100,
    .min_tokens = 1,
    .stop = stops,
    .stop_count = 2,
    .ignore_eos = true,
    .tenant = { "t", 1 },
    .deadline_ms = 60000,
    .predicted_p50 = 50,
    .predicted_mean = 60,
    .has_rank = true,
    .rank = -1.5,
    .group = 255,
    .weight = 3,
    .goes_on = true,
    .kv_host = { "h", 1 },
    .kv_port = 8200,
    .kv_tls = true,
    .predicted_p90 = 90,
};
static const struct generate_frame frame = {
    .ids = ids,
    .id_count = 2,
    .text = { "h\xc3\xa9", 3 },
    .finish = FINISH_LENGTH,
    .has_usage = true,
    .usage = { 10, 8, 2 },
    .error = { "why", 3 },
};
const struct block_event wire_hello = {
    .kind = EVENT_HELLO,
    .seq = 9,
    .boot = 0x8000000000000001u,
    .block_tokens = 16,
    .page_tokens = 32,
    .digest = { "d", 1 },
    .salt_check = { "00", 2 },
};
const struct block_event wire_change = {
    .kind = EVENT_SNAPSHOT,
    .seq = 10,
    .keys = block_list,
    .key_count = 2,
    .more = true,
};
static const struct block_event load = {
    .kind = EVENT_LOAD,
    .seq = 11,
    .running = 3,
    .waiting = 2,
    .prefill_tokens = 900,
    .kv_tokens = 5000000000,
    .uncached_total = 7,
};
#define ENGINE                                                                                    \
    {                                                                                             \
        .host = { "127.0.0.1", 9 }, .port = 8200, .kind = ENGINE_OPENAI, .health = ENGINE_READY,  \
        .model = { "m", 1 }, .digest = { "d", 1 }, .numerics = { "avx2", 4 }, .boot = 7,          \
        .page_tokens = 32, .context_tokens = 2048, .step_tokens = 256, .kv_token_bytes = 1024,    \
        .running = 1, .running_max = 8, .waiting = 2, .pages_total = 100, .pages_free = 60,       \
        .pages_cached = 40, .has_perf = true, .perf = { 0.001, 1e-4, 2e-4, 3e-7, 0, 1000, 1.25 }, \
        .has_owed = true, .owed = { 900 }, .clock = 0.5, .cores = 2, .hardware = { "cpu", 3 },    \
        .has_work = true, .work = { 9.5, 4.5, 3, 100, 2, 7, 900, 800 }, .has_spec = true,         \
        .spec = { .layers = 4,                                                                    \
                  .hidden = 128,                                                                  \
                  .heads = 8,                                                                     \
                  .kv_heads = 2,                                                                  \
                  .head_dim = 16,                                                                 \
                  .ffn = 512,                                                                     \
                  .vocab = 4096,                                                                  \
                  .gated = true,                                                                  \
                  .weight_bytes = 1.0625,                                                         \
                  .kv_element_bytes = 2 },                                                        \
        .requests_total = 1, .prompt_tokens_total = 2, .cached_tokens_total = 3,                  \
        .generated_tokens_total = 4,                                                              \
    }
static const struct engine_report engine = ENGINE;
static const struct agent_report agent = {
    .instance = { "i-1", 3 },
    .intent = { "n-1", 3 },
    .boot = 1,
    .seq = 2,
    .state = AGENT_DRAINING,
    .restarts = 3,
    .trouble = { "it \"broke\"", 10 },
    .has_engine = true,
    .engine = ENGINE,
};
static const struct agent_reply wishes = {
    .known = true, .drain = true, .clock = 0.85, .lease_ms = 15000
};
static const struct engine_clock engine_clock = { 0.2 };
static const struct service_demand demands[] = { {
    .service = { "m", 1 },
    .arrivals_total = 1,
    .finished_total = 2,
    .failed_total = 3,
    .rejected_total = 4,
    .prompt_tokens_total = 5,
    .cached_tokens_total = 6,
    .generated_tokens_total = 7,
    .slo_met_total = 8,
    .slo_missed_total = 9,
    .arrival_per_s = 0.1,
    .late_refused_per_s = 0.05,
    .prompt_tokens_mean = 11,
    .predicted_tokens_mean = 12,
    .in_flight = 13,
    .held = 14,
    .held_prompt_tokens = 15,
    .held_oldest_s = 1.7,
    .queued_s = 1.8,
    .ttft_s = { 1, 2, 3, 4, 5 },
    .tpot_s = { 6, 7, 8, 9, 10 },
    .e2e_s = { 0 },
    .has_queued = true,
    .queued = { 3, 0.5, 30, 40, 1000, 2000, 1300, { { 2 }, { 0, 1 } } },
} };
static const struct endpoint_demand sent[] = { { { "i-1", 3 }, 1 } };
static const struct tenant_usage tenants_used[] = { { { "t", 1 }, 1, 2, 3, 4, 5 } };
static const struct router_sync sync_full = {
    .router = { "r-1", 3 },
    .boot = 1,
    .seq = 2,
    .host = { "h", 1 },
    .port = 8080,
    .window_s = 5,
    .tenants_version = 3,
    .services = demands,
    .service_count = 1,
    .endpoints = sent,
    .endpoint_count = 1,
    .usage = tenants_used,
    .usage_count = 1,
};
static const struct endpoint endpoints[] = {
    { .instance = { "i-1", 3 },
      .service = { "m", 1 },
      .pool = { "p", 1 },
      .model = { "m", 1 },
      .digest = { "d", 1 },
      .host = { "h", 1 },
      .port = 1,
      .kind = ENGINE_MUSTER,
      .state = ENDPOINT_DRAINING,
      .role = ROLE_DECODE,
      .boot = 2,
      .price_per_h = 0.25,
      .context_tokens = 3,
      .page_tokens = 4,
      .pages_total = 5,
      .running_max = 6,
      .step_tokens = 8,
      .kv_token_bytes = 9,
      .has_perf = true,
      .perf = { 1, 2, 3, 4, 0, 5, 6 },
      .clock = 0.5 },
    { .instance = { "i-2", 3 }, .service = { "m", 1 }, .host = { "h", 1 }, .port = 65535 },
};
static const struct starting starts[] = { { { "m", 1 }, 4000 } };
static const struct service_rules services[] = {
    { { "m", 1 }, { "random", 6 }, true, true, 2, 0.1, true, true, 1e9 }
};
static const struct str hashes[] = { { DIGEST, 64 } };
static const struct tenant_rules tenants[] = {
    { { "t", 1 }, hashes, 1, 60, 1000, 2, { "s", 1 }, 3 }
};
const struct router_rules wire_rules = {
    .endpoints = endpoints,
    .endpoint_count = 2,
    .has_complete = true,
    .starting = starts,
    .starting_count = 1,
    .services = services,
    .service_count = 1,
    .router_index = 1,
    .router_count = 2,
    .keys_required = true,
    .tenants_version = 4,
    .has_tenants = true,
    .tenants = tenants,
    .tenant_count = 1,
    .again_ms = 500,
};

#define CODEC(name, type)                                                                    \
    static int encode_##name(const void *in, struct buf *out)                                \
    {                                                                                        \
        return name##_encode((const struct type *)in, out);                                  \
    }                                                                                        \
    int wire_decode_##name(struct str text, struct arena *arena, void *ret, struct err *err) \
    {                                                                                        \
        return name##_decode(text, arena, (struct type *)ret, err);                          \
    }
CODEC(generate, generate_request)
CODEC(generate_frame, generate_frame)
CODEC(block_event, block_event)
CODEC(engine_report, engine_report)
CODEC(agent_report, agent_report)
CODEC(agent_reply, agent_reply)
CODEC(engine_clock, engine_clock)
CODEC(router_sync, router_sync)
CODEC(router_rules, router_rules)

#define MESSAGE(name, object)                                                                \
    {                                                                                        \
#        name " " #        object, &object, sizeof object, encode_##name, wire_decode_##name \
    }
const struct message wire_messages[WIRE_MESSAGES] = {
    MESSAGE(generate, wire_generate),    MESSAGE(generate_frame, frame),
    MESSAGE(block_event, wire_hello),    MESSAGE(block_event, wire_change),
    MESSAGE(block_event, load),          MESSAGE(engine_report, engine),
    MESSAGE(agent_report, agent),        MESSAGE(agent_reply, wishes),
    MESSAGE(router_sync, sync_full),     MESSAGE(router_rules, wire_rules),
    MESSAGE(engine_clock, engine_clock),
};
