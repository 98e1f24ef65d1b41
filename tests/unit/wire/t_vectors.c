/* t_vectors.c - tests requests for embeddings, scores and rankings, and their responses. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/vectors_reply.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)4 << 20)

static struct arena arena;
static struct openai_error problem;
static struct openai_request req;

static int parse(enum openai_surface surface, const char *body)
{
    arena_fini(&arena);
    arena_init(&arena, ARENA_BYTES);
    return openai_parse(surface, str_from(body), &arena, &req, &problem);
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static const struct {
    enum openai_surface surface;
    const char *body;
    uint32_t texts, first;
    const char *text; /* the last; NULL: it is of ids */
} taken[] = {
    { OPENAI_EMBED, "{\"input\":\"a\\u00e4\",\"user\":\"u\",\"dimensions\":null}", 1, 0, "aä" },
    { OPENAI_EMBED, "{\"input\":[\"a\",\"b\"],\"encoding_format\":\"float\"}", 2, 0, "b" },
    { OPENAI_EMBED, "{\"input\":[1,2,3],\"model\":\"m\"}", 1, 0, NULL },
    { OPENAI_EMBED, "{\"input\":[[1,2],[3]],\"normalize\":true}", 2, 0, NULL },
    { OPENAI_SCORE, "{\"text_1\":\"a\",\"text_2\":\"b\"}", 2, 1, "b" },
    { OPENAI_SCORE, "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}", 3, 1, "c" },
    { OPENAI_SCORE, "{\"queries\":[\"a\",\"b\"],\"documents\":[\"c\",\"d\"]}", 4, 2, "d" },
    { OPENAI_RERANK, "{\"documents\":[\"b\",{\"id\":[1],\"text\":\"c\",\"x\":{}}],\"query\":\"a\"}",
      3, 1, "c" },
};

static void requests_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(taken); i++) {
        if (parse(taken[i].surface, taken[i].body) < 0)
            fail_msg("%s: %s", taken[i].body, problem.message);
        assert_int_equal(req.prompt_count, taken[i].texts);
        assert_int_equal(req.vectors.first_count, taken[i].first);
        assert_int_equal(openai_outputs(&req), 1);
        const struct openai_prompt *last = &req.prompts[req.prompt_count - 1];
        if (taken[i].text)
            assert_true(str_eq(last->text, str_from(taken[i].text)));
        else
            assert_int_equal(last->ids[last->id_count - 1], 3);
    }
    assert_int_equal(parse(OPENAI_RERANK, "{\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":5,"
                                          "\"return_documents\":true,\"cache_salt\":\"s\"}"),
                     0);
    assert_int_equal(req.vectors.top_n, 5);
    assert_true(req.vectors.return_documents && str_eq(req.vectors.cache_salt, STR("s")));
}

static const struct {
    enum openai_surface surface;
    const char *body, *param, *says;
} refused[] = {
    { OPENAI_EMBED, "{}", "input", "input is missing" },
    { OPENAI_EMBED, "{\"input\":[]}", "input", "may not be empty" },
    { OPENAI_EMBED, "{\"input\":\"\"}", "input", "0 bytes" },
    { OPENAI_EMBED, "{\"input\":[\"a\",1]}", "input", "of one kind" },
    { OPENAI_EMBED, "{\"input\":[1,-2]}", "input", "item 1 is no token id" },
    { OPENAI_EMBED, "{\"input\":{}}", "input", "must be a string" },
    { OPENAI_EMBED, "{\"input\":\"a\",\"encoding_format\":\"int8\"}", "encoding_format", "base64" },
    { OPENAI_EMBED, "{\"input\":\"a\",\"dimensions\":0}", "dimensions", "outside" },
    { OPENAI_EMBED, "{\"input\":\"a\",\"normalize\":false}", "normalize", "only true" },
    { OPENAI_EMBED, "{\"input\":\"a\",\"truncate_prompt_tokens\":5}", "truncate_prompt_tokens",
      "not served" },
    { OPENAI_EMBED, "{\"messages\":[]}", "messages", "not served" },
    { OPENAI_SCORE, "{\"text_2\":\"b\"}", "text_1", "missing" },
    { OPENAI_SCORE, "{\"text_1\":\"b\"}", "text_2", "missing" },
    { OPENAI_SCORE, "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"c\"}", "text_1", "has 2 texts" },
    { OPENAI_SCORE, "{\"text_1\":[1],\"text_2\":\"c\"}", "text_1", "array of strings" },
    { OPENAI_SCORE, "{\"text_1\":\"a\",\"queries\":\"b\",\"text_2\":\"c\"}", "queries",
      "another name" },
    { OPENAI_RERANK, "{\"query\":\"a\"}", "documents", "missing" },
    { OPENAI_RERANK, "{\"query\":\"a\",\"documents\":[]}", "documents", "empty" },
    { OPENAI_RERANK, "{\"query\":\"a\",\"documents\":\"b\"}", "documents", "an array" },
    { OPENAI_RERANK, "{\"query\":\"a\",\"documents\":[{\"t\":\"b\"}]}", "documents", "without" },
    { OPENAI_RERANK, "{\"query\":\"a\",\"documents\":[{\"text\":1}]}", "documents", "a string" },
    { OPENAI_RERANK, "{\"query\":[\"a\",\"b\"],\"documents\":[\"c\",\"d\"]}", "query",
      "a request for each" },
};

