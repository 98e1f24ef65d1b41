/* t_openai.c - tests requests of the OpenAI API: reading them, their refusals, and forwarding them. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/json.h"
#include "base/wire/openai.h"
#include "base/wire/openai_forward.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- requests: accepted members, refusals with their names, both ends of every range ---- */

#define ARENA_BYTES ((size_t)1 << 20)
#define M "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

struct fixture {
    struct arena arena;
    struct openai_request req;
    struct openai_error e;
};

static int parse(struct fixture *f, enum openai_surface surface, const char *body)
{
    arena_fini(&f->arena);
    arena_init(&f->arena, ARENA_BYTES);
    f->req = (struct openai_request){ .max_tokens = 4711 };
    f->e = (struct openai_error){ 0 };
    return openai_parse(surface, str_from(body), &f->arena, &f->req, &f->e);
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){ 0 };
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_fini(&f->arena);
    return 0;
}

static void must_parse(struct fixture *f, enum openai_surface surface, const char *body)
{
    if (parse(f, surface, body) != 0) fail_msg("%s: %s", body, f->e.message);
}

static void takes_a_full_chat_request(void **state)
{
    struct fixture *f = *state;
    must_parse(f, OPENAI_CHAT,
               "{\"model\":\"m\",\"user\":\"u\"," M
               ",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,"
               "\"min_p\":0.1,\"presence_penalty\":-1,\"frequency_penalty\":1.5,"
               "\"repetition_penalty\":1.1,\"seed\":-7,\"stop\":[\"a\",\"\\u00e4\"],"
               "\"ignore_eos\":true,\"min_tokens\":2,\"max_completion_tokens\":9,\"n\":1,"
               "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"other\":[1]},"
               "\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"auto\","
               "\"chat_template_kwargs\":{\"x\":1},\"logprobs\":false,\"logit_bias\":{\"7\":-1.5},"
               "\"response_format\":{\"type\":\"text\"},\"metadata\":{\"any\":1},\"store\":false}");
    const struct openai_request *q = &f->req;
    assert_true(str_eq(q->model, STR("m")) && str_eq(q->user, STR("u")));
    assert_true(str_eq(q->messages, STR("[{\"role\":\"user\",\"content\":\"hi\"}]")));
    assert_true(q->sampling.temperature == 0.5 && q->sampling.top_p == 0.9);
    assert_true(q->sampling.min_p == 0.1 && q->sampling.presence_penalty == -1);
    assert_true(q->sampling.frequency_penalty == 1.5 && q->sampling.repetition_penalty == 1.1);
    assert_int_equal(q->sampling.top_k, 40);
    assert_true(q->sampling.has_seed && (int64_t)q->sampling.seed == -7);
    assert_int_equal(q->stop_count, 2);
    assert_true(str_eq(q->stop[1], STR("\xc3\xa4")));
    assert_true(q->ignore_eos && q->stream && q->include_usage);
    assert_int_equal(q->min_tokens, 2);
    assert_int_equal(q->max_tokens, 9);
    assert_true(str_eq(q->tools, STR("[{\"type\":\"function\"}]")));
    assert_true(str_eq(q->chat_template_kwargs, STR("{\"x\":1}")));
    assert_true(q->bias_count == 1 && q->logit_bias[0].id == 7 && q->logit_bias[0].value == -1.5f);
}

