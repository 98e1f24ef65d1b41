/* t_openai_logprobs.c - tests the forms of log-probabilities in a response. */
#include "base/core/own.h"
#include "base/wire/openai_logprobs.h"
#include "base/wire/openai_reply.h"
#include "tests/unit/unit.h"

/* A vocabulary: a word, half a character, the other half, a marker without text, an end token, and the word
 * once more. */
static const struct str words[] = { { "\xc3\xa9 a", 4 }, { "\xe2\x82", 2 }, { "\xac", 1 },
                                    { "<m>", 3 },        { "<e>", 3 },      { "\xc3\xa9 a", 4 } };

static struct str word_shown(const struct vocab *v, uint32_t id)
{
    (void)v;
    return words[id];
}

static struct str word_heard(const struct vocab *v, uint32_t id)
{
    (void)v;
    return id < 3 ? words[id] : (struct str){ 0 };
}

static bool word_ends(const struct vocab *v, uint32_t id)
{
    (void)v;
    return id == 4;
}

static void add(struct openai_logprobs *l, uint32_t count, const struct token_value *value)
{
    assert_int_equal(openai_logprobs_add(l, value, count * (1 + l->top), count), 0);
}

static void logprobs_of_completions(void **state)
{
    (void)state;
    CLEANUP(openai_logprobs_fini) struct openai_logprobs l = { 0 };
    const struct openai_tokens tokens = { NULL, word_shown, word_heard, word_ends };
    struct openai_request r = { .surface = OPENAI_COMPLETION, .logprobs = true, .top_logprobs = 2 };
    openai_logprobs_reset(&l, &r, &tokens, 1 << 20);
    assert_int_equal(openai_logprobs_take(&l).len, 0);
    /* The chosen token comes last where it is not among the likeliest, and of two tokens of one text the
     * likelier stays. Offsets are characters, over pieces. */
    add(&l, 2,
        (const struct token_value[]){
            { 0, -1 }, { 1, -0.5f }, { 0, -1 }, { 1, -3 }, { 0, -0.25f }, { 5, -2 } });
    assert_string_equal(
        openai_logprobs_take(&l).data,
        "{\"text_offset\":[0,3],\"token_logprobs\":[-1,-3],\"tokens\":[\"\xc3\xa9 "
        "a\",\"bytes:\\\\xe2\\\\x82\"],\"top_logprobs\":[{\"bytes:\\\\xe2\\\\x82\":-0.5,"
        "\"\xc3\xa9 a\":-1},{\"\xc3\xa9 a\":-0.25,\"bytes:\\\\xe2\\\\x82\":-3}]}");
    add(&l, 3,
        (const struct token_value[]){ { 2, -1 },
                                      { 2, -1 },
                                      { 3, LOGPROB_NONE },
                                      { 3, -2 },
                                      { 3, -2 },
                                      { 0, LOGPROB_NONE },
                                      { 4, 0 },
                                      { 4, 0 },
                                      { 0, -9 } });
    assert_string_equal(openai_logprobs_take(&l).data,
                        "{\"text_offset\":[4,4],\"token_logprobs\":[-1,-2],\"tokens\":["
                        "\"bytes:\\\\xac\",\"<m>\"],\"top_logprobs\":[{\"bytes:\\\\xac\":-1},"
                        "{\"<m>\":-2}]}");
    assert_int_equal(openai_logprobs_add(&l, NULL, 2, 1), -EPROTO);
    r.top_logprobs = 0;
    openai_logprobs_reset(&l, &r, &tokens, 1 << 20);
    add(&l, 1, (const struct token_value[]){ { 4, -1 } }); /* an end alone: nothing to write */
    assert_int_equal(openai_logprobs_take(&l).len, 0);
    r.ignore_eos = true;
    openai_logprobs_reset(&l, &r, &tokens, 1 << 20);
    add(&l, 1, (const struct token_value[]){ { 4, -1 } });
    assert_string_equal(openai_logprobs_take(&l).data,
                        "{\"text_offset\":[0],\"token_logprobs\":[-1],\"tokens\":[\"<e>\"],"
                        "\"top_logprobs\":[{\"<e>\":-1}]}");
}

/* The first token has none, an end token within the prompt is written, and offsets begin with the echo's
 * first character although the tokens have one before it. */
