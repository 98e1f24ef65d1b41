/* t_config.c - tests settings from a file, from stronger sources and by default, and refused
 * files. */
#include "base/core/fault.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/config/config_value.h"
#include "base/io/file.h"
#include "tests/unit/io/sample_schema.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE_GOOD                         \
    "# fleet\n"                             \
    "engine:\n"                             \
    "  model: models/a b.gguf\n"            \
    "  port: 8300\n"                        \
    "  utilization: 5e-1\n"                 \
    "  device: cuda\n"                      \
    "  idle: 1.5m\n"                        \
    "  kv: {page_tokens: 32, bytes: 1GB}\n" \
    "  stop: [\"x,y\", '', true, 12]\n"     \
    "services:\n"                           \
    "  - name: chat\n"                      \
    "    pools:\n"                          \
    "      - {name: small, price: 0.25}\n"  \
    "      - name: 1.10\n"                  \
    "        kv:\n"                         \
    "          bytes: 2097152\n"            \
    "  - name: batch\n"                     \
    "    kind: decode\n"                    \
    "    tenants: [a]\n"                    \
    "    pools: [{name: small}]\n"

static inline int sample_load(const char *text, struct config **ret,
                              struct config_problems *problems, struct err *err)
{
    struct config_sources src = { .path = "muster.yaml", .text = str_from(text) };
    return config_load(&sample_schema, &src, ret, problems, err);
}

static inline struct config *sample_load_good(const char *text)
{
    struct config *c = NULL;
    struct err err = { 0 };
    int rc = sample_load(text, &c, NULL, &err);
    if (rc < 0) print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return c;
}

/* ---- settings from a file, from stronger sources and by default, with units ---- */

static void assert_str(struct str s, const char *text)
{
    assert_non_null(s.data);
    assert_int_equal(s.data[s.len], 0);
    assert_string_equal(s.data, text);
}

static void file_fills_structs(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *c = sample_load_good(SAMPLE_GOOD);
    const struct sample_engine *e = config_section_get(c, "engine");
    assert_str(e->model, "models/a b.gguf");
    assert_int_equal(e->port, 8300);
    assert_true(e->prefix_caching);
    assert_false(e->eager);
    assert_true(e->utilization == 0.5);
    assert_int_equal(e->device, DEVICE_CUDA);
    assert_int_equal(e->idle_us, 90000000);
    assert_int_equal(e->kv.page_tokens, 32);
    assert_int_equal(e->kv.bytes, 1000000000);
    assert_int_equal(e->stop.count, 4);
    assert_str(e->stop.items[0], "x,y");
    assert_str(e->stop.items[1], "");
    assert_str(e->stop.items[2], "true");
    assert_null(e->salt.data);
    const struct config_records *services = config_section_get(c, "services");
    assert_int_equal(services->count, 2);
    const struct sample_service *s = services->items;
    assert_str(s[0].name, "chat");
    assert_int_equal(s[0].ttft_us, 2000000);
    assert_int_equal(s[0].pools.count, 2);
    const struct sample_pool *p = s[0].pools.items;
    assert_true(p[0].price == 0.25);
    assert_int_equal(p[0].kv.bytes, 64 << 20);
    assert_str(p[1].name, "1.10");
    assert_true(p[1].price == 1);
    assert_int_equal(p[1].kv.bytes, 2 << 20);
    assert_int_equal(p[1].delay_us, 500000);
    assert_int_equal(s[1].kind, 2);
    assert_int_equal(s[1].tenants.count, 1);
}

static void nothing_is_defaults(void **state)
{
    (void)state;
    static const char *const texts[] = { "",           "# only a comment\n", "engine:\n",
                                         "---\n...\n", "engine:\n  kv:\n",   "{}" };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(config_freep) struct config *c = sample_load_good(texts[i]);
        const struct sample_engine *e = config_section_get(c, "engine");
        assert_int_equal(e->port, 8200);
        assert_int_equal(e->stop.count, 2);
        assert_str(e->stop.items[1], "<|end|>");
        assert_int_equal(((const struct config_records *)config_section_get(c, "services"))->count,
                         0);
    }
    CLEANUP(config_freep) struct config *none = NULL;
    assert_int_equal(config_load(&sample_schema, &(struct config_sources){ 0 }, &none, NULL, NULL),
                     0);
}

