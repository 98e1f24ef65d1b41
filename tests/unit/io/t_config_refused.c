/* t_config_refused.c - files that are refused: each with its line and its reason, all at once, and
 * what is too large. */
#include "tests/unit/io/sample_config.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_line_and_reason),
        cmocka_unit_test(all_problems_are_collected),
        cmocka_unit_test(bounds_answer),
        cmocka_unit_test(unreadable_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
