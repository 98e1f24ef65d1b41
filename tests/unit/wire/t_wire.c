/* t_wire.c - every internal message: there and back, what an older peer leaves out, bounds, and
 * memory that runs out at any point. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "tests/unit/unit.h"
#include "tests/unit/wire/wire_messages.h"

/* Encoded, decoded and encoded again is the same text; together with the spot checks below that
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
        "\"top_k\":40,\"has_seed\":true,\"seed\":18446744073709551615},"
        "\"max_tokens\":100,\"min_tokens\":1,\"stop\":[\"a\\n\",\"\xc3\xa4\"],"
        "\"ignore_eos\":true,\"tenant\":\"t\",\"deadline_ms\":60000,"
        "\"predicted_p50\":50,\"predicted_p90\":90,\"predicted_mean\":60,\"has_rank\":true,"
        "\"rank\":-1.5,\"group\":\"00000000000000ff\",\"weight\":3,\"goes_on\":true,"
        "\"kv_host\":\"h\",\"kv_port\":8200,\"kv_tls\":true}");
    struct generate_request g = { 0 };
    assert_int_equal(generate_decode(buf_view(&text), &arena, &g, NULL), 0);
    assert_memory_equal(g.ids, wire_generate.ids, 4 * sizeof *g.ids);
    assert_true(str_eq(g.stop[1], wire_generate.stop[1]) && g.sampling.seed == UINT64_MAX);

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
    /* Controllers of older releases name all they have and say nothing. */
    assert_int_equal(router_rules_decode(STR("{\"v\":1,\"keys_required\":false,\"again_ms\":1}"),
                                         &arena, &r, NULL),
                     0);
    assert_true(router_rules_complete(&r));
}

/* Whatever a struct holds within its fields' sizes, its text is taken by the other side. */
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

/* Bytes of good messages, cut, doubled and flipped: refused or taken, never harmful; what is taken
 * can be written again. */
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

/* What a hostile or older peer may send of every internal message, each refused
 * with its sentence. */

struct refused {
    decode_fn decode;
    const char *text, *says;
};

#define GEN(rest)                                                               \
    "{\"v\":2,\"id\":\"i\",\"prompt_tokens\":1,\"max_tokens\":1,\"sampling\":{" \
    "\"temperature\":1,\"top_p\":1,\"repetition_penalty\":1}" rest "}"
#define RULES(rest) "{\"v\":1,\"keys_required\":false,\"again_ms\":1" rest "}"

#define TWELVE_OF_1 "1,1,1,1,1,1,1,1,1,1,1,1"
#define TWELVE_OF_0 "0,0,0,0,0,0,0,0,0,0,0,0"
#define TIMES_12(of) of "," of "," of "," of "," of "," of "," of "," of "," of "," of "," of "," of
#define LENGTHS(count, bins)                                                                      \
    "{\"v\":1,\"router\":\"r\",\"boot\":\"0000000000000001\",\"seq\":1,\"window_s\":1,"           \
    "\"services\":[{\"service\":\"m\",\"queued\":{\"count\":" count ",\"prompt\":1,\"output\":1," \
    "\"prompt_sq\":1,\"output_sq\":1,\"cross\":1,\"bins\":[" bins "]}}]}"

