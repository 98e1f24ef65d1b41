/* t_aws_sign.c - compares signatures with those of Amazon's published suite and of botocore's signer. */
#include "base/core/err.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/aws_sign.h"
#include "tests/unit/read_file.h"

#define VECTORS "tests/vectors/aws_sign/vectors.json"

struct vector {
    struct buf text[11];
    struct aws_header header[AWS_SIGNED_HEADERS_MAX];
    struct buf name[AWS_SIGNED_HEADERS_MAX], value[AWS_SIGNED_HEADERS_MAX];
    uint32_t header_count, at;
};

static struct str text_of(struct vector *v, int i, struct str json, const char *path)
{
    assert_int_equal(json_path_text(json, path, &v->text[i]), 0);
    return buf_view(&v->text[i]);
}

static int take_word(void *ctx, struct str word)
{
    struct vector *v = ctx;
    struct buf *to = v->at % 2 == 0 ? &v->name[v->at / 2] : &v->value[v->at / 2];
    assert_int_equal(json_path_text(word, "", to), 0);
    v->at++;
    return 0;
}

static int take_header(void *ctx, struct str pair)
{
    struct vector *v = ctx;
    uint32_t i = v->header_count++;
    assert_true(i < AWS_SIGNED_HEADERS_MAX);
    json_path_each(pair, "", take_word, v);
    v->header[i] = (struct aws_header){ buf_view(&v->name[i]), buf_view(&v->value[i]) };
    return 0;
}

static void clear(struct vector *v)
{
    for (int i = 0; i < 11; i++)
        buf_fini(&v->text[i]);
    for (uint32_t i = 0; i < AWS_SIGNED_HEADERS_MAX; i++) {
        buf_fini(&v->name[i]);
        buf_fini(&v->value[i]);
    }
}

static int check(void *ctx, struct str json)
{
    CLEANUP(clear) struct vector v = { 0 };
    CLEANUP(buf_fini) struct buf name = { 0 }, wanted = { 0 }, date = { 0 }, got = { 0 };
    assert_int_equal(json_path_text(json, "name", &name), 0);
    assert_int_equal(json_path_text(json, "authorization", &wanted), 0);
    assert_int_equal(json_path_text(json, "date", &date), 0);
    assert_int_equal(json_path_each(json, "headers", take_header, &v), 0);
    const struct aws_request req = { .method = text_of(&v, 0, json, "method"),
                                     .host = text_of(&v, 1, json, "host"),
                                     .path = text_of(&v, 2, json, "path"),
                                     .query = text_of(&v, 3, json, "query"),
                                     .header = v.header,
                                     .header_count = v.header_count,
                                     .body = text_of(&v, 4, json, "body"),
                                     .region = text_of(&v, 5, json, "region"),
                                     .service = text_of(&v, 6, json, "service") };
    const struct aws_key key = { .id = text_of(&v, 7, json, "id"),
                                 .secret = text_of(&v, 8, json, "secret"),
                                 .token = text_of(&v, 9, json, "token") };
    assert_int_equal(aws_sign(&req, &key, date.data, &got), 0);
    if (!str_eq(buf_view(&got), buf_view(&wanted)))
        fail_msg("%s: %s; want %s", name.data, got.data, wanted.data);
    ++*(int *)ctx;
    return 0;
}

static void signs_as_others_do(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf vectors = { 0 };
    int count = 0;
    read_file(VECTORS, &vectors);
    assert_int_equal(json_path_each(buf_view(&vectors), "", check, &count), 0);
    assert_true(count >= 55);
}

static void writes_dates(void **state)
{
    (void)state;
    char date[AWS_DATE_BYTES];
    aws_date(1440938160999999, date);
    assert_string_equal(date, "20150830T123600Z");
    aws_date(0, date);
    assert_string_equal(date, "19700101T000000Z");
}

static void refuses_more_than_fits(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, query = { 0 };
    const struct aws_key key = { .id = STR("id"), .secret = STR("secret") };
    struct aws_request req = { .method = STR("GET"), .host = STR("h"), .header_count = 13 };
    assert_int_equal(aws_sign(&req, &key, "20150830T123600Z", &out), -E2BIG);
    for (int i = 0; i < AWS_QUERY_MAX + 1; i++)
        buf_text(&query, "a&");
    req.header_count = 0;
    req.query = buf_view(&query);
    assert_int_equal(aws_sign(&req, &key, "20150830T123600Z", &out), -E2BIG);
    assert_int_equal(out.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_as_others_do),
        cmocka_unit_test(writes_dates),
        cmocka_unit_test(refuses_more_than_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
