/* t_models.c - tests what the names of section `models` mean. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/models.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static const struct config_section *const sections[] = { &models_section };
static const struct config_schema schema = { sections, COUNT_OF(sections), NULL };

#define LIST                                                            \
    "models:\n"                                                         \
    "  folder: /m\n"                                                    \
    "  list:\n"                                                         \
    "    - { name: gguf, url: 'https://h/x.gguf?y=/z' }\n"              \
    "    - { name: shards, url: 'hf://o/r/d/x-00001-of-00003.gguf' }\n" \
    "    - { name: folder, url: 'hf://o/r' }\n"                         \
    "    - { name: put, path: rel/a.gguf, url: 'hf://o/r' }\n"          \
    "    - { name: CMakeLists.txt, path: elsewhere }\n"                 \
    "    - { name: none }\n"                                            \
    "    - { name: digest, path: a, sha256: xy }\n"

static int load(const char *text, struct config **ret)
{
    struct config_sources sources = { .path = "test.yaml", .text = str_from(text) };
    return config_load(&schema, &sources, ret, NULL, NULL);
}

static void names_and_paths(void **state)
{
    static const struct {
        const char *model, *path; /* NULL: refused */
        bool named;
        const char *says;
    } rows[] = {
        { "gguf", "/m/gguf.gguf", true, NULL },
        { "shards", "/m/shards/x-00001-of-00003.gguf", true, NULL },
        { "folder", "/m/folder", true, NULL },
        { "put", "rel/a.gguf", true, NULL },
        { "CMakeLists.txt", "elsewhere", true, NULL }, /* before the file of that name */
        { "README.md", "README.md", false, NULL },     /* it is there */
        { "absent.gguf", "absent.gguf", false, NULL },
        { "a/b", "a/b", false, NULL },
        { "none", NULL, true, "none has neither a path nor a url" },
        { "digest", NULL, true, "must be 64 hex digits" },
        { "folders", NULL, false,
          "'folders' is no name of models.list, which has gguf, shards, folder, put, "
          "CMakeLists.txt, none, digest; "
          "did you mean folder?" },
    };
    CLEANUP(config_freep) struct config *config = NULL;
    (void)state;
    assert_int_equal(load(LIST, &config), 0);
    const struct models_section *m = config_section_get(config, "models");
    assert_int_equal(m->max, 1000000000000);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct models_place place;
        struct err err = { 0 };
        int rc = models_resolve(m, str_from(rows[i].model), &place, &err);
        if (rows[i].path && rc < 0) fail_msg("%s: %s", rows[i].model, err.text);
        assert_int_equal(models_find(m, str_from(rows[i].model)) != NULL, rows[i].named);
        if (!rows[i].path) {
            assert_true(rc < 0);
            if (!strstr(err.text, rows[i].says)) fail_msg("%s", err.text);
            continue;
        }
        assert_string_equal(place.path, rows[i].path);
        assert_int_equal(place.entry != NULL, rows[i].named);
    }
}

static void without_a_list_all_is_a_path(void **state)
{
    CLEANUP(config_freep) struct config *config = NULL;
    struct models_place place;
    (void)state;
    assert_int_equal(load("models: { folder: x }\n", &config), 0);
    const struct models_section *of[] = { NULL, config_section_get(config, "models") };
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        assert_int_equal(models_resolve(of[i], STR("gpt2"), &place, NULL), 0);
        assert_string_equal(place.path, "gpt2");
        assert_null(place.entry);
    }
    char path[PATH_MAX + 8];
    memset(path, 'x', sizeof path);
    assert_int_equal(models_resolve(NULL, str_of(path, PATH_MAX), &place, NULL), -ENAMETOOLONG);
}

static void a_list_has_names_once(void **state)
{
    CLEANUP(config_freep) struct config *config = NULL;
    (void)state;
    assert_int_equal(
        load("models: { list: [ { name: a, path: x }, { name: a, path: y } ] }\n", &config),
        -EINVAL);
    assert_int_equal(load("models: { list: [ { path: x } ] }\n", &config), -EINVAL);
    assert_int_equal(load("models: { max: 1KiB }\n", &config), -EINVAL);
    static const char *const wrong[] = { "a/b", "..", "-a", "a b", "\xc3\xa9", "" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        const struct models_entry e = { .name = str_from(wrong[i]), .path = STR("x") };
        if (models_entry_check(&e, NULL) != -EINVAL) fail_msg("'%s' is taken", wrong[i]);
    }
}

static void shards_are_counted_from_the_first(void **state)
{
    static const struct {
        const char *file;
        uint32_t count;
    } rows[] = {
        { "m-00001-of-00003.gguf", 3 },
        { "m-00001-of-00001.gguf", 0 },
        { "m-00001-of-01024.gguf", 1024 },
        { "m-00001-of-01025.gguf", 0 },
        { "m-00002-of-00003.gguf", 0 },
        { "-00001-of-00003.gguf", 0 },
        { "m-00001-of-0000x.gguf", 0 },
        { "m-00001-of-00003.gguf.gguf", 0 },
        { "m.gguf", 0 },
        { "", 0 },
    };
    char name[] = "m-00001-of-00003.gguf";
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(models_shards(str_from(rows[i].file)), rows[i].count);
    models_shard_name(name, 2);
    assert_string_equal(name, "m-00002-of-00003.gguf");
    models_shard_name(name, 1023);
    assert_string_equal(name, "m-01023-of-00003.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_paths),
        cmocka_unit_test(without_a_list_all_is_a_path),
        cmocka_unit_test(a_list_has_names_once),
        cmocka_unit_test(shards_are_counted_from_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