static void stronger_source_wins(void **state)
{
    (void)state;
    static const char *const environ_of[] = { "HOME=/",
                                              "MUSTER_ENGINE_PORT=8400",
                                              "MUSTER_ENGINE_KV_PAGE_TOKENS=48",
                                              "MUSTER_ENGINE_STOP=a, b",
                                              "MUSTER_SHARED=x",
                                              NULL };
    static const struct config_flag flags[] = {
        { .path = "engine.kv.page_tokens", .value = "64" },
        { .path = "engine.eager", .value = "true", .shown = "--eager" },
    };
    struct config_sources src = { .path = "muster.yaml",
                                  .text = STR(SAMPLE_GOOD),
                                  .environ = environ_of,
                                  .flags = flags,
                                  .flag_count = COUNT_OF(flags) };
    CLEANUP(config_freep) struct config *c = NULL;
    struct err err = { 0 };
    assert_int_equal(config_load(&sample_schema, &src, &c, NULL, &err), 0);
    const struct sample_engine *e = config_section_get(c, "engine");
    assert_int_equal(e->port, 8400);
    assert_int_equal(e->kv.page_tokens, 64);
    assert_true(e->eager);
    assert_int_equal(e->stop.count, 2);
    assert_str(e->stop.items[1], "b");
    static const struct {
        const char *path, *value, *origin;
    } rows[] = {
        { "engine.port", "8400", "env MUSTER_ENGINE_PORT" },
        { "engine.kv.page_tokens", "64", "flag --engine-kv-page-tokens" },
        { "engine.eager", "true", "flag --eager" },
        { "engine.idle", "90s", "file muster.yaml:7" },
        { "engine.salt", "", "default" },
        { "services[0].pools[0].price", "0.25", "file muster.yaml:13" },
        { "services[0].pools[1].kv.bytes", "2MiB", "file muster.yaml:16" },
        { "services[1].pools[0].price", "1", "default" },
        { "services[1].kind", "decode", "file muster.yaml:18" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf value = { 0 }, origin = { 0 };
        assert_int_equal(config_lookup(c, rows[i].path, &value, &origin, &err), 0);
        assert_string_equal(value.data ? value.data : "", rows[i].value);
        assert_string_equal(origin.data, rows[i].origin);
    }
    static const char *const wrong[] = { "engine.prot",      "engine",        "services[2].name",
                                         "services",         "services.name", "engine[0].port",
                                         "services[x].name", "engine.port.x", "",
                                         "services[0",       "a..b" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_true(config_lookup(c, wrong[i], NULL, NULL, &err) < 0);
}

static void bad_environment_and_flags(void **state)
{
    (void)state;
    static const struct {
        const char *env, *sentence;
    } rows[] = {
        { "MUSTER_ENGINE_PROT=1",
          "the environment variable MUSTER_ENGINE_PROT is no setting: did you mean "
          "MUSTER_ENGINE_PORT?" },
        { "MUSTER_ENGINE_PORT=tcp://10.0.0.1:80",
          "MUSTER_ENGINE_PORT: 'tcp://10.0.0.1:80' is not an integer (a Kubernetes service link? "
          "set enableServiceLinks: false)" },
        { "MUSTER_ENGINE_PORT=", "MUSTER_ENGINE_PORT: '' is not an integer" },
        { "MUSTER_SERVICES_NAME=a", "MUSTER_SERVICES_NAME is no setting" },
        { "MUSTER_ENGINE_SALT=\xff\xff", "is not valid UTF-8 text" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *environ_of[] = { rows[i].env, NULL };
        struct config_sources src = { .environ = environ_of };
        struct config *c = NULL;
        struct err err = { 0 };
        assert_int_equal(config_load(&sample_schema, &src, &c, NULL, &err), -EINVAL);
        if (!strstr(err.text, rows[i].sentence)) fail_msg("%s", err.text);
    }
    struct config_flag flag = { .path = "engine.prt", .value = "1" };
    struct config_sources src = { .flags = &flag, .flag_count = 1 };
    struct config *c = NULL;
    struct err err = { 0 };
    assert_int_equal(config_load(&sample_schema, &src, &c, NULL, &err), -EINVAL);
    assert_string_equal(err.text,
                        "--engine-prt: 'engine.prt' is no setting: did you mean 'engine.port'?");
}

static void required_is_the_roles_question(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *bare = sample_load_good("");
    CLEANUP(config_freep) struct config *full = sample_load_good(SAMPLE_GOOD);
    struct err err = { 0 };
    assert_int_equal(config_require(full, "engine", &err), 0);
    assert_int_equal(config_require(bare, "engine", &err), -EINVAL);
    assert_string_equal(err.text, "engine.model is not set: give it in the file, as --model or as "
                                  "MUSTER_ENGINE_MODEL");
}

static void units_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        int64_t us;
        const char *printed;
    } rows[] = {
        { "0", 0, 0, "0" },
        { "0s", 0, 0, "0" },
        { "5us", 0, 5, "5us" },
        { "250ms", 0, 250000, "250ms" },
        { "0.1s", 0, 100000, "100ms" },
        { "1.000001s", 0, 1000001, "1000001us" },
        { "1.5m", 0, 90000000, "90s" },
        { "2h", 0, 7200000000, "2h" },
        { "24h", 0, 86400000000, "1d" },
        { "0.5us", -ERANGE, 0, NULL },
        { "1.1234567s", -ERANGE, 0, NULL },
        { "106751992d", -ERANGE, 0, NULL },
        { "99999999999999999999s", -ERANGE, 0, NULL },
        { "10", -EINVAL, 0, NULL },
        { "-1s", -EINVAL, 0, NULL },
        { "s", -EINVAL, 0, NULL },
        { "1 s", -EINVAL, 0, NULL },
        { "1.s", -EINVAL, 0, NULL },
        { "1h30m", -EINVAL, 0, NULL },
        { "", -EINVAL, 0, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t us = 0;
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (duration_parse(str_from(rows[i].text), &us) != rows[i].rc) fail_msg("%s", rows[i].text);
        if (rows[i].rc < 0) continue;
        assert_int_equal(us, rows[i].us);
        duration_print(us, &out);
        assert_string_equal(out.data, rows[i].printed);
    }
    static const struct {
        const char *text;
        int rc;
        int64_t bytes;
        const char *printed;
    } sizes[] = {
        { "0", 0, 0, "0" },
        { "512", 0, 512, "512" },
        { "1024", 0, 1024, "1KiB" },
        { "64MiB", 0, 64 << 20, "64MiB" },
        { "1.5GiB", 0, 1610612736, "1536MiB" },
        { "1GB", 0, 1000000000, "1GB" },
        { "7B", 0, 7, "7" },
        { "1.5B", -ERANGE, 0, NULL },
        { "1kb", -EINVAL, 0, NULL },
        { "-1", -EINVAL, 0, NULL },
        { "9000000TiB", -ERANGE, 0, NULL },
        { "18446744073709551615", -ERANGE, 0, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        int64_t bytes = 0;
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (bytes_parse(str_from(sizes[i].text), &bytes) != sizes[i].rc)
            fail_msg("%s", sizes[i].text);
        if (sizes[i].rc < 0) continue;
        assert_int_equal(bytes, sizes[i].bytes);
        bytes_print(bytes, &out);
        assert_string_equal(out.data, sizes[i].printed);
    }
}

/* The n-th allocation fails for n = 1, 2, ... until none does: always an error, never a crash. */
static void memory_failure_is_an_answer(void **state)
{
    (void)state;
    uint64_t n = 1;
    for (bool reached = true; reached; n++) {
        struct config *c = NULL;
        struct err err = { 0 };
        fault_arm("arena.alloc", n);
        int rc = sample_load(SAMPLE_GOOD, &c, NULL, &err);
        reached = fault_hits() >= n;
        fault_disarm();
        assert_int_equal(rc, reached ? -ENOMEM : 0);
        assert_true((c != NULL) == !reached);
        config_free(c);
    }
    assert_true(n > 20);
}

static int config_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_fills_structs),
        cmocka_unit_test(nothing_is_defaults),
        cmocka_unit_test(stronger_source_wins),
        cmocka_unit_test(bad_environment_and_flags),
        cmocka_unit_test(required_is_the_roles_question),
        cmocka_unit_test(units_are_exact),
        cmocka_unit_test(memory_failure_is_an_answer),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}

/* ---- refused files: every problem with its line and reason, and files that are too large ---- */

struct bad_row {
    const char *text, *sentence, *why;
};

static const struct bad_row bad_rows[] = {
    { "engine:\n  port: 70000\n",
      "muster.yaml:2: engine.port: 70000 is above 65535 (allowed: 0 to "
      "65535)",
      "range above" },
    { "services:\n- name: a\n  pools:\n  - name: x\n  - name: y\n    price: -3\n",
      "muster.yaml:6: services[0].pools[1].price: -3 is below 0 (allowed: at least 0)",
      "a path with indexes" },
    { "engine:\n  prot: 1\n", "muster.yaml:2: engine: unknown key 'prot': did you mean 'port'?",
      "nearest key" },
    { "motor:\n  port: 1\n", "muster.yaml:1: there is no key 'motor': see engine",
      "a key that is looked for and is none" },
    { "engin:\n  port: 1\n", "muster.yaml:1: unknown key 'engin': did you mean 'engine'?",
      "nearest section" },
    { "engine:\n  zzzzzzzzz: 1\n", "muster.yaml:2: engine: unknown key 'zzzzzzzzz'", "none near" },
    { "engine:\n  port: 1\n\n  port: 2\n", "muster.yaml:4: 'port' was already said in line 2",
      "repeated key" },
    { "engine: &a\n  port: 1\n", "muster.yaml:1: anchors are not used here", "anchor on mapping" },
    { "engine:\n  stop: &a [x]\n", "muster.yaml:2: anchors are not used here", "on list" },
    { "engine:\n  port: &a 1\n", "muster.yaml:2: anchors are not used here", "on scalar" },
    { "engine: *a\n", "muster.yaml:1: aliases are not used here: write the value again", "alias" },
    { "engine:\n  port: !!int 1\n", "muster.yaml:2: tags are not used here", "tag" },
    { "engine: !x {}\n", "muster.yaml:1: tags are not used here", "tag on mapping" },
    { "engine: {<<: {port: 1}}\n", "muster.yaml:1: engine: unknown key '<<'", "merge key" },
    { "%TAG ! tag:x,2000:\n---\nengine: {}\n", "%TAG is not used here", "directive" },
    { "engine: {}\n---\nengine: {}\n", "muster.yaml:2: a second document; a configuration is one",
      "two documents" },
    { "engine:\n  port: eighty\n", "muster.yaml:2: engine.port: 'eighty' is not an integer",
      "wrong type" },
    { "engine:\n  port: 0x50\n", "'0x50' is not an integer", "hexadecimal" },
    { "engine:\n  port: 99999999999999999999\n", "is too large or too fine for an integer",
      "beyond 64 bits" },
    { "engine:\n  port: \"80\"\n",
      "muster.yaml:2: engine.port: is quoted text where an integer is wanted", "quoted number" },
    { "engine:\n  port: [80]\n", "engine.port: is a list where an integer is wanted", "list" },
    { "engine:\n  port:\n",
      "muster.yaml:2: engine.port: is empty: give an integer, or leave the "
      "line out",
      "empty" },
    { "engine:\n  port: ~\n", "engine.port: is empty", "null" },
    { "engine: 3\n", "muster.yaml:1: engine: is a plain value where a mapping is wanted",
      "scalar" },
    { "- a\n", "muster.yaml:1: is a list where a mapping is wanted", "list at the top" },
    { "services: {}\n", "services: is a mapping where a list of mappings is wanted", "no list" },
    { "services: [a]\n", "services[0]: is a plain value where a mapping is wanted", "item" },
    { "engine:\n  stop: a\n", "where a list of text is wanted, such as [a, b]", "text for list" },
    { "engine:\n  stop: [a, [b]]\n", "engine.stop[1]: is a list where text is wanted", "in list" },
    { "engine:\n  stop: [a, b, c, d, e]\n", "has 5 items, at most 4 are allowed", "list length" },
    { "engine:\n  eager: yes\n", "'yes' is not true or false", "YAML 1.1 bool" },
    { "engine:\n  device: cud\n",
      "engine.device: 'cud' is not one of cpu, cuda; did you mean cuda?", "enum" },
    { "engine:\n  idle: 10\n", "'10' is not a duration such as 250ms, 10s or 2m", "no unit" },
    { "engine:\n  idle: 25h\n", "25h is above 1d (allowed: 0 to 1d)", "duration range" },
    { "engine:\n  idle: 0.0000001s\n", "is too large or too fine for a duration", "too fine" },
    { "engine:\n  kv: {bytes: 4KB}\n",
      "engine.kv.bytes: 4KB is below 1MiB (allowed: at least 1MiB)", "size range" },
    { "engine:\n  salt: x\n", "'x' is shorter than 2 bytes", "short text" },
    { "engine:\n  salt: xxxxxxxxx\n", "is longer than 8 bytes", "long text" },
    { "engine:\n  utilization: .nan\n", "'.nan' is not a number", "not finite" },
    { "services:\n- ttft: 1s\n  pools: [{name: a}]\n",
      "muster.yaml:2: services[0]: 'name' is missing: Name of the service.", "required" },
    { "services:\n- name: a\n", "services[0]: 'pools' is missing", "required list" },
    { "services:\n- name: a\n  pools: []\n", "has 0 items, at least 1 are needed", "empty list" },
    { "services:\n- {name: a, pools: [{name: x}]}\n- {name: a, pools: [{name: x}]}\n",
      "muster.yaml:3: services: item 1 has the same name 'a' as item 0", "key of a list" },
    { "engine: [\n",
      "muster.yaml:2: not valid YAML: did not find expected node content (while "
      "parsing a flow node)",
      "syntax" },
    { "engine:\n\tport: 1\n",
      "muster.yaml:2: not valid YAML: found character that cannot start "
      "any token",
      "tab" },
    { "engine: {\x01: 1}\n", "not valid YAML: control characters are not allowed", "control" },
    { "engine: {model: \"\xff\"}\n", "not valid YAML", "not UTF-8" },
    { "engine: {model: \"a\\0b\"}\n", "is not valid UTF-8 text", "NUL inside" },
    { "? [a]\n: b\n", "muster.yaml:1: a key must be text", "a list as key" },
    { "\"\": 1\n", "a key is missing before ':'", "empty key" },
    { "a: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", "nested too deeply", "depth" },
};

static void sentences_name_line_and_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        const struct bad_row *row = &bad_rows[i];
        struct config *c = NULL;
        struct config_problems problems = { 0 };
        struct err err = { 0 };
        int rc = sample_load(row->text, &c, &problems, &err);
        if (rc != -EINVAL || problems.count != 1 || !strstr(err.text, row->sentence))
            fail_msg("%s: rc %d, %u problems, '%s', wanted '%s'", row->why, rc, problems.count,
                     err.text, row->sentence);
        assert_null(c);
        buf_fini(&problems.text);
    }
}

