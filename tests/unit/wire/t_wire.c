/* t_wire.c - tests every internal message: there and back, members that an older peer leaves out,
 * bounds, and memory that runs out at any point. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/sync.h"
#include "tests/unit/unit.h"

#define DIGEST "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define STRUCT_BYTES_MAX 4096 /* of a message decoded */

typedef int (*encode_fn)(const void *in, struct buf *out);
typedef int (*decode_fn)(struct str text, struct arena *arena, void *ret, struct err *err);

struct message {
    const char *name;
    const void *example;
    size_t size;
    encode_fn encode;
    decode_fn decode;
};

#define WIRE_MESSAGES 11

static const uint32_t ids[] = { 1, 2, 3, 0xffffff };
static const struct str stops[] = { { "a\n", 2 }, { "\xc3\xa4", 2 } };
static const struct block_key block_list[] = { { 1, 2 }, { UINT64_MAX, 3 } };

static const struct generate_request wire_generate = {
    .id = { "req-1", 5 },
    .ids = ids,
    .id_count = 4,
    .prompt_tokens = 3,
    .sampling = { .unnamed = 3,
                  .temperature = 0.7,
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

static const struct token_value values[] = {
    { 3, -0.5f }, { 0xffffff, -1e-42f }, { 0, -9999 }, { 7, -0.0f }
};

static const struct generate_frame frame = {
    .ids = ids,
    .id_count = 2,
    .text = { "h\xc3\xa9", 3 },
    .logprobs = values,
    .logprob_count = 4,
    .finish = FINISH_LENGTH,
    .has_usage = true,
    .usage = { 10, 8, 2 },
    .stopped = { "\n", 1 },
    .error = { "why", 3 },
};

static const struct block_event wire_hello = {
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
    .head_pages = 6,
    .uncached_total = 7,
};

#define ENGINE                                                                                    \
    {                                                                                             \
        .host = { "127.0.0.1", 9 }, .port = 8200, .kind = ENGINE_OPENAI, .health = ENGINE_READY,  \
        .agent_host = { "::1", 3 }, .agent_port = 8100, .agent_tls = true, .kv_events = true,     \
        .service = { "chat", 4 }, .model = { "m", 1 }, .digest = { "d", 1 },                      \
        .numerics = { "avx2", 4 }, .boot = 7, .page_tokens = 32, .context_tokens = 2048,          \
        .step_tokens = 256, .kv_token_bytes = 1024, .task = MODEL_SCORE, .running = 1,            \
        .running_max = 8, .waiting = 2, .pages_total = 100, .pages_free = 60, .pages_cached = 40, \
        .has_perf = true, .perf = { 0.001, 1e-4, 2e-4, 3e-7, 0, 1000, 1.25 }, .has_owed = true,   \
        .owed = { 900 }, .clock = 0.5, .cores = 2, .hardware = { "cpu", 3 }, .has_work = true,    \
        .work = { 9.5, 4.5, 3, 100, 2, 7, 900, 800 }, .has_spec = true,                           \
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

static const struct wire_gpu gpus[] = { { .name = { "NVIDIA H100 80GB HBM3", 21 },
                                          .uuid = { "GPU-1", 5 },
                                          .hardware = { "h100", 4 },
                                          .memory_bytes = UINT64_C(85899345920),
                                          .measured = true,
                                          .memory_used_bytes = 1,
                                          .busy = 0.5,
                                          .celsius = 60,
                                          .watts = 500 },
                                        { .name = { "A100", 4 }, .mig = true } };
static const struct wire_fault faults[] = { { { "xid_79", 6 }, 1 } };

static const struct agent_report agent = {
    .instance = { "i-1", 3 },
    .intent = { "n-1", 3 },
    .service = { "chat", 4 },
    .pool = { "p", 1 },
    .boot = 1,
    .seq = 2,
    .state = AGENT_DRAINING,
    .restarts = 3,
    .trouble = { "it \"broke\"", 10 },
    .machine = MACHINE_BROKEN,
    .machine_code = { "xid_79", 6 },
    .machine_why = { "GPU 0: Xid 79", 13 },
    .gpus = gpus,
    .gpu_count = COUNT_OF(gpus),
    .faults = faults,
    .fault_count = COUNT_OF(faults),
    .has_engine = true,
    .engine = ENGINE,
};

static const struct str dialled[] = { { "https://r:8080", 14 }, { "[::1]:80", 8 } };

static const struct agent_reply wishes = { .known = true,
                                           .drain = true,
                                           .clock = 0.85,
                                           .lease_ms = 15000,
                                           .routers = dialled,
                                           .router_count = 2 };

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

static const struct endpoint_demand sent[] = { {
    .instance = { "i-1", 3 },
    .in_flight = 1,
    .has_perf = true,
    .perf = { 0.002, 1e-4, 2e-4, 3e-7, 0, 100, 1.5 },
} };
static const struct tenant_work work[] = { { { "m", 1 }, 6 }, { { "n", 1 }, 7 } };
static const struct tenant_usage tenants_used[] = { { { "t", 1 }, 1, 2, 3, 4, 5, work, 2 } };

static const struct router_sync sync_full = {
    .router = { "r-1", 3 },
    .boot = 1,
    .seq = 2,
    .host = { "h", 1 },
    .port = 8080,
    .reach = { "https://r:8080", 14 },
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
      .kind = ENGINE_LLAMA_SERVER,
      .agent_host = { "a", 1 },
      .agent_port = 8100,
      .agent_tls = true,
      .kv_events = true,
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
      .task = MODEL_EMBED,
      .has_perf = true,
      .perf = { 1, 2, 3, 4, 0, 5, 6 },
      .clock = 0.5 },
    { .instance = { "i-2", 3 }, .service = { "m", 1 }, .host = { "h", 1 }, .port = 65535 },
};

static const struct starting starts[] = { { { "m", 1 }, 4000 } };

static const struct service_rules services[] = {
    { { "m", 1 }, { "random", 6 }, true, true, 2, 0.1, true, true, 1e9, 90000 }
};

static const struct str hashes[] = { { DIGEST, 64 } };

static const struct tenant_rules tenants[] = {
    { { "t", 1 }, hashes, 1, 60, 1000, 2, { "s", 1 }, 3 }
};

static const struct router_rules wire_rules = {
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

#define CODEC(name, type)                                                          \
    static int encode_##name(const void *in, struct buf *out)                      \
    {                                                                              \
        return name##_encode((const struct type *)in, out);                        \
    }                                                                              \
    static int wire_decode_##name(struct str text, struct arena *arena, void *ret, \
                                  struct err *err)                                 \
    {                                                                              \
        return name##_decode(text, arena, (struct type *)ret, err);                \
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

/* A message encoded, decoded and encoded again has the same text. With the spot checks below this
 * pins every member, because the examples leave none at its default. */
static void there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wire_messages); i++) {
        const struct message *m = &wire_messages[i];
        CLEANUP(buf_fini) struct buf first = { 0 };
        CLEANUP(buf_fini) struct buf second = { 0 };
        CLEANUP(arena_fini) struct arena arena = { 0 };
        _Alignas(16) char back[STRUCT_BYTES_MAX];
        struct err err = { 0 };
        assert_true(m->size <= sizeof back);
        arena_init(&arena, 1 << 20);
        assert_int_equal(m->encode(m->example, &first), 0);
        int rc = m->decode(buf_view(&first), &arena, back, &err);
        if (rc < 0) fail_msg("%s: %s\n%s", m->name, err.text, first.data);
        buf_text(&first, ""); /* NUL */
        assert_int_equal(m->encode(back, &second), 0);
        assert_string_equal(first.data, second.data);
    }
}

