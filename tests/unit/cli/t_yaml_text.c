/* t_yaml_text.c - tests JSON written as YAML: its form, its quotes, and python3-yaml's reading of it. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "cli/yaml_text.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *json, *yaml, *why;
} rows[] = {
    { "{}", "{}\n", "an empty object" },
    { "[]", "[]\n", "an empty list" },
    { "null", "null\n", "null" },
    { "{\"a\":1,\"b\":{\"c\":[],\"d\":{}}}", "a: 1\nb:\n  c: []\n  d: {}\n", "nested" },
    { "{\"a\":[1,{\"b\":2,\"c\":3},[4,5]]}", "a:\n- 1\n- b: 2\n  c: 3\n- - 4\n  - 5\n",
      "lists at the level of their key" },
    { "[{\"a\":{\"b\":1}},{\"a\":[2]}]", "- a:\n    b: 1\n- a:\n  - 2\n", "objects of a list" },
    { "[\"counts set by hand\",\"a-b_c.1\",\"/etc/x\",\"http://h:1/x\"]",
      "- counts set by hand\n- a-b_c.1\n- /etc/x\n- http://h:1/x\n", "plain texts" },
    { "[\"\",\"yes\",\"NULL\",\"n\",\"1\",\"0x1f\",\"-\",\".5\",\"12:30\",\"2026-11-01\",\"~\"]",
      "- \"\"\n- \"yes\"\n- \"NULL\"\n- \"n\"\n- \"1\"\n- \"0x1f\"\n- \"-\"\n- \".5\"\n- "
      "\"12:30\"\n"
      "- \"2026-11-01\"\n- \"~\"\n",
      "texts that YAML takes for something else" },
    { "[\"a: b\",\"a:\",\"a #b\",\"a#b\",\"a:b\",\"a \",\" a\",\"*a\",\"&a\",\"!a\",\"@a\",\"`a\"]",
      "- \"a: b\"\n- \"a:\"\n- \"a #b\"\n- a#b\n- a:b\n- \"a \"\n- \" a\"\n- \"*a\"\n- \"&a\"\n- "
      "\"!a\"\n"
      "- \"@a\"\n- \"`a\"\n",
      "signs with a meaning" },
    { "[\"a\\nb\",\"a\\tb\",\"\\\"q\\\\\",\"q\\\"\\\\\",\"\\u001b[2J\",\"\\u0085\",\"\\u2028\","
      "\"\\ufeff\"]",
      "- \"a\\nb\"\n- \"a\\tb\"\n- \"\\\"q\\\\\"\n- q\"\\\n- \"\\x1B[2J\"\n- \"\\x85\"\n- "
      "\"\\u2028\"\n"
      "- \"\\uFEFF\"\n",
      "controls and marks" },
    { "[\"b\\u00e4r\",\"\\ud83d\\ude00\"]", "- b\303\244r\n- \"\360\237\230\200\"\n", "UTF-8" },
    { "[1e-05,1E5,-2.5e+3,0,-0.1,12345678901234567890]",
      "- 1.0e-05\n- 1.0e+5\n- -2.5e+3\n- 0\n- -0.1\n- 12345678901234567890\n", "numbers" },
    { "{\"yes\":true,\"1\":false,\"a b\":null}", "\"yes\": true\n\"1\": false\na b: null\n",
      "keys are texts too" },
};

static void the_form_is_as_people_write_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_int_equal(yaml_of_json(str_from(rows[i].json), &out), 0);
        if (strcmp(out.data, rows[i].yaml) != 0)
            fail_msg("%s:\n%s\nwant\n%s", rows[i].why, out.data, rows[i].yaml);
    }
}

static void what_is_no_json_is_refused(void **state)
{
    static const char *const texts[] = { "", "{", "[1,", "{\"a\":}", "1 2", "{}x", "nul" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (yaml_of_json(str_from(texts[i]), &out) != -EINVAL) fail_msg("taken: %s", texts[i]);
    }
}

/* ---- a reader that we did not write ---- */

#define DOCUMENTS 2000
#define DEPTH 4