static const struct refused refusals[] = {
    { wire_decode_generate, "", "generate: JSON: the text ends too early" },
    { wire_decode_generate, "[]", "generate: must be an object" },
    { wire_decode_generate, "{\"v\":1}",
      "generate: speaks protocol version 1 and this Muster speaks 2" },
    { wire_decode_generate, "{\"v\":\"2\"}", "protocol version 2 and" },
    { wire_decode_generate, "{\"id\":\"x\"}", "generate: \"v\" is missing" },
    { wire_decode_generate, GEN(""), "generate: \"ids\" is missing" },
    { wire_decode_generate, GEN(",\"ids\":null"), "\"ids\" is missing" },
    { wire_decode_generate, GEN(",\"ids\":\"\""), "ids: may not be empty" },
    { wire_decode_generate, GEN(",\"ids\":[1]"), "ids: must be a string of token ids" },
    { wire_decode_generate, GEN(",\"ids\":\"AAA-\""), "ids: holds what is no token id" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\\u0041AAA\""), "ids: 13 characters are no token" },
    { wire_decode_generate, GEN(",\"ids\":\"AAABA\""), "ids: 5 characters are no token ids" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"max_tokens\":2"),
      "\"max_tokens\" stands there twice" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"deadline_ms\":4294967296"),
      "deadline_ms: out of range" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"min_tokens\":-1"),
      "min_tokens: -1 is outside" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"min_tokens\":\"1\""),
      "min_tokens: must be a whole" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"ignore_eos\":0"),
      "ignore_eos: must be true or false" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"tenant\":7"), "tenant: must be a string" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"tenant\":\"a\\u0000b\""),
      "tenant: holds a NUL" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"stop\":[\"\"]"), "stop[0] is empty" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"kv_host\":\"h\""),
      "kv_host and kv_port go together" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\",\"kv_port\":8200"),
      "kv_host and kv_port go together" },
    { wire_decode_generate, GEN(",\"ids\":\"AAAB\"") " x", "behind the end" },
    { wire_decode_generate, "{\"v\":2,\"sampling\":{\"temperature\":1e999}}",
      "generate: sampling: temperature: 1e999 is outside 0..100" },
    { wire_decode_generate, "{\"v\":2,\"sampling\":{}}", "sampling: \"temperature\" is missing" },
    { wire_decode_generate_frame, "{\"finish\":\"tired\"}", "finish: unknown name \"tired\"" },
    { wire_decode_generate_frame, "{\"finish\":1}", "finish: must be a name" },
    { wire_decode_generate_frame, "{\"usage\":[]}", "usage: must be an object" },
    { wire_decode_block_event, "{\"kind\":\"add\",\"seq\":1,\"keys\":[\"12\"]}", "no block key" },
    { wire_decode_block_event, "{\"kind\":\"add\",\"seq\":1,\"keys\":[1]}", "no block key" },
    { wire_decode_block_event, "{\"kind\":\"add\",\"seq\":1.5}", "seq: must be a whole number" },
    { wire_decode_block_event, "{\"kind\":\"hello\",\"seq\":1}", "\"v\" is missing" },
    { wire_decode_block_event,
      "{\"kind\":\"hello\",\"seq\":1,\"v\":1,\"boot\":\"1\",\"block_tokens\":16}",
      "boot: must be 16 hexadecimal digits" },
    { wire_decode_block_event,
      "{\"kind\":\"hello\",\"seq\":1,\"v\":1,\"boot\":\"0000000000000001\",\"block_tokens\":16,"
      "\"page_tokens\":24}",
      "a page of 24 tokens" },
    { wire_decode_engine_report,
      "{\"v\":1,\"health\":\"loading\",\"pages_total\":1,\"pages_free\":4294967295,"
      "\"pages_cached\":2}",
      "are more than 1" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"ready\"}", "ready, but no host and port" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"ready\",\"port\":65536}",
      "port: 65536 is out" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"ready\",\"perf\":{\"a\":-1}}",
      "engine info: perf: a: -1 is outside" },
    { wire_decode_agent_report, "{\"v\":1,\"instance\":\"\"}",
      "instance: 0 bytes are outside 1..128" },
    { wire_decode_agent_report,
      "{\"v\":1,\"instance\":\"i\",\"boot\":\"0000000000000001\",\"seq\":1,\"state\":\"up\","
      "\"engine\":{\"v\":1,\"health\":\"loading\",\"pages_free\":1}}",
      "agent report: engine: 1 free" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"loading\",\"clock\":1.5}",
      "clock: 1.5 is outside" },
    { wire_decode_engine_report,
      "{\"v\":1,\"health\":\"loading\",\"work\":{\"span_s\":1,\"busy_s\":1,\"steps\":1,"
      "\"kv_tokens\":1,\"kv_tokens_decoding\":2}}",
      "more tokens read to decode than read" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"loading\",\"spec\":{\"layers\":0}}",
      "spec: layers: 0 is outside" },
    { wire_decode_engine_report, "{\"v\":1,\"health\":\"loading\",\"spec\":{\"layers\":4}}",
      "spec: \"hidden\" is missing" },
    { wire_decode_engine_clock, "{\"v\":1}", "\"clock\" is missing" },
    { wire_decode_engine_clock, "{\"v\":1,\"clock\":0.1}", "clock: 0.1 is outside 0.2..1" },
    { wire_decode_agent_reply, "{\"v\":1,\"known\":true,\"lease_ms\":1,\"clock\":0.1}",
      "clock: 0.1 is below 0.2" },
    { wire_decode_agent_reply, "{\"v\":1,\"known\":true}", "\"lease_ms\" is missing" },
    { wire_decode_router_rules, RULES(",\"endpoints\":[{}]"),
      "endpoints[0]: \"instance\" is missing" },
    { wire_decode_router_rules, RULES(",\"endpoints\":[7]"), "endpoints[0]: must be an object" },
    { wire_decode_router_rules, RULES(",\"tenants\":[{\"tenant\":\"t\",\"key_hashes\":[\"ab\"]}]"),
      "is no SHA-256" },
    { wire_decode_router_rules, RULES(",\"endpoints\":[{\"instance\":\"i\""),
      "endpoints: expected a comma or ]" },
    { wire_decode_router_sync,
      "{\"v\":1,\"services\":[{\"service\":\"m\",\"ttft_s\":{\"p50\":1}}]}",
      "router sync: services[0]: ttft_s: \"count\" is missing" },
    { wire_decode_router_sync, LENGTHS("1", "1,2"),
      "services[0]: queued: bins: fewer than 144 items" },
    { wire_decode_router_sync, LENGTHS("5", TIMES_12(TWELVE_OF_0)),
      "queued: 0 requests in the bins, not 5" },
    { wire_decode_router_sync, LENGTHS("143", TIMES_12(TWELVE_OF_1)),
      "144 requests in the bins, not 143" },
    { wire_decode_router_sync, LENGTHS("-1", TIMES_12(TWELVE_OF_0)),
      "queued: count: -1 is outside" },
};

static void hostile_peers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        CLEANUP(arena_fini) struct arena arena = { 0 };
        _Alignas(16) char ret[STRUCT_BYTES_MAX], before[STRUCT_BYTES_MAX];
        struct err err = { 0 };
        memset(ret, 0x5a, sizeof ret);
        memcpy(before, ret, sizeof ret);
        arena_init(&arena, 1 << 16);
        int rc = refusals[i].decode(str_from(refusals[i].text), &arena, ret, &err);
        if (rc >= 0) fail_msg("accepted: %s", refusals[i].text);
        if (!strstr(err.text, refusals[i].says))
            fail_msg("%s\nsays: %s", refusals[i].text, err.text);
        assert_memory_equal(ret, before, sizeof ret);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),     cmocka_unit_test(members_arrive),
        cmocka_unit_test(torn_text_is_taken), cmocka_unit_test(absent_is_not_zero),
        cmocka_unit_test(counts_are_bounded), cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(mutilated_messages), cmocka_unit_test(hostile_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