/* Values have a version of their own, as a grammar has, and their floats arrive bit for bit. */
static void values_arrive(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct generate_request g = { 0 }, with = wire_generate;
    arena_init(&arena, 1 << 20);
    with.grammar = (struct grammar_spec){ GRAMMAR_REGEX, STR("a") };
    with.logprobs = true;
    with.top_logprobs = 20;
    with.logit_bias = values;
    with.bias_count = 2;
    generate_encode(&with, &text);
    assert_non_null(strstr(text.data, "{\"v\":4,"));
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_true(g.logprobs && g.top_logprobs == 20 && g.grammar.kind == GRAMMAR_REGEX);
    assert_true(g.bias_count == 2 && g.logit_bias[1].id == 0xffffff);
    struct generate_frame f = { 0 };
    buf_clear(&text);
    generate_frame_encode(&frame, &text);
    assert_non_null(strstr(text.data, "\"logprobs\":\"AAADC/AAAA"));
    assert_int_equal(generate_frame_decode(buf_view(&text), &arena, &f, NULL), 0);
    assert_int_equal(f.logprob_count, COUNT_OF(values));
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        assert_int_equal(f.logprobs[i].id, values[i].id);
        assert_memory_equal(&f.logprobs[i].value, &values[i].value, sizeof(float));
    }
}

