/* t_features.c - tests that questions of one kind share a key and questions of two kinds do not. */
#include "base/core/buf.h"
#include "router/generate.h"
#include "tests/unit/unit.h"

static struct arena arena;

/* Parses a chat request with these messages; returns false if it is refused. */
static bool parse(const char *messages, struct openai_request *ret)
{
    static struct buf body; /* the parsed request points into it */
    struct openai_error e = { 0 };
    buf_clear(&body);
    buf_printf(&body, "{\"messages\":%s}", messages);
    assert_int_equal(body.rc, 0);
    return openai_parse(OPENAI_CHAT, buf_view(&body), &arena, ret, &e) == 0;
}

static struct predict_features chat(const char *messages)
{
    struct openai_request api = { 0 };
    struct predict_features f = { 0 };
    if (!parse(messages, &api)) fail_msg("refused: %s", messages);
    features_of(&api, STR("tenant"), 100, &arena, &f);
    return f;
}

static struct predict_features completion(const char *prompt)
{
    struct openai_request api = { .surface = OPENAI_COMPLETION, .prompt = str_from(prompt) };
    struct predict_features f = { 0 };
    features_of(&api, STR("tenant"), 100, &arena, &f);
    return f;
}

#define USER(text) "[{\"role\":\"user\",\"content\":\"" text "\"}]"
#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define PARTS(list) "[{\"role\":\"user\",\"content\":[" list "]}]"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

static void questions_of_a_kind_share_a_key(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
        const char *why;
    } rows[] = {
        { USER("Count to 12"), USER("Count to 37"), true, "numbers of one length" },
        { USER("Count to 12"), USER("Count to 3700"), false, "numbers of another length" },
        { USER("List five animals"), USER("list  FIVE animals of the sea"), true,
          "case, blanks and the words behind" },
        { USER("List five animals"), USER("List five plants"), false, "another third word" },
        { USER("Tell me a story"), USER("What is a story"), false, "another kind" },
        { USER("A long text.\\nSummarise it please"), USER("Another one!\\nsummarise it please"),
          true, "the last line asks" },
        { USER("Summarise it please\\n \\n"), USER("Summarise it please"), true, "an empty end" },
        { "[" SYSTEM("Be kind.") ",{\"role\":\"user\",\"content\":\"Say one word\"}]",
          USER("Say one word"), true, "the last message asks" },
        { PARTS(TEXT("Say one word")), USER("Say one word"), true, "a content of one part" },
        { PARTS(TEXT("Look at this") "," TEXT("Say one word")), USER("Say one word"), true,
          "the last of several parts" },
        { "[{\"role\":\"user\",\"content\":\"Say one "
          "word\"},{\"role\":\"assistant\",\"content\":null}]",
          USER("Say one word"), true, "a content that is null" },
        { "[{\"content\":\"Say one word\",\"x\":{\"content\":\"No\"},\"role\":\"user\"}]",
          USER("Say one word"), true, "content that is not the message's own" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct predict_features a = chat(rows[i].a), b = chat(rows[i].b);
        if ((a.ask == b.ask) != rows[i].same || a.ask == 0 || b.ask == 0) {
            fail_msg("%s", rows[i].why);
        }
        assert_int_equal(a.tenant, b.tenant);
    }
}

static void both_surfaces_ask_alike(void **state)
{
    (void)state;
    assert_int_equal(completion("Say one word").ask, chat(USER("Say one word")).ask);
    assert_int_not_equal(completion("Say one word").ask, completion("Sing one song").ask);
}

static void the_beginning_and_the_tenant_are_keys_too(void **state)
{
    (void)state;
    struct openai_request api = { .surface = OPENAI_COMPLETION, .prompt = STR("Say one word") };
    struct predict_features a = { 0 }, b = { 0 };
    features_of(&api, STR("a"), 100, &arena, &a);
    features_of(&api, STR("b"), 100, &arena, &b);
    assert_int_not_equal(a.tenant, b.tenant);
    assert_int_not_equal(a.prefix, b.prefix);
    assert_int_equal(a.ask, b.ask);
    assert_int_not_equal(completion("Say one word").prefix, completion("Say two words").prefix);
}

/* Messages without a question have key 0. */
static void messages_without_text_have_no_question(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "[{\"role\":\"user\"}]",
        "[{\"role\":\"user\",\"content\":null}]",
        "[{\"role\":\"user\",\"content\":[]}]",
        "[{\"role\":\"user\",\"content\":\"\"}]",
        "[{\"role\":\"user\",\"content\":\" \\n\\t \"}]",
        PARTS(TEXT("")),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (chat(rows[i]).ask != 0) fail_msg("a question was found in %s", rows[i]);
    }
    assert_int_equal(completion("").ask, 0);
    struct openai_request none = { .surface = OPENAI_COMPLETION }; /* a prompt of token ids */
    struct predict_features f = { 0 };
    features_of(&none, (struct str){ 0 }, 100, &arena, &f);
    assert_int_equal(f.ask, 0);
    static char longest[4096];
    memset(longest, 'w', sizeof longest - 1);
    assert_int_not_equal(completion(longest).ask, 0);
}

static void a_conversation_names_its_task_and_its_last_answer(void **state)
{
    (void)state;
    struct predict_features f = chat("[" SYSTEM("Be kind.") "," SAID("user", "Hello") "," SAID(
        "assistant", "Good day to you, my friend.") "," SAID("user", "What is rain?") "]");
    assert_true(str_eq(f.text, STR("What is rain?")));
    assert_int_equal(f.prompt_tokens, 100);
    /* 27 of 171 bytes, in a prompt of 100 tokens. */
    assert_in_range(f.previous_tokens, 12, 20);
    struct predict_features other = chat("[" SYSTEM("Be brief.") "," SAID("user", "Hello") "]");
    assert_true(f.group != 0 && other.group != 0 && f.group != other.group);
    assert_int_equal(other.previous_tokens, 0);
    assert_int_equal(chat(USER("Hello")).group, 0);
    assert_int_equal(chat("[" SAID("developer", "Be kind.") "]").group, f.group);
}

static void a_long_text_keeps_its_end(void **state)
{
    (void)state;
    static char text[4096];
    memset(text, 'w', sizeof text - 1);
    memcpy(text + sizeof text - 13, " the end now", 12);
    struct predict_features f = completion(text);
    assert_true(f.text.len > 0 && f.text.len < 1024 && str_ends(f.text, STR(" the end now")));
    struct openai_request api = { 0 };
    struct arena none;
    arena_init(&none, 16);
    assert_true(parse("[" SAID("user", "Say one word, and then no more of them") "]", &api));
    features_of(&api, STR("a"), 100, &none, &f);
    assert_int_equal(f.text.len, 0);
    assert_int_equal(f.ask, 0);
    arena_fini(&none);
}

int main(void)
{
    arena_init(&arena, 1 << 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_of_a_kind_share_a_key),
        cmocka_unit_test(both_surfaces_ask_alike),
        cmocka_unit_test(the_beginning_and_the_tenant_are_keys_too),
        cmocka_unit_test(messages_without_text_have_no_question),
        cmocka_unit_test(a_conversation_names_its_task_and_its_last_answer),
        cmocka_unit_test(a_long_text_keeps_its_end),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_fini(&arena);
    return failed;
}
