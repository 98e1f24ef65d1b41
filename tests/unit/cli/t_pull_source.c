/* t_pull_source.c - tests what a URL names and which files of a repository a model is. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/net/addr.h"
#include "cli/pull/pull_store.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void urls_have_parts(void **state)
{
    static const struct {
        const char *text, *repo, *rev, *file, *name; /* repo NULL: not of the hub */
    } rows[] = {
        { "https://h/m.gguf", NULL, "", "", "m.gguf" },
        { "http://h:1/a/b/m?x=/y#z", NULL, "", "", "m" },
        { "hf://Org/Repo-1.5_x", "Org/Repo-1.5_x", "main", "", "Repo-1.5_x" },
        { "hf://o/r@v1.0", "o/r", "v1.0", "", "r" },
        { "hf://o/r/m.gguf", "o/r", "main", "m.gguf", "m.gguf" },
        { "hf://o/r@abc/d/e f@2.gguf", NULL, "", "", NULL }, /* a blank */
        { "hf://o/r@abc/d/e@2.gguf", "o/r", "abc", "d/e@2.gguf", "e@2.gguf" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct pull_url u;
        struct err err = { 0 };
        int rc = pull_url_parse(str_from(rows[i].text), &u, &err);
        if (rc < 0 && rows[i].name) fail_msg("%s: %s", rows[i].text, err.text);
        assert_int_equal(rc, rows[i].name ? 0 : -EINVAL);
        if (rc < 0) continue;
        assert_string_equal(u.name, rows[i].name);
        assert_int_equal(u.hub, rows[i].repo != NULL);
        if (!u.hub) continue;
        assert_true(str_eq(u.repo, str_from(rows[i].repo)));
        assert_true(str_eq(u.rev, str_from(rows[i].rev)));
        assert_true(str_eq(u.file, str_from(rows[i].file)));
    }
}

static void wrong_urls_are_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "m",
        "ftp://h/m",
        "http://",
        "http://h",
        "http://h/",
        "http://h/.",
        "http://h/..",
        "http://h/a%2f",
        "http://h/.m",
        "http://h/a:b",
        "http://h/a\\b",
        "http://h/a\xff",
        "hf://",
        "hf://o",
        "hf://o/",
        "hf:///r",
        "hf://o/r@",
        "hf://o/r/",
        "hf://../r",
        "hf://o/..",
        "hf://o/r/../x",
        "hf://o/r//x",
        "hf://o/r/.x",
        "hf://o/r@a/./x",
        "hf://o/r?x",
        "hf://o r/x",
        "hf://o/r\n/x",
        "hf://o%2f/r",
        "hf://o/r@a%2fb",
    };
    char long_url[PULL_URL_BYTES_MAX + 16] = "http://h/";
    struct pull_url u;
    struct err err = { 0 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (pull_url_parse(str_from(rows[i]), &u, &err) != -EINVAL)
            fail_msg("'%s' is taken", rows[i]);
    memset(long_url + 9, 'x', sizeof long_url - 10);
    assert_int_equal(pull_url_parse(str_from(long_url), &u, &err), -EINVAL);
    char shown[64];
    pull_url_shown(STR("https://h/m?sig=1"), shown, sizeof shown);
    assert_string_equal(shown, "https://h/m");
}