/* Log-probabilities of a prompt have a version of their own, and their frames no tokens. */
static void scores_arrive(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct generate_request g = { 0 }, with = wire_generate;
    arena_init(&arena, 1 << 20);
    with.logprobs = with.prompt_only = true;
    with.prompt_logprobs_from = 2;
    generate_encode(&with, &text);
    assert_non_null(strstr(text.data, "{\"v\":6,"));
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_true(g.prompt_only && g.prompt_logprobs_from == 2);
    buf_clear(&text);
    const struct token_value value[] = { { 7, -0.5f }, { 8, LOGPROB_NONE } };
    const struct generate_frame scores = { .prompt_logprobs = value, .prompt_logprob_count = 2 };
    struct generate_frame heard;
    generate_frame_encode(&scores, &text);
    assert_int_equal(generate_frame_decode(buf_view(&text), &arena, &heard, NULL), 0);
    assert_true(heard.prompt_logprob_count == 2 && heard.id_count == 0);
    assert_memory_equal(heard.prompt_logprobs, value, sizeof value);
}

/* A limit on reasoning has a version of its own, with an adapter and without: an engine that knows none would go on
 * thinking. */
static void a_limit_on_reasoning_arrives(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct generate_request g = { 0 }, with = wire_generate;
    arena_init(&arena, 1 << 20);
    with.think_max = 9;
    with.marks = true;
    for (int i = 0; i < 2; i++) {
        buf_clear(&text);
        generate_encode(&with, &text);
        assert_non_null(strstr(text.data, "{\"v\":8,"));
        assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
        assert_true(g.think_max == 9 && g.marks && str_eq(g.adapter, with.adapter));
        with.adapter = STR(DIGEST);
    }
}