static void null_and_absent_are_defaults(void **state)
{
    struct fixture *f = *state;
    static const char *const bodies[] = {
        "{" M "}",
        "{" M ",\"model\":null,\"temperature\":null,\"top_p\":null,\"top_k\":null,\"seed\":null,"
        "\"stop\":null,\"max_tokens\":null,\"stream\":null,\"stream_options\":null,\"n\":null,"
        "\"tools\":null,\"tool_choice\":null,\"logprobs\":null,\"response_format\":null,"
        "\"reasoning_effort\":null,\"logit_bias\":null}",
        "{" M ",\"tools\":[],\"top_k\":-1}",
    };
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        must_parse(f, OPENAI_CHAT, bodies[i]);
        assert_int_equal(f->req.model.len, 0);
        assert_true(f->req.sampling.temperature == 1 && f->req.sampling.top_p == 1);
        assert_true(f->req.sampling.repetition_penalty == 1 && !f->req.sampling.has_seed);
        assert_int_equal(f->req.sampling.top_k, 0);
        assert_int_equal(f->req.max_tokens, 0);
        assert_int_equal(f->req.stop_count, 0);
        assert_int_equal(f->req.tools.len, 0);
        assert_false(f->req.stream || f->req.include_usage || f->req.ignore_eos);
    }
    must_parse(f, OPENAI_COMPLETION, "{\"prompt\":\"x\"}");
    assert_int_equal(f->req.max_tokens, OPENAI_COMPLETION_TOKENS);
    must_parse(f, OPENAI_CHAT, "{" M ",\"tools\":[{}],\"tool_choice\":\"none\"}");
    assert_int_equal(f->req.tools.len, 0);
    must_parse(f, OPENAI_CHAT,
               "{" M ",\"tools\":[{}],\"parallel_tool_calls\":false,\"tool_choice\":{\"function\":"
               "{\"name\":\"f\"},\"type\":\"function\"}}");
    assert_int_equal(f->req.tool_choice, OPENAI_TOOLS_REQUIRED);
    assert_true(str_eq(f->req.tool_only, STR("f")));
    assert_true(f->req.no_parallel_tool_calls);
    must_parse(f, OPENAI_CHAT, "{" M ",\"tools\":[{}],\"tool_choice\":\"required\"}");
    assert_int_equal(f->req.tool_choice, OPENAI_TOOLS_REQUIRED);
    assert_int_equal(f->req.tool_only.len, 0);
    static const struct {
        const char *body, *kwargs;
    } efforts[] = {
        { ",\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"low\"}" },
        { ",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{ }}",
          "{\"reasoning_effort\":\"low\"}" },
        { ",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"x\":1}}",
          "{\"reasoning_effort\":\"low\",\"x\":1}" },
        { ",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"reasoning_effort\":\"high\"}}",
          "{\"reasoning_effort\":\"high\"}" },
    };
    for (size_t i = 0; i < COUNT_OF(efforts); i++) {
        char body[256];
        snprintf(body, sizeof body, "{" M "%s", efforts[i].body);
        must_parse(f, OPENAI_CHAT, body);
        assert_true(str_eq(f->req.chat_template_kwargs, str_from(efforts[i].kwargs)));
    }
}

static void prompts(void **state)
{
    struct fixture *f = *state;
    must_parse(f, OPENAI_COMPLETION, "{\"prompt\":\"a\\nb\"}");
    assert_true(str_eq(f->req.prompt, STR("a\nb")) && !f->req.prompt_ids);
    must_parse(f, OPENAI_COMPLETION, "{\"prompt\":[\"only\"]}");
    assert_true(str_eq(f->req.prompt, STR("only")));
    static const char *const ids[] = { "{\"prompt\":[1,2,4294967295]}",
                                       "{\"prompt\":[[1,2,4294967295]],\"max_tokens\":1}" };
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        must_parse(f, OPENAI_COMPLETION, ids[i]);
        assert_int_equal(f->req.prompt_id_count, 3);
        assert_true(f->req.prompt_ids[0] == 1 && f->req.prompt_ids[2] == UINT32_MAX);
    }
}

/* Four ways of asking for a grammar give the same description. */
static void takes_grammars(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *member, *key, *text;
        enum grammar_kind kind;
    } rows[] = {
        { "\"response_format\":{\"type\":\"text\"}", NULL, NULL, GRAMMAR_NONE },
        { "\"grammar\":\"\"", NULL, NULL, GRAMMAR_NONE },
        { "\"response_format\":{\"type\":\"json_object\"}", "response_format", "",
          GRAMMAR_JSON_OBJECT },
        { "\"response_format\":{\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":{\"a\": "
          "1}},"
          "\"type\":\"json_schema\"}",
          "response_format.json_schema.schema", "{\"a\": 1}", GRAMMAR_JSON_SCHEMA },
        { "\"response_format\":{\"type\":\"json_object\",\"schema\":{}}", "response_format.schema",
          "{}", GRAMMAR_JSON_SCHEMA },
        { "\"guided_json\":\"{\\\"a\\\":1}\"", "guided_json", "{\"a\":1}", GRAMMAR_JSON_SCHEMA },
        { "\"json_schema\":{}", "json_schema", "{}", GRAMMAR_JSON_SCHEMA },
        { "\"guided_regex\":\"a\\\\d\"", "guided_regex", "a\\d", GRAMMAR_REGEX },
        { "\"regex\":\"x\"", "regex", "x", GRAMMAR_REGEX },
        { "\"guided_choice\":[\"a\"]", "guided_choice", "[\"a\"]", GRAMMAR_CHOICE },
        { "\"ebnf\":\"root ::= x\"", "ebnf", "root ::= x", GRAMMAR_GBNF },
        { "\"structured_outputs\":{\"json\":null,\"choice\":[\"b\"],\"disable_any_whitespace\":"
          "false}",
          "structured_outputs.choice", "[\"b\"]", GRAMMAR_CHOICE },
        { "\"structured_outputs\":{\"structural_tag\":\"{}\"}", "structured_outputs.structural_tag",
          "{}", GRAMMAR_TAGS },
        { "\"response_format\":{\"type\":\"structural_tag\",\"format\":{}}", "response_format",
          "{\"type\":\"structural_tag\",\"format\":{}}", GRAMMAR_TAGS },
        { "\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object", "",
          GRAMMAR_JSON_OBJECT },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",%s}", rows[i].member);
        must_parse(f, OPENAI_COMPLETION, body);
        const struct openai_request *q = &f->req;
        bool same_key =
            rows[i].key ? q->grammar_key && !strcmp(q->grammar_key, rows[i].key) : !q->grammar_key;
        if (q->grammar.kind != rows[i].kind || !same_key) fail_msg("%s", body);
        if (rows[i].key && !str_eq(q->grammar.text, str_from(rows[i].text))) fail_msg("%s", body);
    }
}

