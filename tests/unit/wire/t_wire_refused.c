/* t_wire_refused.c - tests bytes that a hostile or older peer may send: each is refused with its message, and nothing is
 * written. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/sync.h"
#include "tests/unit/unit.h"

#define STRUCT_BYTES_MAX 4096 /* of a message decoded */

typedef int (*decode_fn)(struct str text, struct arena *arena, void *ret, struct err *err);

#define DECODE(name, type)                                                         \
    static int wire_decode_##name(struct str text, struct arena *arena, void *ret, \
                                  struct err *err)                                 \
    {                                                                              \
        return name##_decode(text, arena, (struct type *)ret, err);                \
    }

DECODE(agent_reply, agent_reply)
DECODE(agent_report, agent_report)
DECODE(block_event, block_event)
DECODE(engine_clock, engine_clock)
DECODE(engine_report, engine_report)
DECODE(generate, generate_request)
DECODE(generate_frame, generate_frame)
DECODE(router_rules, router_rules)
DECODE(router_sync, router_sync)

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
      "generate: speaks protocol version 1 and this Muster speaks 8" },
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
    { wire_decode_generate, "{\"v\":4,\"top_logprobs\":21}", "top_logprobs: 21 is outside 0..20" },
    { wire_decode_generate_frame, "{\"logprobs\":\"AAADC/AAA\"}", "9 characters are no values" },
    { wire_decode_generate_frame, "{\"logprobs\":\"AAADC_AAAA\"}", "item 0 is no id and number" },
    { wire_decode_generate_frame, "{\"logprobs\":\"AAADB/gAAA\"}", "item 0 is no id and number" },
    { wire_decode_generate_frame, "{\"logprobs\":\"AAADP/AAAA\"}", "item 0 is no id and number" },
    { wire_decode_generate_frame, "{\"prompt_logprobs\":7}", "must be a string of token values" },
    { wire_decode_generate_frame, "{\"logprobs\":7}", "must be a string of token values" },
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(hostile_peers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