static void members_arrive(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, 1 << 20);
    generate_encode(&wire_generate, &text);
    assert_string_equal(
        text.data,
        "{\"v\":2,\"id\":\"req-1\",\"ids\":\"AAABAAACAAAD////\",\"prompt_tokens\":3,"
        "\"sampling\":{\"temperature\":0.7,\"top_p\":0.95,\"min_p\":0.01,"
        "\"presence_penalty\":-1,\"frequency_penalty\":2,\"repetition_penalty\":1.1,"
        "\"top_k\":40,\"has_seed\":true,\"seed\":18446744073709551615,\"unnamed\":3},"
        "\"max_tokens\":100,\"min_tokens\":1,\"stop\":[\"a\\n\",\"\xc3\xa4\"],"
        "\"ignore_eos\":true,\"tenant\":\"t\",\"deadline_ms\":60000,"
        "\"predicted_p50\":50,\"predicted_p90\":90,\"predicted_mean\":60,\"has_rank\":true,"
        "\"rank\":-1.5,\"group\":\"00000000000000ff\",\"weight\":3,\"goes_on\":true,"
        "\"kv_host\":\"h\",\"kv_port\":8200,\"kv_tls\":true}");
    struct generate_request g = { 0 }, with = wire_generate;
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_memory_equal(g.ids, wire_generate.ids, 4 * sizeof *g.ids);
    assert_true(str_eq(g.stop[1], wire_generate.stop[1]) && g.sampling.seed == UINT64_MAX);
    assert_int_equal(g.grammar.kind, GRAMMAR_NONE);

    /* A grammar has a version of its own, so that an engine that knows none refuses the call. */
    buf_clear(&text);
    with.grammar = (struct grammar_spec){ GRAMMAR_REGEX, STR("a\"b") };
    generate_encode(&with, &text);
    assert_non_null(strstr(text.data, "{\"v\":3,"));
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_true(g.grammar.kind == GRAMMAR_REGEX && str_eq(g.grammar.text, with.grammar.text));
    assert_false(g.marks);

    /* So have marks, with a grammar and without. */
    for (int i = 0; i < 2; i++) {
        buf_clear(&text);
        with.marks = true;
        if (i == 1) with.grammar = (struct grammar_spec){ GRAMMAR_NONE, { 0 } };
        generate_encode(&with, &text);
        assert_non_null(strstr(text.data, "{\"v\":5,"));
        assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
        assert_true(g.marks && g.grammar.kind == with.grammar.kind);
    }

    /* So has an adapter: an engine that knows none would answer with the base model. */
    buf_clear(&text);
    with.adapter = STR(DIGEST);
    generate_encode(&with, &text);
    assert_non_null(strstr(text.data, "{\"v\":7,"));
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_true(g.marks && str_eq(g.adapter, with.adapter));

    buf_clear(&text);
    block_event_encode(&wire_change, &text);
    assert_string_equal(
        text.data, "{\"kind\":\"snapshot\",\"seq\":10,\"keys\":["
                   "\"01000000000000000200000000000000\",\"ffffffffffffffff0300000000000000\"],"
                   "\"more\":true}\n");
    struct block_event ev = { 0 };
    assert_int_equal(block_event_decode(buf_view(&text), &arena, &ev, NULL), 0);
    assert_true(ev.key_count == 2 && block_key_eq(ev.keys[1], wire_change.keys[1]));

    buf_clear(&text);
    block_event_encode(&wire_hello, &text);
    assert_non_null(strstr(text.data, "\"boot\":\"8000000000000001\""));
    assert_int_equal(block_event_decode(buf_view(&text), &arena, &ev, NULL), 0);
    assert_true(ev.boot == 0x8000000000000001u && ev.page_tokens == 32);

    buf_clear(&text);
    router_rules_encode(&wire_rules, &text);
    struct router_rules r = { 0 };
    assert_int_equal(router_rules_decode(buf_view(&text), &arena, &r, NULL), 0);
    assert_int_equal(r.endpoint_count, 2);
    assert_true(r.endpoints[0].has_perf && r.endpoints[0].perf.ratio_p90 == 6);
    assert_false(r.endpoints[1].has_perf);
    assert_true(str_eq(r.tenants[0].key_hashes[0], STR(DIGEST)));
    assert_false(router_rules_complete(&r));
    /* Controllers of older releases list all they have and do not say that the list is complete. */
    assert_int_equal(router_rules_decode(STR("{\"v\":1,\"keys_required\":false,\"again_ms\":1}"),
                                         &arena, &r, NULL),
                     0);
    assert_true(router_rules_complete(&r));
}