/* The parser keeps the last texts by role that length predictors use. */
static void tells_the_last_contents_of_roles(void **state)
{
    struct fixture *f = *state;
    must_parse(f, OPENAI_CHAT,
               "{\"messages\":[{\"role\":\"system\",\"content\":\"be\\nkind\"},"
               "{\"content\":\"one\",\"role\":\"assistant\"},"
               "{\"role\":\"developer\",\"content\":\"be brief\"},"
               "{\"role\":\"assistant\",\"content\":\"\"},"
               "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
               "{\"type\":\"text\",\"text\":\"b\"}]},"
               "{\"role\":\"assistant\",\"content\":null},{\"role\":\"tool\"}]}");
    assert_true(str_eq(f->req.last_text, STR("a\\nb")));
    assert_true(str_eq(f->req.last_system, STR("be brief")));
    assert_true(f->req.last_answer.data && f->req.last_answer.len == 0);
    must_parse(f, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}");
    assert_false(f->req.last_text.data || f->req.last_system.data || f->req.last_answer.data);
}

static void parts_become_one_string(void **state)
{
    struct fixture *f = *state;
    must_parse(f, OPENAI_CHAT,
               "{\"messages\": [ {\"role\":\"system\",\"content\":\"s\"} , {\"content\" : [ "
               "{\"type\":\"text\",\"text\":\"a\\\"b\"}, {\"text\":\"\",\"type\":\"text\"} ] , "
               "\"role\":\"user\"},{\"role\":\"user\",\"content\":[]},"
               "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]} ] }");
    assert_true(
        str_eq(f->req.messages,
               STR("[ {\"role\":\"system\",\"content\":\"s\"} , {\"content\" : "
                   "\"a\\\"b\\n\" , \"role\":\"user\"},{\"role\":\"user\",\"content\":\"\"},"
                   "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]} ]")));
    struct json_reader r;
    json_reader_init(&r, f->req.messages);
    assert_int_equal(json_skip(&r), JSON_ARRAY_END);
    assert_int_equal(json_next(&r), JSON_END);
}

struct refused {
    const char *body, *param, *says; /* `says`: part of the message */
};

static void check_refused(struct fixture *f, enum openai_surface surface, const struct refused *row,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int rc = parse(f, surface, row[i].body);
        if (rc != -EINVAL) fail_msg("%s: rc %d", row[i].body, rc);
        if (strcmp(f->e.param, row[i].param) != 0)
            fail_msg("%s: param %s (%s)", row[i].body, f->e.param, f->e.message);
        if (!strstr(f->e.message, row[i].says)) fail_msg("%s: %s", row[i].body, f->e.message);
        assert_int_equal(f->e.status, 400);
        assert_string_equal(f->e.type, "invalid_request_error");
        assert_int_equal(f->req.max_tokens, 4711); /* the request is unchanged */
    }
}