static void mistakes_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        assert_int_equal(parse(refused[i].surface, refused[i].body), -EINVAL);
        assert_string_equal(problem.param, refused[i].param);
        if (!strstr(problem.message, refused[i].says))
            fail_msg("%s: \"%s\"", refused[i].body, problem.message);
    }
}

static void the_number_of_texts_is_bounded(void **state)
{
    (void)state;
    for (uint32_t extra = 0; extra < 2; extra++) {
        CLEANUP(buf_fini) struct buf body = { 0 };
        buf_text(&body, "{\"input\":[");
        for (uint32_t i = 0; i < OPENAI_TEXTS_MAX + extra; i++)
            buf_text(&body, i > 0 ? ",\"a\"" : "\"a\"");
        buf_text(&body, "]}");
        buf_byte(&body, 0);
        assert_int_equal(parse(OPENAI_EMBED, body.data), extra ? -EINVAL : 0);
    }
    assert_non_null(strstr(problem.message, "more than 2048 items"));
}

static void vectors_have_length_one(void **state)
{
    (void)state;
    const double sum[] = { 3, -4, 12 }, none[] = { 0, 0, 1 }, wide[] = { 1e200, 1e200 };
    float v[3];
    assert_int_equal(vector_normalise(sum, 2, v), 0);
    assert_true(v[0] == 0.6f && v[1] == -0.8f);
    assert_int_equal(vector_normalise(sum, 3, v), 0);
    assert_true(fabs(vector_cosine(v, v, 3) - 1) < 1e-6 && vector_cosine(v, v, 3) <= 1);
    assert_int_equal(vector_normalise(none, 2, v), -EDOM);
    assert_int_equal(vector_normalise(wide, 2, v), -EDOM);
    assert_int_equal(vector_normalise((const double[]){ NAN }, 1, v), -EDOM);
}

/* The strings are Python's: base64.b64encode(struct.pack("<3f", ...)). */
static void vectors_are_rendered(void **state)
{
    (void)state;
    const float v[] = { 0.6f, -0.8f, 1.17549435e-38f };
    static const char *const base64[] = { "\"mpkZPw==\"", "\"mpkZP83MTL8=\"",
                                          "\"mpkZP83MTL8AAIAA\"" };
    for (uint32_t n = 1; n <= 3; n++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        vector_render(v, n, true, &out);
        assert_true(str_eq(buf_view(&out), str_from(base64[n - 1])));
        assert_int_equal(out.len, vector_bytes(n, true));
        buf_clear(&out);
        vector_render(v, n, false, &out);
        assert_true(out.len <= vector_bytes(n, false));
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    vector_render(v, 3, false, &out);
    assert_true(str_eq(buf_view(&out), STR("[0.600000024,-0.800000012,1.17549435e-38]")));
}

static void rankings_are_sorted_and_cut(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct openai_reply r = { .id = STR("1"), .model = STR("m") };
    const struct usage usage = { .prompt_tokens = 9, .cached_tokens = 2 };
    struct document_rank rank[] = { { 0.25, 0 }, { 0.5, 1 }, { -1, 2 }, { 0.5, 3 } };
    assert_int_equal(parse(OPENAI_RERANK,
                           "{\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\",\"d\"],"
                           "\"top_n\":3,\"return_documents\":true}"),
                     0);
    assert_int_equal(ranking_reply(&r, &req, rank, 4, &usage, &out), 0);
    assert_true(
        str_eq(buf_view(&out),
               STR("{\"id\":\"rerank-1\",\"model\":\"m\",\"usage\":{\"prompt_tokens\":9,\"total_"
                   "tokens\":9,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":2}},\"results\":["
                   "{\"index\":1,\"relevance_score\":0.5,\"document\":{\"text\":\"b\"}},"
                   "{\"index\":3,\"relevance_score\":0.5,\"document\":{\"text\":\"d\"}},"
                   "{\"index\":0,\"relevance_score\":0.25,\"document\":{\"text\":\"a\"}}]}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read),
        cmocka_unit_test(mistakes_have_their_sentence),
        cmocka_unit_test(the_number_of_texts_is_bounded),
        cmocka_unit_test(vectors_have_length_one),
        cmocka_unit_test(vectors_are_rendered),
        cmocka_unit_test(rankings_are_sorted_and_cut),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
