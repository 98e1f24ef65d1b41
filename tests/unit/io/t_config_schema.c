/* t_config_schema.c - what the schema makes: the view of what was loaded, help, the page of
 * documentation and a JSON Schema. */
#include "base/core/json.h"
#include "base/io/file.h"
#include "tests/unit/io/sample_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the view writes loads to the same view, whatever the texts hold. */
static void view_loads_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        SAMPLE_GOOD,
        "",
        "engine: {model: '~', stop: ['a: b', '- x', '#c', \"\\t\\n\\u0085\\u2028\\U0001f600\"]}\n",
        "engine: {model: 'null', stop: ['http://x:1/', 'a:1', '...', '---']}\n",
        "engine: {model: '\"\\\\', idle: 0, utilization: 0.30000000000000004}\n",
        "services: [{name: a, pools: [{name: é}], tenants: []}]\n",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(buf_fini) struct buf first = { 0 }, second = { 0 }, json = { 0 };
        CLEANUP(config_freep) struct config *a = sample_load_good(texts[i]);
        assert_int_equal(config_view(a, CONFIG_YAML, true, &first), 0);
        CLEANUP(config_freep) struct config *b = sample_load_good(first.data);
        buf_clear(&first);
        assert_int_equal(config_view(a, CONFIG_YAML, false, &first), 0);
        assert_int_equal(config_view(b, CONFIG_YAML, false, &second), 0);
        assert_string_equal(first.data, second.data);
        for (int origin = 0; origin < 2; origin++) {
            buf_clear(&json);
            assert_int_equal(config_view(a, CONFIG_JSON, origin, &json), 0);
            struct json_reader r;
            json_reader_init(&r, str_trim(str_of(json.data, json.len - 1)));
            json_skip(&r);
            assert_int_equal(json_next(&r), JSON_END);
        }
    }
}

static void view_shows_origin(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *c = sample_load_good(SAMPLE_GOOD);
    CLEANUP(buf_fini) struct buf yaml = { 0 }, json = { 0 };
    config_view(c, CONFIG_YAML, true, &yaml);
    config_view(c, CONFIG_JSON, true, &json);
    assert_non_null(strstr(yaml.data, "\n  port: 8300                            # file "
                                      "muster.yaml:4\n"));
    assert_non_null(strstr(yaml.data, "\n      - name: small "));
    assert_non_null(strstr(yaml.data, "\n  # salt is not set\n"));
    assert_non_null(
        strstr(json.data, "\"port\":{\"value\":8300,\"origin\":\"file muster.yaml:4\"}"));
}

static void help_and_docs(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf help = { 0 }, page = { 0 };
    config_schema_check(&sample_schema);
    assert_int_equal(config_help(&sample_engine_record, &help), 0);
    assert_non_null(strstr(help.data,
                           "\n      --port N                Port to listen on; 0 takes a "
                           "free one. (0 to 65535; default: 8200)\n"));
    assert_non_null(strstr(help.data, "--no-prefix-caching"));
    assert_non_null(strstr(help.data,
                           "--kv-page-tokens N      Tokens in a page. (tokens; 16 to 64; "
                           "default: 16)\n"));
    assert_non_null(
        strstr(help.data, "--model TEXT            Path of the GGUF file. (required)\n"));
    assert_non_null(strstr(help.data, "\nDiagnostics:\n      --trace-steps N"));
    assert_int_equal(config_markdown(&sample_schema, &page), 0);
    assert_non_null(strstr(page.data, "\n## `engine`\n\nOne model server.\n"));
    assert_non_null(strstr(page.data, "\n### `services[].pools[]`\n"));
    assert_non_null(strstr(page.data, "| `</s>,<\\|end\\|>` |"));
    assert_non_null(strstr(page.data, "| `kv.bytes` | size | `64MiB` | at least 1MiB | no | Memory "
                                      "for the KV cache. |\n"));
}

/* python3-jsonschema is the judge of the JSON Schema, where it is installed. */
static void json_schema_judges_alike(void **state)
{
    (void)state;
    static const char script[] =
        "import json,sys\n"
        "try:\n import jsonschema,yaml\n"
        "except ImportError:\n sys.exit(77)\n"
        "s=json.load(open(sys.argv[1]));v=jsonschema.Draft202012Validator(s);v.check_schema(s)\n"
        "for line in open(sys.argv[2]):\n"
        " ok,text=json.loads(line)\n"
        " good=not list(v.iter_errors(yaml.safe_load(text)))\n"
        " if good!=ok: print(ok,text);sys.exit(1)\n";
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        { SAMPLE_GOOD, true },
        { "engine:\n", true },
        { "engine: {port: 70000}\n", false },
        { "engine: {prot: 7}\n", false },
        { "engine: {port: '7'}\n", false },
        { "engine: {idle: 10}\n", false },
        { "engine: {idle: 0}\n", true },
        { "engine: {idle: 2h}\n", true },
        { "engine: {device: tpu}\n", false },
        { "engine: {kv: {bytes: 5}}\n", false },
        { "engine: {kv: {bytes: 2097152}}\n", true },
        { "engine: {stop: [a, b, c, d, e]}\n", false },
        { "services: [{name: a}]\n", false },
        { "services: [{name: a, pools: []}]\n", false },
        { "services: [{name: a, pools: [{price: 1, name: x}]}]\n", true },
        { "services: [{name: a, pools: [{price: -1, name: x}]}]\n", false },
    };
    char folder[] = "/tmp/t_config_schema.XXXXXX", schema[64], cases[64], command[4096];
    CLEANUP(buf_fini) struct buf out = { 0 }, lines = { 0 };
    assert_non_null(mkdtemp(folder));
    snprintf(schema, sizeof schema, "%s/schema", folder);
    snprintf(cases, sizeof cases, "%s/cases", folder);
    assert_int_equal(config_json_schema(&sample_schema, &out), 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct config *c = NULL;
        assert_int_equal(sample_load(rows[i].text, &c, NULL, NULL) == 0, rows[i].good);
        config_free(c);
        struct json_writer w;
        json_writer_init(&w, &lines);
        json_array(&w);
        json_put_bool(&w, rows[i].good);
        /* YAML 1.1 floats need a dot, which is the judge's matter and not the schema's. */
        const char *text =
            strstr(rows[i].text, "5e-1") ? "engine: {utilization: 0.5}" : rows[i].text;
        json_put_text(&w, text);
        json_array_end(&w);
        buf_byte(&lines, '\n');
    }
    assert_int_equal(file_write_atomic(schema, buf_view(&out), 0600, NULL), 0);
    assert_int_equal(file_write_atomic(cases, buf_view(&lines), 0600, NULL), 0);
    snprintf(command, sizeof command, "python3 -c '%s' %s %s", script, schema, cases);
    int status = system(command); /* NOLINT: our own words */
    unlink(schema);
    unlink(cases);
    rmdir(folder);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: python3 with jsonschema and yaml is not installed\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(view_loads_back),
        cmocka_unit_test(view_shows_origin),
        cmocka_unit_test(help_and_docs),
        cmocka_unit_test(json_schema_judges_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