static void refuses_grammars_and_tools(void **state)
{
    static const struct refused rows[] = {
        { "{" M ",\"response_format\":{\"type\":\"xml\"}}", "response_format", "are served" },
        { "{" M ",\"response_format\":{\"type\":\"json_schema\"}}", "response_format",
          "schema is missing" },
        { "{" M ",\"response_format\":7}", "response_format", "must be an object" },
        { "{" M ",\"structured_outputs\":{\"other\":\"x\"}}", "structured_outputs", "this is not" },
        { "{" M ",\"guided_json\":7}", "guided_json", "must be a JSON Schema" },
        { "{" M ",\"guided_choice\":\"a\"}", "guided_choice", "an array of strings" },
        { "{" M ",\"guided_regex\":\"a\",\"grammar\":\"b\"}", "grammar", "give one" },
        { "{" M ",\"structural_tag\":{}}", "structural_tag", "leave it out" },
        { "{" M ",\"tools\":{}}", "tools", "must be an array" },
        { "{" M ",\"tools\":[1]}", "tools", "objects only" },
        { "{" M ",\"tool_choice\":\"required\"}", "tool_choice", "there are no tools" },
        { "{" M ",\"tool_choice\":\"any\"}", "tool_choice", "an object that names" },
        { "{" M ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice", "are served" },
        { "{" M ",\"tool_choice\":{\"type\":\"allowed_tools\"}}", "tool_choice", "are served" },
        { "{" M ",\"parallel_tool_calls\":1}", "parallel_tool_calls", "true or false" },
        { "{" M ",\"reasoning_effort\":1}", "reasoning_effort", "must be a string" },
        { "{" M ",\"tools\":[{}],\"guided_regex\":\"a\"}", "guided_regex",
          "binds the whole output" },
    };
    check_refused(*state, OPENAI_CHAT, rows, COUNT_OF(rows));
}

static void refuses_chat(void **state)
{
    static const struct refused rows[] = {
        { "", "", "not valid JSON: the text ends too early at byte 0" },
        { "[]", "", "must be a JSON object" },
        { "{" M "} x", "", "behind the end" },
        { "{" M ",}", "", "not valid JSON" },
        { "{" M, "", "not valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", "", "lone surrogate" },
        { "{}", "messages", "is missing" },
        { "{\"messages\":null}", "messages", "is missing" },
        { "{\"messages\":[]}", "messages", "may not be empty" },
        { "{\"messages\":{}}", "messages", "must be an array" },
        { "{\"messages\":[1]}", "messages", "messages[0] must be an object" },
        { "{\"messages\":[{}]}", "messages", "has no role" },
        { "{\"messages\":[{\"role\":1}]}", "messages", "role is a string" },
        { "{\"messages\":[{\"role\":\"a\",\"role\":\"b\"}]}", "messages", "\"role\" stands there" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":\"x\",\"content\":\"y\"}]}", "messages",
          "\"content\" stands there twice" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":7}]}", "messages", "must be a string or" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":[\"x\"]}]}", "messages",
          "must be an object" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]"
          "}",
          "messages", "parts of type \"image_url\" are not served" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":[{\"type\":\"text\"}]}]}", "messages",
          "a part without text" },
        { "{\"messages\":[{\"role\":\"a\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}", "",
          "not valid JSON" },
        { "{" M ",\"temperature\":\"1\"}", "temperature", "must be a number" },
        { "{" M ",\"temperature\":1,\"temperature\":1}", "temperature", "twice" },
        { "{" M ",\"temperature\":1e400}", "temperature", "outside 0..2" },
        { "{" M ",\"max_tokens\":1.5}", "max_tokens", "must be a whole number" },
        { "{" M ",\"max_tokens\":99999999999999999999}", "max_tokens", "outside 1..2147483647" },
        { "{" M ",\"max_tokens\":1,\"max_completion_tokens\":2}", "max_tokens", "give one" },
        { "{" M ",\"max_tokens\":1,\"min_tokens\":2}", "min_tokens", "more than max_tokens 1" },
        { "{" M ",\"seed\":9223372036854775808}", "seed", "outside" },
        { "{" M ",\"stream\":1}", "stream", "true or false" },
        { "{" M ",\"stream_options\":{}}", "stream_options", "needs stream" },
        { "{" M ",\"stream\":true,\"stream_options\":[]}", "stream_options", "must be an object" },
        { "{" M ",\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
          "stream_options.include_usage", "true or false" },
        { "{" M ",\"stop\":7}", "stop", "a string or an array" },
        { "{" M ",\"stop\":[7]}", "stop", "must be a string" },
        { "{" M ",\"stop\":\"\"}", "stop", "outside 1..256" },
        { "{" M ",\"stop\":[\"a\",\"\"]}", "stop", "outside 1..256" },
        { "{" M ",\"stop\":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7]}", "stop", "more than 16 items" },
        { "{" M ",\"n\":0}", "n", "outside 1..64" },
        { "{" M ",\"n\":65}", "n", "outside 1..64" },
        { "{" M ",\"best_of\":2}", "best_of", "not served" },
        { "{" M ",\"logprobs\":2}", "logprobs", "true or false" },
        { "{" M ",\"top_logprobs\":3}", "top_logprobs", "needs logprobs to be true" },
        { "{" M ",\"prompt_logprobs\":21}", "prompt_logprobs", "outside 0..20" },
        { "{" M ",\"prompt_logprobs\":-1}", "prompt_logprobs", "outside 0..20" },
        { "{" M ",\"prompt_logprobs\":true}", "prompt_logprobs", "must be" },
        { "{" M ",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs",
          "not sent in a stream" },
        { "{" M ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "outside 0..20" },
        { "{" M ",\"logit_bias\":[]}", "logit_bias", "must be an object" },
        { "{" M ",\"logit_bias\":{\"a\":2}}", "logit_bias", "\"a\" is no token id" },
        { "{" M ",\"logit_bias\":{\"1\":\"2\"}}", "logit_bias", "an object of numbers" },
        { "{" M ",\"logit_bias\":{\"1\":-100.5}}", "logit_bias", "outside -100..100" },
        { "{" M ",\"logit_bias\":{\"1\":2,\"01\":2}}", "logit_bias", "1 stands there twice" },
        { "{" M ",\"logit_bias\":{\"4294967296\":2}}", "logit_bias", "is no token id" },
        { "{\"messages\":[{\"role\":\"me\",\"content\":\"a\"}]}", "messages",
          "messages[0]: the role \"me\" is unknown" },
        { "{" M ",\"chat_template_kwargs\":1}", "chat_template_kwargs", "must be an object" },
        { "{" M ",\"model\":7}", "model", "must be a string" },
        { "{" M ",\"echo\":tru}", "", "not valid JSON" },
    };
    check_refused(*state, OPENAI_CHAT, rows, COUNT_OF(rows));
}

