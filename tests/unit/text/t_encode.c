/* t_encode.c - prompts within a model's context, and the bodies of /tokenize and /detokenize. */
#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/encode.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define LONG ((size_t)4 << 20)

static struct vocab *vocab;
static struct chat_template *template;
static char *long_text; /* LONG letters */

static struct encode_model model(void)
{
    return (struct encode_model){ vocab, template };
}

static int setup(void **state)
{
    (void)state;
    vocab = small_vocab("gpt-2");
    long_text = malloc(LONG);
    if (!long_text) return -1;
    for (size_t i = 0; i < LONG; i++)
        long_text[i] = "xyz "[i % 4];
    return chat_template_compile(STR("{% for m in messages %}{{ m.content }}{% endfor %}"),
                                 &template, NULL);
}

static int teardown(void **state)
{
    (void)state;
    vocab_free(vocab);
    chat_template_free(template);
    free(long_text);
    return 0;
}

static void as_many_as_fit_and_no_more(void **state)
{
    (void)state;
    struct encode_model m = model();
    struct err err = { "" };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    assert_int_equal(encode_text(&m, STR("xyzxyz"), true, 7, &ids, &err), 0); /* and <|begin|> */
    assert_int_equal(ids.count, 7);
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, STR("xyzxyz"), true, 6, &ids, &err), -EFBIG);
    assert_string_equal(err.text, "more than 6 tokens");
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, STR("xyzxyz"), false, 6, &ids, &err), 0);
    ids_clear(&ids);
    struct encode_chat chat = { .messages = STR("[{\"role\":\"user\",\"content\":\"xyz\"}]") };
    assert_int_equal(encode_chat(&m, &chat, 3, &ids, &err), 0);
    assert_int_equal(ids_push(&ids, 7), 0); /* the bound was the prompt's: answers come behind it */
    ids_clear(&ids);
    assert_int_equal(encode_chat(&m, &chat, 2, &ids, &err), -EFBIG);
    ids_clear(&ids);
    const uint32_t given[] = { 1, 2, 100000 };
    assert_int_equal(encode_ids(&m, given, 2, 2, &ids, &err), 0);
    assert_int_equal(encode_ids(&m, given, 2, 1, &ids, &err), -EFBIG);
    assert_int_equal(encode_ids(&m, given, 3, 3, &ids, &err), -EPROTO);
    assert_string_equal(err.text, "item 2: the model has no token 100000");
    m.chat_template = NULL;
    assert_int_equal(encode_chat(&m, &chat, 3, &ids, &err), -EPROTO);
}

/* Work follows the context, not the text. */
static void a_text_that_cannot_fit_is_not_read(void **state)
{
    (void)state;
    struct encode_model m = model();
    struct err err = { "" };
    struct str text = { long_text, LONG };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    work_units = 0;
    assert_int_equal(encode_text(&m, text, true, 1000, &ids, &err), -EFBIG);
    assert_int_equal(work_units, 0);
    /* It might fit, were it of the longest tokens only: read up to the first id too many. */
    size_t ids_max = LONG / vocab_token_bytes_max(vocab) + 1;
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, text, true, ids_max, &ids, &err), -EFBIG);
    uint64_t partly = work_units;
    ids_clear(&ids);
    work_units = 0;
    assert_int_equal(encode_text(&m, text, true, 2 * LONG, &ids, &err), 0);
    assert_true(partly < work_units * 3 / 4);
}

struct row {
    enum token_ask_kind kind;
    const char *body;
    int rc;
    const char *says; /* the reply, or a part of the sentence */
};

static void check(const struct row *row)
{
    struct encode_model m = model();
    struct token_ask ask;
    struct err err = { "" };
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = token_ask_read(row->kind, str_from(row->body), &ask, &err);
    if (rc == 0) rc = token_ask_answer(&ask, &m, row->rc == 0 ? 99 : 0, &out, &err);
    token_ask_fini(&ask);
    const char *got = rc == 0 ? out.data : err.text;
    if (rc != row->rc || !strstr(got, row->says)) fail_msg("%.80s: %d %.200s", row->body, rc, got);
}

static void bodies(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\"}", 0,
          "{\"count\":2,\"max_model_len\":99,\"tokens\":[0,126]}" },
        { TOKEN_ASK_TOKENIZE, "{\"content\":\"x\",\"add_special_tokens\":false,\"more\":[{}]}", 0,
          "\"tokens\":[126]" },
        { TOKEN_ASK_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"xx\"}]}", 0,
          "\"tokens\":[126,126]" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":7}", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\",\"messages\":[]}", -EINVAL, "give either" },
        { TOKEN_ASK_TOKENIZE, "{}", -EINVAL, "give either" },
        { TOKEN_ASK_TOKENIZE, "[]", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\"", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"messages\":7}", -EINVAL, "messages must be an array" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[126,127],\"model\":\"m\"}", 0,
          "{\"prompt\":\"xy\"}" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[]}", 0, "{\"prompt\":\"\"}" },
        { TOKEN_ASK_DETOKENIZE, "{}", -EINVAL, "missing" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":\"x\"}", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[-1]}", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[1", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[100000]}", -EPROTO, "no token 100000" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[1]}x", -EINVAL, "the request" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check(&rows[i]);
}

static void long_bodies(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 };
    for (int over = 0; over < 2; over++) {
        buf_clear(&body);
        buf_text(&body, "{\"tokens\":[126");
        for (uint32_t i = 1; i < TOKEN_ASK_IDS_MAX + (uint32_t)over; i++)
            buf_text(&body, ",126");
        buf_text(&body, "]}");
        check(&(struct row){ TOKEN_ASK_DETOKENIZE, body.data, over ? -EFBIG : 0,
                             over ? "more than 131072" : "xxxx" });
        buf_clear(&body);
        buf_text(&body, "{\"add_special\":false,\"prompt\":\"");
        for (uint32_t i = 0; i < TOKEN_ASK_IDS_MAX + (uint32_t)over; i++)
            buf_byte(&body, 'x');
        buf_text(&body, "\"}");
        check(&(struct row){ TOKEN_ASK_TOKENIZE, body.data, over ? -EFBIG : 0,
                             over ? "more than 131072" : "\"count\":131072" });
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_fit_and_no_more),
        cmocka_unit_test(a_text_that_cannot_fit_is_not_read),
        cmocka_unit_test(bodies),
        cmocka_unit_test(long_bodies),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