/* The other side accepts any content that a struct's fields can hold. */
static void torn_text_is_taken(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int round = 0; round < 2000; round++) {
        static const char bytes[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xff\"\\\n";
        char trouble[REPORT_TEXT_BYTES_MAX + 40];
        size_t len = rng_below(&rng, sizeof trouble + 1);
        for (size_t i = 0; i < len; i++)
            trouble[i] = bytes[rng_below(&rng, sizeof bytes - 1)];
        struct agent_report r = { .instance = STR("i"),
                                  .intent = STR("i"),
                                  .boot = 1,
                                  .seq = 1,
                                  .trouble = str_of(trouble, len) },
                            back;
        CLEANUP(buf_fini) struct buf text = { 0 }, again = { 0 };
        CLEANUP(arena_fini) struct arena arena = { 0 };
        struct err err = { 0 };
        arena_init(&arena, 1 << 16);
        assert_int_equal(agent_report_encode(&r, &text), 0);
        if (agent_report_decode(buf_view(&text), &arena, &back, &err) < 0)
            fail_msg("round %d: %s", round, err.text);
        assert_int_equal(agent_report_encode(&back, &again), 0);
        assert_true(str_eq(buf_view(&text), buf_view(&again)));
    }
}

static void absent_is_not_zero(void **state)
{
    (void)state;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, 1 << 16);
    struct agent_report r;
    assert_int_equal(
        agent_report_decode(STR("{\"v\":1,\"instance\":\"i\",\"boot\":\"0000000000000001\","
                                "\"seq\":1,\"state\":\"up\",\"engine\":null,\"later\":{}}"),
                            &arena, &r, NULL),
        0);
    assert_false(r.has_engine);
    struct engine_report e;
    assert_int_equal(
        engine_report_decode(STR("{\"v\":1,\"health\":\"loading\"}"), &arena, &e, NULL), 0);
    assert_false(e.has_perf);
    struct generate_frame f;
    assert_int_equal(generate_frame_decode(STR("{}"), &arena, &f, NULL), 0);
    assert_true(f.finish == FINISH_NONE && !f.has_usage && f.id_count == 0 && f.text.len == 0);
}

/* A blank behind the bracket sends a line to the table; the fast reader must read the same. */
static void a_frame_of_the_midst_is_what_the_table_reads(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"ids\":\"AAAB\",\"text\":\" a word\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB/+9z\",\"text\":\"a\",\"finish\":\"none\"}",
        "{\"ids\":\"\",\"text\":\"\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"\xC3\xA4\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"\\n\\u00e4\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"\\\"\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"a\",\"finish\":\"stop\"}",
        "{\"ids\":\"AAAB\",\"text\":\"a\",\"finish\":\"none\",\"usage\":{\"prompt\":3}}",
        "{\"ids\":\"AAAB\",\"text\":\"a\",\"finish\":\"none\"} ",
        "{\"ids\":\"AAAB\",\"text\":\"a\",\"finish\":\"none\"}}",
        "{\"ids\":\"AAAB\",\"text\":\"a\",\"finish\":\"none\"",
        "{\"ids\":\"AAAB\",\"text\":\"a\tb\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":\"\xC3\",\"finish\":\"none\"}",
        "{\"ids\":\"AAA\",\"text\":\"a\",\"finish\":\"none\"}",
        "{\"ids\":\"AA-B\",\"text\":\"a\",\"finish\":\"none\"}",
        "{\"ids\":\"AAAB\",\"text\":",
        "{\"ids\":\"AAAB",
        "{\"ids\":\"",
    };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf slow = { 0 };
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct generate_frame a = { 0 }, b = { 0 };
        struct str line = str_from(lines[i]);
        buf_clear(&slow);
        buf_printf(&slow, "{ %s", lines[i] + 1);
        int fast_rc = generate_frame_decode(line, &arena, &a, NULL);
        int slow_rc = generate_frame_decode(buf_view(&slow), &arena, &b, NULL);
        bool same = fast_rc == slow_rc && a.id_count == b.id_count && str_eq(a.text, b.text) &&
                    a.finish == b.finish && a.has_usage == b.has_usage;
        for (uint32_t k = 0; same && k < a.id_count; k++)
            same = a.ids[k] == b.ids[k];
        if (!same) fail_msg("%s: %d and %d", lines[i], fast_rc, slow_rc);
    }
}