static void refuses_completion(void **state)
{
    static const struct refused rows[] = {
        { "{}", "prompt", "is missing" },
        { "{" M "}", "prompt", "is missing" },
        { "{\"prompt\":\"\"}", "prompt", "outside 1.." },
        { "{\"prompt\":[]}", "prompt", "may not be empty" },
        { "{\"prompt\":[[]]}", "prompt", "may not be empty" },
        { "{\"prompt\":7}", "prompt", "a string, an array of token ids" },
        { "{\"prompt\":[{}]}", "prompt", "a string, an array of token ids" },
        { "{\"prompt\":[\"a\",[1]]}", "prompt", "prompts of one kind" },
        { "{\"prompt\":[\"a\",\"\"]}", "prompt", "outside 1.." },
        { "{\"prompt\":[[1],[]]}", "prompt", "may not be empty" },
        { "{\"prompt\":[[1],[2],[3]],\"n\":22}", "n", "more than 64 outputs" },
        { "{\"prompt\":\"a\",\"n\":3,\"best_of\":2}", "best_of", "less than n 3" },
        { "{\"prompt\":\"a\",\"n\":1,\"best_of\":2,\"stream\":true}", "best_of", "with stream" },
        { "{\"prompt\":[1,-2]}", "prompt", "item 1 is no token id" },
        { "{\"prompt\":[1,4294967296]}", "prompt", "item 1 is no token id" },
        { "{\"prompt\":[1,\"a\"]}", "prompt", "item 1 is no token id" },
        { "{\"prompt\":[1,2", "", "not valid JSON" },
        { "{\"prompt\":[\"a\"", "", "not valid JSON" },
        { "{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens", "needs echo" },
        { "{\"prompt\":\"a\",\"max_tokens\":-1,\"echo\":true}", "max_tokens", "" },
        { "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", "not served" },
        { "{\"prompt\":\"a\",\"best_of\":65}", "best_of", "outside 1..64" },
        { "{\"prompt\":\"a\",\"logprobs\":6}", "logprobs", "outside 0..5" },
        { "{\"prompt\":\"a\",\"logprobs\":true}", "logprobs", "a whole number" },
        { "{\"prompt\":\"a\",\"logprobs\":1,\"top_logprobs\":1}", "top_logprobs", "not served" },
    };
    check_refused(*state, OPENAI_COMPLETION, rows, COUNT_OF(rows));
}

/* Each bound is accepted, one step beyond it is refused. */
static void ranges_hold_at_their_ends(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name, *low, *below, *high, *above;
    } rows[] = {
        { "temperature", "0", "-0.01", "2", "2.01" },
        { "top_p", "0", "-0.01", "1", "1.01" },
        { "top_k", "-1", "-2", "2147483647", "2147483648" },
        { "min_p", "0", "-0.01", "1", "1.01" },
        { "presence_penalty", "-2", "-2.01", "2", "2.01" },
        { "frequency_penalty", "-2", "-2.01", "2", "2.01" },
        { "repetition_penalty", "0.01", "0", "10", "10.01" },
        { "max_tokens", "1", "0", "2147483647", "2147483648" },
        { "max_completion_tokens", "1", "0", "2147483647", "2147483648" },
        { "min_tokens", "0", "-1", "2147483647", "2147483648" },
        { "thinking_token_budget", "1", "0", "2147483647", "2147483648" },
        { "seed", "-9223372036854775808", "-9223372036854775809", "9223372036854775807",
          "9223372036854775808" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *value[4] = { rows[i].low, rows[i].high, rows[i].below, rows[i].above };
        for (int k = 0; k < 4; k++) {
            char body[256];
            snprintf(body, sizeof body, "{" M ",\"%s\":%s}", rows[i].name, value[k]);
            int rc = parse(f, OPENAI_CHAT, body);
            if ((rc == 0) != (k < 2)) fail_msg("%s: rc %d %s", body, rc, f->e.message);
            if (k >= 2) assert_string_equal(f->e.param, rows[i].name);
        }
    }
}

