/* t_edge_json.c - JSON that the router and the engine refuse in the shape that OpenAI's clients read,
 * and JSON that is odd and right. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/edge/edge_rig.h"

#define TOO_MANY_BYTES ((size_t)9 << 20) /* the edge_servers' bound is 8 MiB */

struct json_row {
    int status;
    const char *why, *path;
    struct str body;
};

// clang-format off
static const struct json_row json_rows[] = {
    { 400, "nothing", CHAT, RAW("") },
    { 400, "null", CHAT, RAW("null") },
    { 400, "a list", CHAT, RAW("[]") },
    { 400, "no messages", CHAT, RAW("{}") },
    { 400, "cut short", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"hi") },
    { 400, "text behind the end", CHAT, RAW("{" HELLO "}{}") },
    { 400, "a comma too many", CHAT, RAW("{" HELLO ",}") },
    { 400, "a comment", CHAT, RAW("{/**/" HELLO "}") },
    { 400, "single quotes", CHAT, RAW("{'messages':[]}") },
    { 400, "a byte order mark", CHAT, RAW("\xef\xbb\xbf{" HELLO "}") },
    { 400, "a NUL between tokens", CHAT, RAW("{\0" HELLO "}") },
    { 400, "a key twice", CHAT, RAW("{" HELLO "," HELLO "}") },
    { 400, "a number twice", CHAT, RAW("{" HELLO ",\"max_tokens\":1,\"max_tokens\":2}") },
    { 400, "a lone surrogate", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}") },
    { 400, "surrogates in the wrong order", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\\udc00\\ud800\"}]}") },
    { 400, "bytes that are not UTF-8", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}") },
    { 400, "an overlong form", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\xc0\xaf\"}]}") },
    { 400, "a raw line break in a string", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"a\nb\"}]}") },
    { 400, "NaN", CHAT, RAW("{" HELLO ",\"temperature\":NaN}") },
    { 400, "Infinity", CHAT, RAW("{" HELLO ",\"temperature\":Infinity}") },
    { 400, "1e999", CHAT, RAW("{" HELLO ",\"temperature\":1e999}") },
    { 400, "-1e999", CHAT, RAW("{" HELLO ",\"presence_penalty\":-1e999}") },
    { 400, "a temperature below 0", CHAT, RAW("{" HELLO ",\"temperature\":-0.1}") },
    { 400, "a temperature in words", CHAT, RAW("{" HELLO ",\"temperature\":\"hot\"}") },
    { 400, "top_p above 1", CHAT, RAW("{" HELLO ",\"top_p\":1.5}") },
    { 400, "max_tokens below 0", CHAT, RAW("{" HELLO ",\"max_tokens\":-1}") },
    { 400, "half a token", CHAT, RAW("{" HELLO ",\"max_tokens\":1.5}") },
    { 400, "more tokens than 64 bits", CHAT, RAW("{" HELLO ",\"max_tokens\":99999999999999999999}") },
    { 400, "1e999 tokens", CHAT, RAW("{" HELLO ",\"max_tokens\":1e999}") },
    { 400, "more tokens than the context", CHAT, RAW("{" HELLO ",\"max_tokens\":2000000000}") },
    { 400, "tokens in words", CHAT, RAW("{" HELLO ",\"max_tokens\":\"10\"}") },
    { 400, "1000 answers", CHAT, RAW("{" HELLO ",\"n\":1000}") },
    { 400, "no answers", CHAT, RAW("{" HELLO ",\"n\":0}") },
    { 400, "a seed beyond 64 bits", CHAT, RAW("{" HELLO ",\"seed\":1e30}") },
    { 400, "a stop that is a number", CHAT, RAW("{" HELLO ",\"stop\":5}") },
    { 400, "an empty stop", CHAT, RAW("{" HELLO ",\"stop\":[\"\"]}") },
    { 400, "stream in words", CHAT, RAW("{" HELLO ",\"stream\":\"yes\"}") },
    { 400, "a form of answer we do not serve", CHAT, RAW("{" HELLO ",\"response_format\":{\"type\":\"json_object\"}}") },
    { 400, "messages: object", CHAT, RAW("{\"messages\":{}}") },
    { 400, "messages: text", CHAT, RAW("{\"messages\":\"hi\"}") },
    { 400, "messages: none", CHAT, RAW("{\"messages\":[]}") },
    { 400, "messages: numbers", CHAT, RAW("{\"messages\":[1]}") },
    { 400, "a message without a role", CHAT, RAW("{\"messages\":[{}]}") },
    { 400, "a role that is a number", CHAT, RAW("{\"messages\":[{\"role\":1,\"content\":\"hi\"}]}") },
    { 400, "a content that is a number", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":5}]}") },
    { 400, "a content that is an object", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":{}}]}") },
    { 400, "a picture", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}") },
    { 400, "tools: text", CHAT, RAW("{" HELLO ",\"tools\":\"all\"}") },
    { 400, "model: number", CHAT, RAW("{" HELLO ",\"model\":5}") },
    { 404, "a model nobody has", CHAT, RAW("{" HELLO ",\"model\":\"nobody\"}") },
    { 400, "no prompt", TEXT, RAW("{}") },
    { 400, "a prompt that is an object", TEXT, RAW("{\"prompt\":{}}") },
    { 400, "an id out of range", TEXT, RAW("{\"prompt\":[999999]}") },
    { 400, "an id beyond 32 bits", TEXT, RAW("{\"prompt\":[4294967297]}") },
    { 400, "a negative id", TEXT, RAW("{\"prompt\":[-1]}") },
    { 400, "half an id", TEXT, RAW("{\"prompt\":[1.5]}") },
    { 400, "ids and text mixed", TEXT, RAW("{\"prompt\":[1,\"a\"]}") },
    { 400, "no ids", TEXT, RAW("{\"prompt\":[]}") },
    { 400, "a batch of prompts", TEXT, RAW("{\"prompt\":[\"a\",\"b\"]}") },
    { 400, "tokenize: number", "/tokenize", RAW("{\"prompt\":5}") },
    { 400, "tokenize: list", "/tokenize", RAW("[]") },
    { 400, "tokenize: cut short", "/tokenize", RAW("{\"prompt\":\"a") },
    { 400, "detokenize: text", "/detokenize", RAW("{\"tokens\":\"a\"}") },
    { 400, "detokenize: a negative id", "/detokenize", RAW("{\"tokens\":[-1]}") },
    { 400, "detokenize: a list in a list", "/detokenize", RAW("{\"tokens\":[[1]]}") },
    { 400, "detokenize: an id out of range", "/detokenize", RAW("{\"tokens\":[4294967295]}") },
    { 400, "detokenize: text behind the end", "/detokenize", RAW("{\"tokens\":[1]}x") },
    { 404, "no such path", "/v1/embeddings", RAW("{}") },
    { 405, "a path with another method", "/v1/models", RAW("{}") },
};
// clang-format on