static void names_stay_below_their_folder(void **state)
{
    static const struct {
        const char *name;
        bool safe;
    } rows[] = {
        { "a", true },         { "a/b.c", true },    { "a b", true },
        { "1/2/3/4/5", true }, { "", false },        { "/", false },
        { "/a", false },       { "a/", false },      { "a//b", false },
        { ".", false },        { "..", false },      { "a/..", false },
        { "a/../b", false },   { ".hidden", false }, { "a/.b", false },
        { "a\\b", false },     { "c:d", false },     { "a\tb", false },
        { "a\x7f", false },    { "a\xff", false },   { "1/2/3/4/5/6", false },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (pull_name_is_safe(str_from(rows[i].name)) != rows[i].safe)
            fail_msg("'%s'", rows[i].name);
    char name[PULL_PART_BYTES_MAX + 2];
    memset(name, 'x', sizeof name);
    assert_true(pull_name_is_safe(str_of(name, PULL_PART_BYTES_MAX)));
    assert_false(pull_name_is_safe(str_of(name, PULL_PART_BYTES_MAX + 1)));
    assert_false(pull_name_is_safe(str_of("a\0b", 3)));
}

#define FILE_(path, more) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":7" more "}"
#define HEX64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define LFS ",\"lfs\":{\"oid\":\"" HEX64 "\",\"size\":9}"

/* Reads one page, chooses for the URL, and writes the chosen names. */
static int choose(const char *json, const char *url, char ret[256], struct err *err)
{
    CLEANUP(pull_listing_fini) struct pull_listing l = { 0 };
    struct pull_url u;
    ret[0] = 0;
    assert_int_equal(pull_url_parse(str_from(url), &u, NULL), 0);
    int rc = pull_listing_add(&l, str_from(json), err);
    if (rc == 0) rc = pull_listing_choose(&l, &u, err);
    for (uint32_t i = 0; rc == 0 && i < l.count; i++) {
        size_t at = strlen(ret);
        snprintf(ret + at, 256 - at, "%s%s", at ? " " : "", l.items[i].name.data);
        bool large = l.items[i].sha256.len > 0;
        assert_int_equal(l.items[i].bytes, large ? 9 : 7);
    }
    return rc;
}

static void a_model_is_chosen(void **state)
{
#define SHARD(n) FILE_("q/m-0000" n "-of-00002.gguf", LFS)
#define REPO                                                                                       \
    "[{\"type\":\"directory\",\"path\":\"q\"}," FILE_(".gitattributes", "") "," FILE_(             \
        "z.safetensors",                                                                           \
        LFS) "," FILE_("config.json",                                                              \
                       "") "," FILE_("vocab.txt",                                                  \
                                     "") "," FILE_("consolidated.safetensors",                     \
                                                   LFS) "," FILE_("README.md",                     \
                                                                  "") "," FILE_("1_Pooling/"       \
                                                                                "config.json",     \
                                                                                "") "," FILE_("on" \
                                                                                              "nx" \
                                                                                              "/m" \
                                                                                              "od" \
                                                                                              "el" \
                                                                                              ".j" \
                                                                                              "so" \
                                                                                              "n", \
                                                                                              "") "," SHARD("2") "," SHARD("1") "]"
    static const struct {
        const char *json, *url, *names; /* names NULL: refused */
        const char *says;
    } rows[] = {
        { REPO, "hf://o/r", "1_Pooling/config.json config.json vocab.txt z.safetensors", NULL },
        { REPO, "hf://o/r/q/m-00001-of-00002.gguf",
          "q/m-00001-of-00002.gguf q/m-00002-of-00002.gguf", NULL },
        { REPO, "hf://o/r/q/m-00002-of-00002.gguf", "q/m-00002-of-00002.gguf", NULL },
        { REPO, "hf://o/r/README.md", "README.md", NULL },
        { REPO, "hf://o/r/m", NULL, "no file m" },
        { "[" SHARD("1") "]", "hf://o/r/q/m-00001-of-00002.gguf", NULL, "no file q/m-00002-of" },
        { "[" SHARD("1") "]", "hf://o/r", NULL, "name one as hf://ORG/REPO/FILE: q/m-00001" },
        { "[" FILE_("config.json", "") "]", "hf://o/r", NULL, "no *.safetensors and no *.gguf" },
        { " [ ] ", "hf://o/r", NULL, "no model" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char names[256];
        struct err err = { 0 };
        int rc = choose(rows[i].json, rows[i].url, names, &err);
        if (rows[i].names && rc < 0) fail_msg("row %zu: %s", i, err.text);
        if (rows[i].names) {
            assert_string_equal(names, rows[i].names);
            continue;
        }
        assert_int_equal(rc, -ENOENT);
        if (!strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
    }
}

static void wrong_listings_are_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "{}",
        "[",
        "[1]",
        "[{}]",
        "[{\"type\":\"file\"}]",
        "[{\"type\":\"file\",\"path\":\"a\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]",
        "[{\"type\":\"file\",\"path\":3,\"size\":1}]",
        "[" FILE_("../a", "") "]",
        "[" FILE_("a/../../b", "") "]",
        "[" FILE_("/a", "") "]",
        "[" FILE_("", "") "]",
        "[" FILE_("a\\\\b", "") "]",
        "[" FILE_("a\\u0000b", "") "]",
        "[" FILE_("a\\nb", "") "]",
        "[" FILE_("a", "") "," FILE_("a", "") "]",
        "[" FILE_("a", ",\"lfs\":{\"oid\":\"12\"}") "]",
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(pull_listing_fini) struct pull_listing l = { 0 };
        struct err err = { 0 };
        if (pull_listing_add(&l, str_from(rows[i]), &err) != -EINVAL)
            fail_msg("taken: %s", rows[i]);
        assert_true(err.text[0] != 0);
    }
}

static void a_listing_has_a_bound(void **state)
{
    CLEANUP(pull_listing_fini) struct pull_listing l = { 0 };
    CLEANUP(buf_fini) struct buf json = { 0 };
    struct pull_url u;
    struct err err = { 0 };
    (void)state;
    for (uint32_t i = 0; i < PULL_LISTED_MAX; i++)
        buf_printf(&json, "%c{\"type\":\"file\",\"path\":\"%u.json\",\"size\":1}", i ? ',' : '[',
                   i);
    buf_byte(&json, ']');
    assert_int_equal(pull_listing_add(&l, buf_view(&json), &err), 0);
    assert_int_equal(pull_listing_add(&l, STR("[" FILE_("more", "") "]"), &err), -E2BIG);
    assert_int_equal(pull_url_parse(STR("hf://o/r"), &u, &err), 0);
    l.items[0].name = STR("a.safetensors");
    assert_int_equal(pull_listing_choose(&l, &u, &err), -E2BIG);
}

static void urls_of_the_hub_are_encoded(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct pull_url u;
    struct str hub = STR("https://hub");
    (void)state;
    assert_int_equal(pull_url_parse(STR("hf://o/r@v1"), &u, NULL), 0);
    pull_hub_commit_url(hub, &u, &out);
    assert_string_equal(out.data, "https://hub/api/models/o/r/revision/v1");
    buf_clear(&out);
    pull_hub_tree_url(hub, &u, STR("abc"), &out);
    assert_string_equal(out.data, "https://hub/api/models/o/r/tree/abc?recursive=1");
    buf_clear(&out);
    pull_hub_file_url(hub, &u, STR("abc"), STR("d/a b?#%\xc3\xa9.gguf"), &out);
    assert_string_equal(out.data, "https://hub/o/r/resolve/abc/d/a%20b%3F%23%25%C3%A9.gguf");
}

static void the_next_page_is_the_hubs(void **state)
{
    static const struct {
        const char *link, *next; /* NULL: refused */
    } rows[] = {
        { "", "" },
        { "<https://hub/x?c=1>; rel=\"next\"", "https://hub/x?c=1" },
        { "<https://hub/p>; rel=\"prev\", <https://hub/n>; rel=\"next\"", "https://hub/n" },
        { "<https://hub/p>; rel=\"prev\"", "" },
        { "<https://hub.evil/n>; rel=\"next\"", NULL },
        { "<https://hub@evil/n>; rel=\"next\"", NULL },
        { "<http://hub/n>; rel=\"next\"", NULL },
        { "</n>; rel=\"next\"", NULL },
        { "nonsense", "" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str next;
        int rc = pull_next_page(str_from(rows[i].link), STR("https://hub"), &next, NULL);
        if (rc != (rows[i].next ? 0 : -EPROTO)) fail_msg("row %zu", i);
        if (rc == 0 && !str_eq(next, str_from(rows[i].next))) fail_msg("row %zu", i);
    }
}

static void urls_of_stores_become_requests(void **state)
{
    static const struct {
        const char *text, *endpoint, *region, *url, *list; /* url NULL: refused */
    } rows[] = {
        { "s3://b-1/d/m.gguf", "", "eu-west-1", "https://b-1.s3.eu-west-1.amazonaws.com/d/m.gguf",
          NULL },
        { "s3://b.c/m", "", "us-east-1", "https://s3.us-east-1.amazonaws.com/b.c/m", NULL },
        { "s3://b/m", "", "cn-north-1", "https://b.s3.cn-north-1.amazonaws.com.cn/m", NULL },
        { "s3://b/a+b?#%.gguf", "http://minio:9000/", "r",
          "http://minio:9000/b/a%2Bb%3F%23%25.gguf", NULL },
        { "s3://b/d/e/", "https://m", "r", "https://m/b/d/e/",
          "https://m/b/?list-type=2&max-keys=1000&prefix=d%2Fe%2F&continuation-token=n%3D" },
        { "gs://b/d/m", "", "", "https://storage.googleapis.com/b/d/m", NULL },
        { "gs://b/d/", "", "", "https://storage.googleapis.com/b/d/",
          "https://storage.googleapis.com/b/"
          "?list-type=2&max-keys=1000&prefix=d%2F&continuation-token=n%3D" },
        { "az://acc/c/m", "", "", "https://acc.blob.core.windows.net/c/m", NULL },
        { "az://acc/c/d/", "", "", "https://acc.blob.core.windows.net/c/d/",
          "https://acc.blob.core.windows.net/c"
          "?restype=container&comp=list&maxresults=1000&prefix=d%2F&marker=n%3D" },
        { "https://acc.blob.core.windows.net/c/m", "http://127.0.0.1:1/acc", "",
          "http://127.0.0.1:1/acc/c/m", NULL },
        { "s3://", "", "", NULL, NULL },
        { "s3://b", "", "", NULL, NULL },
        { "s3://b/", "", "", NULL, NULL },
        { "s3:///k", "", "", NULL, NULL },
        { "s3://b/..", "", "", NULL, NULL },
        { "s3://b/../k", "", "", NULL, NULL },
        { "s3://b/./k", "", "", NULL, NULL },
        { "s3://b/.k", "", "", NULL, NULL },
        { "s3://b@h/k", "", "", NULL, NULL },
        { "az://acc/c", "", "", NULL, NULL },
        { "az:///c/k", "", "", NULL, NULL },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct pull_url u;
        struct pull_store_place at = { str_from(rows[i].endpoint), str_from(rows[i].region) };
        int rc = pull_url_parse(str_from(rows[i].text), &u, NULL);
        if (rc != (rows[i].url ? 0 : -EINVAL)) fail_msg("%s: %d", rows[i].text, rc);
        if (rc < 0) continue;
        assert_int_equal(pull_store_object_url(&u, &at, (struct str){ 0 }, &out), 0);
        assert_string_equal(out.data, rows[i].url);
        assert_int_equal(u.folder, rows[i].list != NULL);
        buf_clear(&out);
        pull_store_list_url(&u, &at, STR("n="), &out);
        if (rows[i].list) assert_string_equal(out.data, rows[i].list);
    }
    struct pull_url signed_url;
    assert_int_equal(
        pull_url_parse(STR("https://a.blob.core.windows.net/c/m?sig=1"), &signed_url, NULL), 0);
    assert_int_equal(signed_url.store, PULL_STORE_NONE);
}

static void tokens_go_to_safe_endpoints_alone(void **state)
{
    (void)state;
    assert_true(addr_url_is_private(STR("https://h")));
    assert_true(addr_url_is_private(STR("http://127.0.0.1:9000/x")));
    assert_true(addr_url_is_private(STR("http://localhost")));
    assert_false(addr_url_is_private(STR("http://127.0.0.1.evil")));
    assert_false(addr_url_is_private(STR("http://localhost.evil:1")));
    assert_false(addr_url_is_private(STR("http://minio:9000")));
    assert_true(addr_url_is_private(STR("http://[::1]:9000/x@y")));
    assert_false(addr_url_is_private(STR("http://127.0.0.1:1@evil/x")));
    assert_false(addr_url_is_private(STR("http://localhost:x@evil?/")));
    assert_false(addr_url_is_private(STR("ftp://127.0.0.1")));
    assert_false(addr_url_is_private(STR("http://")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_have_parts),
        cmocka_unit_test(wrong_urls_are_refused),
        cmocka_unit_test(names_stay_below_their_folder),
        cmocka_unit_test(a_model_is_chosen),
        cmocka_unit_test(wrong_listings_are_refused),
        cmocka_unit_test(a_listing_has_a_bound),
        cmocka_unit_test(urls_of_the_hub_are_encoded),
        cmocka_unit_test(the_next_page_is_the_hubs),
        cmocka_unit_test(urls_of_stores_become_requests),
        cmocka_unit_test(tokens_go_to_safe_endpoints_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