/* Writes `head`, then `count` times `item` with commas between and the number in place of %d, then
 * `tail`. */
static void repeated(struct buf *out, const char *head, const char *item, int count,
                     const char *tail)
{
    buf_clear(out);
    buf_text(out, head);
    for (int i = 0; i < count; i++) {
        const char *number = strstr(item, "%d");
        size_t before = number ? (size_t)(number - item) : strlen(item);
        if (i > 0) buf_text(out, ",");
        buf_str(out, str_of(item, before));
        if (number) buf_printf(out, "%d%s", i, number + 2);
    }
    buf_text(out, tail);
}

/* Each list and object accepts its maximum of items and refuses one more. */
static void counts_hold_at_their_ends(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *param, *says, *head, *item, *tail;
        int most;
    } rows[] = {
        { "messages", "more than 4096 items", "{\"messages\":[", "{\"role\":\"user\"}", "]}",
          OPENAI_MESSAGES_MAX },
        { "messages", "more than 1024 parts", "{\"messages\":[{\"role\":\"user\",\"content\":[",
          "{\"type\":\"text\",\"text\":\"\"}", "]}]}", OPENAI_PARTS_MAX },
        { "messages", "more than 1024 keys", "{\"messages\":[{\"role\":\"user\",", "\"k%d\":0",
          "}]}", JSON_KEYS_MAX - 1 },
        { "tools", "more than 512 items", "{" M ",\"tools\":[", "{}", "]}", OPENAI_TOOLS_MAX },
        { "tools", "more than 1024 keys", "{" M ",\"tools\":[{\"function\":{\"parameters\":{",
          "\"k%d\":0", "}}}]}", JSON_KEYS_MAX },
        { "chat_template_kwargs", "more than 1024 keys", "{" M ",\"chat_template_kwargs\":{",
          "\"k%d\":0", "}}", JSON_KEYS_MAX },
        { "chat_template_kwargs", "more than 1024 keys",
          "{" M ",\"chat_template_kwargs\":{\"a\":[{", "\"k%d\":0", "}]}}", JSON_KEYS_MAX },
        { "stop", "more than 16 items", "{" M ",\"stop\":[", "\"s\"", "]}", OPENAI_STOP_MAX },
        { "", "more than 1024 keys", "{" M ",\"metadata\":{", "\"k%d\":0", "}}", JSON_KEYS_MAX },
        { "", "more than 1024 keys", "{" M ",", "\"k%d\":0", "}", JSON_KEYS_MAX - 1 },
    };
    CLEANUP(buf_fini) struct buf body = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        repeated(&body, rows[i].head, rows[i].item, rows[i].most, rows[i].tail);
        must_parse(f, OPENAI_CHAT, body.data);
        repeated(&body, rows[i].head, rows[i].item, rows[i].most + 1, rows[i].tail);
        check_refused(f, OPENAI_CHAT, &(struct refused){ body.data, rows[i].param, rows[i].says },
                      1);
    }
    /* Above the schema are body, tools and tool; its levels fill the rest. */
    for (int over = 0; over < 2; over++) {
        buf_clear(&body);
        buf_text(&body, "{" M ",\"tools\":[{");
        for (int level = 3; level < JSON_DEPTH_MAX + over; level++)
            buf_text(&body, "\"items\":{");
        for (int level = 3; level < JSON_DEPTH_MAX + over; level++)
            buf_text(&body, "}");
        buf_text(&body, "}]}");
        if (over)
            check_refused(f, OPENAI_CHAT,
                          &(struct refused){ body.data, "tools", "nested deeper than 64" }, 1);
        else
            must_parse(f, OPENAI_CHAT, body.data);
    }
}