static void put_random_text(struct json_writer *w, struct rng *rng, bool key)
{
    static const char *const parts[] = {
        "a",
        "true",
        "No",
        "1",
        "e5",
        ".",
        "-",
        ":",
        " ",
        "#",
        "\n",
        "\t",
        "'",
        "\"",
        "\\",
        "{",
        "[",
        ",",
        "&",
        "*",
        "!",
        "|",
        ">",
        "%",
        "@",
        "`",
        "~",
        "?",
        "=",
        "<<",
        "0o7",
        "_",
        "\r",
        "\x1b",
        "\x7f",
        "\303\244",
        "...",
        "---",
        "+",
        "12",
        "\302\205",
        "\342\200\250",
        "\357\273\277",
        "\360\237\230\200",
    };
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint64_t count = rng_below(rng, 6);
    buf_str(&text, (struct str){ "", 0 });
    for (uint64_t i = 0; i < count; i++)
        buf_text(&text, parts[rng_below(rng, COUNT_OF(parts))]);
    if (key)
        json_key_str(w, buf_view(&text));
    else
        json_put_str(w, buf_view(&text));
}

static void put_random(struct json_writer *w, struct rng *rng, uint32_t depth)
{
    uint64_t kind = rng_below(rng, depth == 0 ? 5 : 8);
    uint64_t count = rng_below(rng, 4);
    if (kind == 0) json_put_null(w);
    if (kind == 1) json_put_bool(w, count & 1);
    if (kind == 2) json_put_f64(w, (double)(int64_t)rng_u64(rng) / 1e13);
    if (kind == 3) json_put_i64(w, (int64_t)rng_below(rng, 2000) - 1000);
    if (kind == 4) put_random_text(w, rng, false);
    if (kind == 5) put_random_text(w, rng, false);
    if (kind == 6) {
        json_array(w);
        for (uint64_t i = 0; i < count; i++)
            put_random(w, rng, depth - 1);
        json_array_end(w);
    }
    if (kind == 7) {
        json_object(w);
        for (uint64_t i = 0; i < count; i++) {
            put_random_text(w, rng, true);
            put_random(w, rng, depth - 1);
        }
        json_object_end(w);
    }
}

/* Writes one line for python: [JSON, YAML], both as JSON texts. */
static void put_case(struct str json, struct buf *lines)
{
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    struct json_writer w;
    assert_int_equal(yaml_of_json(json, &yaml), 0);
    json_writer_init(&w, lines);
    json_array(&w);
    json_put_str(&w, json);
    json_put_str(&w, buf_view(&yaml));
    json_array_end(&w);
    buf_byte(lines, '\n');
}

/* python3-yaml, where installed, reads the same values out of the YAML as json does out of the JSON. */
static void python_reads_the_same(void **state)
{
    (void)state;
    static const char script[] = "import json,sys\n"
                                 "try:\n import yaml\n"
                                 "except ImportError:\n sys.exit(77)\n"
                                 "for line in open(sys.argv[1],encoding=\"utf-8\"):\n"
                                 " doc,text=json.loads(line)\n"
                                 " want,got=json.loads(doc),yaml.safe_load(text)\n"
                                 " if want!=got: print(repr(want),repr(got),text);sys.exit(1)\n";
    CLEANUP(buf_fini) struct buf lines = { 0 };
    struct rng rng;
    rng_seed(&rng, 7);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        put_case(str_from(rows[i].json), &lines);
    for (uint32_t i = 0; i < DOCUMENTS; i++) {
        CLEANUP(buf_fini) struct buf json = { 0 };
        struct json_writer w;
        json_writer_init(&w, &json);
        put_random(&w, &rng, DEPTH);
        put_case(buf_view(&json), &lines);
    }
    char folder[] = "/tmp/muster-yaml-XXXXXX", path[64], command[1024];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/cases", folder);
    assert_int_equal(file_write_atomic(path, buf_view(&lines), 0600, NULL), 0);
    snprintf(command, sizeof command, "python3 -c '%s' %s", script, path);
    int status = system(command); /* NOLINT: our own command */
    unlink(path);
    rmdir(folder);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: python3 with yaml is not installed\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_form_is_as_people_write_it),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(python_reads_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