static void counts_are_bounded(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err err = { 0 };
    struct block_event ev;
    arena_init(&arena, 1 << 20);
    for (uint32_t n = EVENT_KEYS_MAX; n <= EVENT_KEYS_MAX + 1; n++) {
        static struct block_key many[EVENT_KEYS_MAX + 1];
        struct block_event full = { .kind = EVENT_ADD, .seq = 1, .keys = many, .key_count = n };
        buf_clear(&text);
        assert_int_equal(block_event_encode(&full, &text), 0);
        assert_true(text.len <= EVENT_LINE_BYTES_MAX);
        int rc = block_event_decode(buf_view(&text), &arena, &ev, &err);
        assert_int_equal(rc, n <= EVENT_KEYS_MAX ? 0 : -EINVAL);
    }
    assert_non_null(strstr(err.text, "keys: more than 1024 items"));
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wire_messages); i++) {
        const struct message *m = &wire_messages[i];
        CLEANUP(buf_fini) struct buf text = { 0 };
        m->encode(m->example, &text);
        for (uint64_t n = 1;; n++) {
            CLEANUP(arena_fini) struct arena arena = { 0 };
            _Alignas(16) char ret[STRUCT_BYTES_MAX];
            arena_init(&arena, 1 << 20);
            fault_arm("arena.alloc", n);
            int rc = m->decode(buf_view(&text), &arena, ret, NULL);
            bool reached = fault_hits() >= n;
            fault_disarm();
            assert_int_equal(rc, reached ? -ENOMEM : 0);
            if (!reached) break;
        }
        struct buf small = { .max = 16 };
        assert_int_equal(m->encode(m->example, &small), -E2BIG);
        buf_fini(&small);
    }
}

/* Cut, doubled and flipped bytes of good messages are refused or accepted, never harmful; an
 * accepted message can be encoded again. */
static void mutilated_messages(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 17);
    for (size_t i = 0; i < COUNT_OF(wire_messages); i++) {
        const struct message *m = &wire_messages[i];
        CLEANUP(buf_fini) struct buf good = { 0 };
        m->encode(m->example, &good);
        for (int round = 0; round < 3000; round++) {
            CLEANUP(buf_fini) struct buf bad = { 0 };
            CLEANUP(arena_fini) struct arena arena = { 0 };
            _Alignas(16) char ret[STRUCT_BYTES_MAX];
            arena_init(&arena, 1 << 18);
            size_t at = (size_t)rng_below(&rng, good.len), n = (size_t)rng_below(&rng, 8);
            n = min_size(n, good.len - at);
            buf_append(&bad, good.data, at);
            uint64_t how = rng_below(&rng, 3);
            if (how == 0) buf_append(&bad, good.data + at, n); /* doubled */
            if (how == 1) buf_byte(&bad, "{}[]\",:0-e\\n\x80"[rng_below(&rng, 14)]);
            buf_append(&bad, good.data + at + (how == 0 ? 0 : n),
                       good.len - at - (how == 0 ? 0 : n));
            if (m->decode(buf_view(&bad), &arena, ret, NULL) < 0) continue;
            buf_clear(&bad);
            assert_int_equal(m->encode(ret, &bad), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(members_arrive),
        cmocka_unit_test(a_limit_on_reasoning_arrives),
        cmocka_unit_test(scores_arrive),
        cmocka_unit_test(values_arrive),
        cmocka_unit_test(torn_text_is_taken),
        cmocka_unit_test(absent_is_not_zero),
        cmocka_unit_test(a_frame_of_the_midst_is_what_the_table_reads),
        cmocka_unit_test(counts_are_bounded),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(mutilated_messages),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