static void hostile_json_is_refused_in_openai_s_shape(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(json_rows); i++) {
            const struct json_row *row = &json_rows[i];
            CLEANUP(buf_fini) struct buf bytes = { 0 };
            edge_post(&bytes, row->path, row->body);
            edge_expect_refusal(&edge_servers[s], row->why, buf_view(&bytes), row->status);
        }
        edge_expect_service(&edge_servers[s]);
    }
    assert_int_equal(edge_surprises, 0);
}

static void json_beyond_its_bounds_is_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *why, *path, *begin, *part;
        size_t count;
        const char *end;
    } rows[] = {
        { 413, "a body of 9 MiB", TEXT, "{\"prompt\":\"", "a", TOO_MANY_BYTES, "\"}" },
        { 400, "a hundred levels", CHAT, "{" HELLO ",\"x\":", "[", 100, "" },
        { 400, "a million levels", CHAT, "", "[", 1000000, "" },
        { 400, "10,000 stops", CHAT, "{" HELLO ",\"stop\":[\"a\"", ",\"a\"", 9999, "]}" },
        { 400, "a stop of 10,000 bytes", CHAT, "{" HELLO ",\"stop\":\"", "a", 10000, "\"}" },
        { 400, "a user of 10,000 bytes", CHAT, "{" HELLO ",\"user\":\"", "a", 10000, "\"}" },
        { 400, "a number of 10,000 digits", CHAT, "{" HELLO ",\"seed\":", "9", 10000, "}" },
        { 400, "5,000 messages", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}",
          ",{\"role\":\"user\",\"content\":\"a\"}", 5000, "]}" },
        { 400, "a prompt of 400,000 ids", TEXT, "{\"prompt\":[1", ",1", 399999, "]}" },
        { 400, "a prompt of 1 MB", TEXT, "{\"prompt\":\"a", " b", 500000, "\"}" },
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            CLEANUP(buf_fini) struct buf bytes = { 0 }, body = { 0 };
            edge_repeat(&body, rows[i].begin, rows[i].part, rows[i].count, rows[i].end);
            edge_post(&bytes, rows[i].path, buf_view(&body));
            edge_expect_refusal(&edge_servers[s], rows[i].why, buf_view(&bytes), rows[i].status);
        }
        edge_expect_service(&edge_servers[s]);
    }
    assert_int_equal(edge_surprises, 0);
}

/* What looks odd and is right must pass, or the rows above could be refusing everything. */
static void odd_json_that_is_right_is_served(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{" HELLO ",\"max_tokens\":2,\"unknown\":[[[[{\"a\":1e308}]]]]}",
        "{" HELLO ",\"max_tokens\":2e0,\"temperature\":null,\"n\":1}",
        "  {\r\n\t" HELLO " , \"max_tokens\" : 2 }\n",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\\ud83d\\ude00 \\\"\\\\/\\b\"}],"
        "\"max_tokens\":2}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}],"
        "\"max_tokens\":2,\"stop\":[\"x\",\"y\"]}",
        "{\"\\u006dessages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}",
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(bodies); i++) {
            CLEANUP(buf_fini) struct buf reply = { 0 };
            int status = rig_call(edge_servers[s].process->port, CHAT, bodies[i], &reply);
            if (status != 200) {
                fail_msg("%s, %s: %d %.*s", edge_servers[s].name, bodies[i], status, (int)reply.len,
                         reply.data);
            }
        }
    }
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(hostile_json_is_refused_in_openai_s_shape, edge_begin),
        cmocka_unit_test_setup(json_beyond_its_bounds_is_refused, edge_begin),
        cmocka_unit_test(odd_json_that_is_right_is_served),
    };
    return rig_end(cmocka_run_group_tests(tests, edge_setup, edge_teardown));
}