static void memory_is_bounded(void **state)
{
    struct fixture *f = *state;
    static const char body[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"x\"}]}],\"stop\":[\"a\",\"b\"]}";
    for (uint64_t n = 1;; n++) {
        fault_arm("arena.alloc", n);
        int rc = parse(f, OPENAI_CHAT, body);
        bool reached = fault_hits() >= n;
        fault_disarm();
        if (!reached) {
            assert_int_equal(rc, 0);
            assert_true(n > 4);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        assert_int_equal(f->e.status, 413);
    }
    arena_fini(&f->arena);
    arena_init(&f->arena, 8);
    assert_int_equal(
        openai_parse(OPENAI_COMPLETION, STR("{\"prompt\":[1,2,3]}"), &f->arena, &f->req, &f->e),
        -ENOMEM);
}

static void errors_render(void **state)
{
    (void)state;
    struct openai_error e;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(openai_error_set(&e, -E2BIG, OPENAI_CONTEXT_LENGTH, "messages",
                                      "%d tokens are \"too\" many", 9),
                     -E2BIG);
    assert_int_equal(openai_error_render(&e, &out), 0);
    assert_string_equal(out.data,
                        "{\"error\":{\"message\":\"9 tokens are \\\"too\\\" many\",\"type\":"
                        "\"invalid_request_error\",\"param\":\"messages\",\"code\":"
                        "\"context_length_exceeded\"}}");
    buf_clear(&out);
    openai_error_set(&e, -EINVAL, OPENAI_INVALID, NULL, "x");
    openai_error_render(&e, &out);
    assert_string_equal(out.data,
                        "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\","
                        "\"param\":null,\"code\":null}}");
    for (int i = 0; i < OPENAI_PROBLEM_COUNT; i++) {
        openai_error_set(&e, -1, (enum openai_problem)i, "p", "m");
        assert_true(e.status >= 400 && e.status < 600);
        assert_non_null(e.type);
    }
    char lengthy[200];
    memset(lengthy, 'p', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    openai_error_set(&e, -1, OPENAI_INVALID, lengthy, "m");
    assert_int_equal(strlen(e.param), OPENAI_PARAM_BYTES_MAX);
}

/* ---- requests for engines of other kinds ---- */

#define FORWARD(engine, what, description, member)                    \
    {                                                                 \
        .model = { "m", 1 }, .kind = engine, .grammar_key = member,   \
        .grammar = { what, { description, sizeof description - 1 } }, \
    }

/* One of several outputs has its own prompt and seed, and asks for no other. */
static void one_of_several_outputs_is_forwarded(void **state)
{
    (void)state;
    static const uint32_t two_ids[] = { 2, 3 };
    static const struct openai_prompt text_prompt = { .text = { "b\"", 2 } };
    static const struct openai_prompt ids_prompt = { .ids = two_ids, .id_count = 2 };
    static const struct {
        const char *why, *body;
        struct openai_forward how;
        const char *want;
    } rows[] = {
        { "one of several outputs of a chat",
          "{\"messages\":[],\"n\":3,\"seed\":7,\"best_of\":3,\"top_p\":0.5}",
          { .model = { "m", 1 }, .one_output = true, .has_seed = true, .seed = 9 },
          "{\"model\":\"m\",\"seed\":9,\"messages\":[],\"top_p\":0.5}" },
        { "one of several prompts, a text",
          "{\"prompt\":[\"a\",\"b\\\"\"],\"n\":1,\"x\":1}",
          { .model = { "m", 1 }, .one_output = true, .prompt = &text_prompt },
          "{\"model\":\"m\",\"prompt\":\"b\\\"\",\"x\":1}" },
        { "one of several prompts, ids",
          "{\"prompt\":[[1],[2,3]]}",
          { .model = { "m", 1 }, .one_output = true, .prompt = &ids_prompt },
          "{\"model\":\"m\",\"prompt\":[2,3]}" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_int_equal(openai_forward(str_from(rows[i].body), &rows[i].how, &out), 0);
        if (strcmp(out.data, rows[i].want) != 0) fail_msg("%s: %s", rows[i].why, out.data);
    }
}

static void requests_are_forwarded(void **state)
{
    (void)state;
    static const struct {
        const char *why, *body;
        struct openai_forward how;
        const char *want; /* NULL: refused */
    } rows[] = {
        { "the engine's name for the model replaces the client's",
          "{\"model\":\"chat\",\"top_k\":5}",
          { .model = { "/models/x", 9 } },
          "{\"model\":\"/models/x\",\"top_k\":5}" },
        { "a body without a model gets one", "{ }", { .model = { "m", 1 } }, "{\"model\":\"m\"}" },
        { "usage is asked for whatever the client wanted",
          "{\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
          { .model = { "m", 1 }, .stream = true },
          "{\"model\":\"m\",\"stream_options\":{\"include_usage\":true},\"stream\":true}" },
        { "a tenant's salt is ours to say",
          "{\"cache_salt\":\"of another tenant\",\"seed\":1}",
          { .model = { "m", 1 }, .cache_salt = { "s\"1", 3 } },
          "{\"model\":\"m\",\"cache_salt\":\"s\\\"1\",\"seed\":1}" },
        { "a client without a tenant chooses no cache either",
          "{\"cache_salt\":\"x\",\"extra_key\":\"y\",\"id_slot\":3}",
          { .model = { "m", 1 } },
          "{\"model\":\"m\"}" },
        { "members that reach other machines are left out, escaped or not",
          "{\"kv_transfer_params\":{\"remote_host\":\"h\"},\"bootstrap_\\u0068ost\":\"h\",\"n\":1}",
          { .model = { "m", 1 } },
          "{\"model\":\"m\",\"n\":1}" },
        { "what we do not know goes on as it is",
          "{ \"new\\nkey\" : [1, {\"model\":\"inner\"}] }",
          { .model = { "m", 1 } },
          "{\"model\":\"m\",\"new\\nkey\":[1, {\"model\":\"inner\"}]}" },
        { "a format that the engine knows goes on as it is",
          "{\"response_format\":{\"type\":\"json_object\"}}",
          FORWARD(ENGINE_SGLANG, GRAMMAR_JSON_OBJECT, "", "response_format"),
          "{\"model\":\"m\",\"response_format\":{\"type\":\"json_object\"}}" },
        { "vLLM's old name becomes the API's", "{\"guided_json\":{\"type\":\"null\"},\"n\":1}",
          FORWARD(ENGINE_VLLM, GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}", "guided_json"),
          "{\"model\":\"m\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
          "\"name\":"
          "\"output\",\"strict\":true,\"schema\":{\"type\":\"null\"}}},\"n\":1}" },
        { "a regex for vLLM", "{\"regex\":\"a\\\\d\"}",
          FORWARD(ENGINE_VLLM, GRAMMAR_REGEX, "a\\d", "regex"),
          "{\"model\":\"m\",\"structured_outputs\":{\"regex\":\"a\\\\d\"}}" },
        { "a regex for SGLang", "{\"structured_outputs\":{\"regex\":\"a\"}}",
          FORWARD(ENGINE_SGLANG, GRAMMAR_REGEX, "a", "structured_outputs.regex"),
          "{\"model\":\"m\",\"regex\":\"a\"}" },
        { "a choice for SGLang is a regex", "{\"guided_choice\":[\"a.b\",\"c\"]}",
          FORWARD(ENGINE_SGLANG, GRAMMAR_CHOICE, "[\"a.b\",\"c\"]", "guided_choice"),
          "{\"model\":\"m\",\"regex\":\"(a\\\\.b|c)\"}" },
        { "a choice for llama-server is a grammar", "{\"guided_choice\":[\"a\\\"b\",\"c\"]}",
          FORWARD(ENGINE_LLAMA_SERVER, GRAMMAR_CHOICE, "[\"a\\\"b\",\"c\"]", "guided_choice"),
          "{\"model\":\"m\",\"grammar\":\"root ::= \\\"a\\\\\\\"b\\\" | \\\"c\\\"\"}" },
        { "a grammar for SGLang", "{\"grammar\":\"root ::= x\"}",
          FORWARD(ENGINE_SGLANG, GRAMMAR_GBNF, "root ::= x", "grammar"),
          "{\"model\":\"m\",\"ebnf\":\"root ::= x\"}" },
        { "a regex for llama-server", "{\"regex\":\"a\"}",
          FORWARD(ENGINE_LLAMA_SERVER, GRAMMAR_REGEX, "a", "regex"), NULL },
        { "a choice for a server of the API alone", "{\"guided_choice\":[\"a\"]}",
          FORWARD(ENGINE_OPENAI, GRAMMAR_CHOICE, "[\"a\"]", "guided_choice"), NULL },
        { "no object", "[1]", { .model = { "m", 1 } }, NULL },
        { "cut", "{\"a\":", { .model = { "m", 1 } }, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        int rc = openai_forward(str_from(rows[i].body), &rows[i].how, &out);
        if ((rc == 0) != (rows[i].want != NULL)) fail_msg("%s: rc %d", rows[i].why, rc);
        if (rc < 0) continue;
        if (strcmp(out.data, rows[i].want) != 0) fail_msg("%s: %s", rows[i].why, out.data);
        struct json_reader r;
        json_reader_init(&r, buf_view(&out));
        json_skip(&r);
        if (json_next(&r) != JSON_END) fail_msg("%s: no JSON: %s", rows[i].why, out.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_full_chat_request),
        cmocka_unit_test(null_and_absent_are_defaults),
        cmocka_unit_test(prompts),
        cmocka_unit_test(takes_grammars),
        cmocka_unit_test(tells_the_last_contents_of_roles),
        cmocka_unit_test(parts_become_one_string),
        cmocka_unit_test(refuses_chat),
        cmocka_unit_test(refuses_grammars_and_tools),
        cmocka_unit_test(refuses_completion),
        cmocka_unit_test(ranges_hold_at_their_ends),
        cmocka_unit_test(counts_hold_at_their_ends),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(errors_render),
        cmocka_unit_test(requests_are_forwarded),
        cmocka_unit_test(one_of_several_outputs_is_forwarded),
    };
    return cmocka_run_group_tests_name("openai", tests, setup, teardown);
}