static void all_problems_are_collected(void **state)
{
    (void)state;
    struct config *c = NULL;
    struct config_problems problems = { 0 };
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf many = { 0 };
    assert_int_equal(sample_load("engine:\n  port: -1\n  x: 1\n", &c, &problems, &err), -EINVAL);
    assert_string_equal(err.text, "muster.yaml:2: engine.port: -1 is below 0 (allowed: 0 to 65535) "
                                  "(and 1 more)");
    assert_int_equal(problems.count, 2);
    assert_non_null(strstr(problems.text.data, "muster.yaml:3: engine: unknown key 'x'\n"));
    buf_fini(&problems.text);
    problems = (struct config_problems){ 0 };
    buf_text(&many, "engine:\n");
    for (int i = 0; i < 100; i++)
        buf_printf(&many, "  zzzzzzzzzz%d: 1\n", i);
    assert_int_equal(sample_load(many.data, &c, &problems, &err), -EINVAL);
    assert_int_equal(problems.count, 100);
    size_t lines = 0;
    for (size_t i = 0; i < problems.text.len; i++)
        lines += problems.text.data[i] == '\n';
    assert_int_equal(lines, CONFIG_PROBLEMS_MAX);
    buf_fini(&problems.text);
}

static void bounds_answer(void **state)
{
    (void)state;
    struct config *c = NULL;
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    for (int i = 0; i <= CONFIG_KEYS_MAX; i++)
        buf_printf(&text, "k%d: 1\n", i);
    assert_int_equal(sample_load(text.data, &c, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more keys than a mapping may hold"));
    buf_clear(&text);
    buf_text(&text, "a: [0");
    for (int i = 0; i < CONFIG_NODES_MAX; i++)
        buf_text(&text, ",0");
    buf_text(&text, "]\n");
    assert_int_equal(sample_load(text.data, &c, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more values than a file may hold"));
    buf_clear(&text);
    while (text.len <= CONFIG_FILE_BYTES_MAX)
        buf_text(&text, "# a comment of some length\n");
    assert_int_equal(sample_load(text.data, &c, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "larger than"));
    assert_null(c);
}

static void unreadable_file(void **state)
{
    (void)state;
    struct config_sources src = { .path = "/nonexistent/muster.yaml" };
    struct config *c = NULL;
    struct err err = { 0 };
    assert_int_equal(config_load(&sample_schema, &src, &c, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/muster.yaml"));
}

/* ---- what the schema makes: the view of a configuration, help, documentation, a JSON Schema
 * ---- */

/* The view's output loads to the same view, whatever its texts hold. */
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

/* python3-jsonschema, where installed, checks that the JSON Schema accepts and refuses the same. */
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
        /* YAML 1.1 floats need a dot: that is the checker's limit, not the schema's. */
        const char *text =
            strstr(rows[i].text, "5e-1") ? "engine: {utilization: 0.5}" : rows[i].text;
        json_put_text(&w, text);
        json_array_end(&w);
        buf_byte(&lines, '\n');
    }
    assert_int_equal(file_write_atomic(schema, buf_view(&out), 0600, NULL), 0);
    assert_int_equal(file_write_atomic(cases, buf_view(&lines), 0600, NULL), 0);
    snprintf(command, sizeof command, "python3 -c '%s' %s %s", script, schema, cases);
    int status = system(command); /* NOLINT: our own command */
    unlink(schema);
    unlink(cases);
    rmdir(folder);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: python3 with jsonschema and yaml is not installed\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static int config_refused_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_line_and_reason),
        cmocka_unit_test(all_problems_are_collected),
        cmocka_unit_test(bounds_answer),
        cmocka_unit_test(unreadable_file),
        cmocka_unit_test(view_loads_back),
        cmocka_unit_test(view_shows_origin),
        cmocka_unit_test(help_and_docs),
        cmocka_unit_test(json_schema_judges_alike),
    };
    return cmocka_run_group_tests_name("config_refused", tests, NULL, NULL);
}

int main(void)
{
    return config_tests() + config_refused_tests();
}