static void logprobs_of_prompts(void **state)
{
    (void)state;
    CLEANUP(openai_logprobs_fini) struct openai_logprobs l = { 0 };
    const struct openai_tokens tokens = { NULL, word_shown, word_heard, word_ends };
    const struct openai_request r = {
        .surface = OPENAI_COMPLETION, .echo = true, .logprobs = true, .top_logprobs = 1
    };
    const uint32_t prompt[] = { 3, 0, 4 };
    openai_logprobs_reset(&l, &r, &tokens, 1 << 20);
    assert_int_equal(openai_logprobs_prompt(&l, prompt, 3, STR(" a")), 0);
    assert_string_equal(openai_logprobs_take(&l).data,
                        "{\"text_offset\":[0],\"token_logprobs\":[null],\"tokens\":[\"<m>\"],"
                        "\"top_logprobs\":[null]}");
    add(&l, 2, (const struct token_value[]){ { 0, -1 }, { 0, -1 }, { 4, -2 }, { 4, -2 } });
    assert_string_equal(
        openai_logprobs_take(&l).data,
        "{\"text_offset\":[0,2],\"token_logprobs\":[-1,-2],\"tokens\":["
        "\"\xc3\xa9 a\",\"<e>\"],\"top_logprobs\":[{\"\xc3\xa9 a\":-1},{\"<e>\":-2}]}");
    add(&l, 1, (const struct token_value[]){ { 4, -1 }, { 4, -1 } }); /* generated: the end */
    assert_int_equal(openai_logprobs_take(&l).len, 0);
}

/* vLLM's form: the own token first, with its rank where it is among the rows' alternatives; those of the output have
 * a number of alternatives of their own, and offsets from its beginning. */
static void logprobs_of_prompts_apart(void **state)
{
    (void)state;
    CLEANUP(openai_logprobs_fini) struct openai_logprobs l = { 0 };
    const struct openai_tokens tokens = { NULL, word_shown, word_heard, word_ends };
    struct openai_request r = { .surface = OPENAI_COMPLETION,
                                .scores_prompt = true,
                                .prompt_top = 2 };
    const uint32_t prompt[] = { 3, 0, 4 };
    const struct token_value rows[] = { { 0, -1 }, { 2, -0.5f }, { 0, -1 },           { 4, -7 },
                                        { 0, -1 }, { 2, -3 },    { 0, -2 },           { 0, -2 },
                                        { 0, -2 }, { 4, -1 },    { 3, LOGPROB_NONE }, { 4, -1 } };
    static const char *const written =
        "[null,{\"0\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\"\xc3\xa9 a\"},"
        "\"2\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"bytes:\\\\xac\"}},"
        "{\"4\":{\"logprob\":-7,\"rank\":null,\"decoded_token\":\"<e>\"},"
        "\"0\":{\"logprob\":-1,\"rank\":1,\"decoded_token\":\"\xc3\xa9 a\"},"
        "\"2\":{\"logprob\":-3,\"rank\":2,\"decoded_token\":\"bytes:\\\\xac\"}}]";
    for (uint32_t i = 0; i < 2; i++) {
        r.logprobs = i > 0;
        openai_logprobs_reset(&l, &r, &tokens, 1 << 20);
        assert_int_equal(openai_logprobs_prompt(&l, prompt, 3, (struct str){ 0 }), 0);
        add(&l, 4, rows);
        const struct str of_output = openai_logprobs_take(&l);
        buf_byte(&l.prompt_json, 0);
        assert_string_equal(l.prompt_json.data, written);
        if (i == 0)
            assert_int_equal(of_output.len, 0);
        else
            assert_string_equal(of_output.data,
                                "{\"text_offset\":[0],\"token_logprobs\":[-2],\"tokens\":["
                                "\"\xc3\xa9 a\"],\"top_logprobs\":[{\"\xc3\xa9 a\":-2}]}");
    }
}

static void logprobs_of_chats(void **state)
{
    (void)state;
    CLEANUP(openai_logprobs_fini) struct openai_logprobs l = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct openai_tokens tokens = { NULL, word_shown, word_heard, word_ends };
    const struct openai_request q = { .surface = OPENAI_CHAT, .logprobs = true, .top_logprobs = 1 };
    struct openai_reply r = { .surface = OPENAI_CHAT, .id = STR("7"), .model = STR("m") };
    openai_logprobs_reset(&l, &q, &tokens, 1 << 20);
    add(&l, 1, (const struct token_value[]){ { 2, -2 }, { 0, -0.5f } });
    openai_chunk_logprobs(&r, (struct str){ 0 }, openai_logprobs_take(&l), &out);
    assert_string_equal(
        out.data, "data: "
                  "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":0,"
                  "\"model\":\"m\",\"system_fingerprint\":null,\"choices\":["
                  "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[{"
                  "\"token\":\"bytes:\\\\xac\",\"logprob\":-2,\"bytes\":[172],"
                  "\"top_logprobs\":[{\"token\":\"\xc3\xa9 a\",\"logprob\":-0.5,"
                  "\"bytes\":[195,169,32,97]}]}],\"refusal\":null},\"finish_reason\":null}]}\n\n");
    struct openai_delta d;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str json = str_of(out.data + 6, out.len - 8);
    assert_int_equal(openai_delta_parse(json, &text, &d, NULL), 0);
    assert_true(str_starts(d.logprobs, STR("{\"content\":[")));
    assert_true(str_ends(d.logprobs, STR("\"refusal\":null}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logprobs_of_completions),
        cmocka_unit_test(logprobs_of_prompts),
        cmocka_unit_test(logprobs_of_prompts_apart),
        cmocka_unit_test(logprobs_of_chats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
