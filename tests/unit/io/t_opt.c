/* t_opt.c - tests every form of an option, messages that name it, and flags that reach the
 * configuration. */
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "tests/unit/io/sample_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct load_options {
    struct str config;
    double speed;
    int64_t count;
    bool verbose;
    bool color;
    int form;
    struct config_texts urls;
    struct str trace;
    struct config_texts files;
};

static const char *const forms[] = { "text", "json", NULL };
static const struct config_field rows[] = {
    { .name = "config",
      .type = CONFIG_TEXT,
      .letter = 'c',
      .default_text = "muster.yaml",
      .about = "The file.",
      .offset = offsetof(struct load_options, config) },
    { .name = "speed",
      .type = CONFIG_FLOAT,
      .letter = 's',
      .default_text = "1",
      .min = 0.1,
      .max = 100,
      .about = "How much faster than recorded.",
      .offset = offsetof(struct load_options, speed) },
    { .name = "count",
      .type = CONFIG_INT,
      .letter = 'n',
      .default_text = "10",
      .about = "How many.",
      .offset = offsetof(struct load_options, count) },
    { .name = "verbose",
      .type = CONFIG_BOOL,
      .letter = 'v',
      .default_text = "false",
      .about = "Say more.",
      .offset = offsetof(struct load_options, verbose) },
    { .name = "color",
      .type = CONFIG_BOOL,
      .letter = 'C',
      .default_text = "true",
      .about = "Use colours.",
      .offset = offsetof(struct load_options, color) },
    { .name = "output",
      .type = CONFIG_ENUM,
      .letter = 'o',
      .names = forms,
      .default_text = "text",
      .about = "Form of the output.",
      .offset = offsetof(struct load_options, form) },
    { .name = "url",
      .type = CONFIG_TEXTS,
      .letter = 'u',
      .default_text = "http://x",
      .about = "Where to.",
      .offset = offsetof(struct load_options, urls) },
};
static const struct config_record record = CONFIG_RECORD_OF(struct load_options, rows);
static const struct opt_positional positionals[] = {
    { .name = "TRACE",
      .about = "The trace.",
      .required = true,
      .offset = offsetof(struct load_options, trace) },
    { .name = "FILE",
      .about = "More files.",
      .many = true,
      .offset = offsetof(struct load_options, files) },
};
static const struct opt_command command = {
    .name = "muster load",
    .about = "Replays a trace.",
    .options = &record,
    .positionals = positionals,
    .positional_count = 2,
    .section = &sample_engine_section,
    .notes = "Example: muster load t.jsonl",
};

/* Splits at blanks, as a shell would, and parses; the caller frees `parsed`. */
static int parse(const char *line, struct load_options *o, struct opt_parsed *parsed,
                 struct err *err)
{
    static char text[512];
    static char *argv[32];
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *p = text, *word; (word = strsep(&p, " "));)
        if (*word) argv[argc++] = word;
    return opt_parse(&command, argc, argv, o, parsed, err);
}

static void every_form(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double speed;
        int count;
        bool verbose, color;
        int form;
        const char *trace, *why;
    } cases[] = {
        { "t", 1, 10, false, true, 0, "t", "defaults" },
        { "--speed 2 t", 2, 10, false, true, 0, "t", "value behind" },
        { "--speed=2.5 t", 2.5, 10, false, true, 0, "t", "value after =" },
        { "t -s 3 -n4", 3, 4, false, true, 0, "t", "short forms, options behind" },
        { "-vn 5 t", 1, 5, true, true, 0, "t", "flag and value in one" },
        { "-vCo json t", 1, 10, true, true, 1, "t", "flags together" },
        { "--no-color --verbose t", 1, 10, true, false, 0, "t", "off and on" },
        { "--color=false --verbose=true t", 1, 10, true, false, 0, "t", "said in full" },
        { "--count -3 t", 1, -3, false, true, 0, "t", "a negative number is a value" },
        { "--count 1 --count 2 t", 1, 2, false, true, 0, "t", "the last counts" },
        { "-- -t", 1, 10, false, true, 0, "-t", "behind --" },
        { "-", 1, 10, false, true, 0, "-", "a dash is an argument" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct load_options o;
        struct opt_parsed parsed;
        struct err err = { 0 };
        if (parse(cases[i].line, &o, &parsed, &err) < 0) fail_msg("%s: %s", cases[i].why, err.text);
        bool same = o.speed == cases[i].speed && o.count == cases[i].count &&
                    o.verbose == cases[i].verbose && o.color == cases[i].color &&
                    o.form == cases[i].form && strcmp(o.trace.data, cases[i].trace) == 0 &&
                    strcmp(o.config.data, "muster.yaml") == 0;
        if (!same) fail_msg("%s", cases[i].why);
        opt_parsed_fini(&parsed);
    }
}

static void lists_grow(void **state)
{
    (void)state;
    struct load_options o;
    struct opt_parsed parsed;
    assert_int_equal(parse("t --url a,b a1 -u c -- b1 --c1", &o, &parsed, NULL), 0);
    assert_int_equal(o.urls.count, 3); /* it replaces the default */
    assert_string_equal(o.urls.items[0].data, "a");
    assert_string_equal(o.urls.items[2].data, "c");
    assert_int_equal(o.files.count, 3);
    assert_string_equal(o.files.items[2].data, "--c1");
    opt_parsed_fini(&parsed);
    assert_int_equal(parse("t", &o, &parsed, NULL), 0);
    assert_int_equal(o.urls.count, 1);
    assert_int_equal(o.files.count, 0);
    opt_parsed_fini(&parsed);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        { "", "TRACE is missing: The trace." },
        { "--sped 2 t", "unknown option --sped: did you mean --speed?" },
        { "--prt 2 t", "unknown option --prt: did you mean --port?" },
        { "--zzzzzzzzzz t", "unknown option --zzzzzzzzzz" },
        { "-z t", "unknown option -z" },
        { "-vz t", "unknown option -z" },
        { "--speed", "--speed needs a number" },
        { "--speed --verbose t", "--speed needs a number but --verbose follows; if that is meant, "
                                 "write --speed=--verbose" },
        { "--config= t", "--config is empty: give it a value or leave it out" },
        { "--url= t", "--url is empty: give it a value or leave it out" },
        { "--url a,,b t", "--url: an item of 'a,,b' is empty" },
        { "--speed 0 t", "--speed: 0 is below 0.1 (allowed: 0.1 to 100)" },
        { "-s fast t", "-s: 'fast' is not a number" },
        { "-o yaml t", "-o: 'yaml' is not one of text, json" },
        { "--output=jsn t", "--output: 'jsn' is not one of text, json; did you mean json?" },
        { "--verbose=maybe t", "--verbose: 'maybe' is not true or false" },
        { "--no-speed t", "unknown option --no-speed" },
        { "--no-color=true t", "unknown option --no-color" },
        { "--port 70000 t", "--port: 70000 is above 65535 (allowed: 0 to 65535)" },
        { "--kv-page-tokens=x t", "--kv-page-tokens: 'x' is not an integer" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct load_options o;
        struct opt_parsed parsed;
        struct err err = { 0 };
        assert_int_equal(parse(cases[i].line, &o, &parsed, &err) < 0, true);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: '%s'", cases[i].line, err.text);
        opt_parsed_fini(&parsed);
    }
}

static void flags_reach_the_configuration(void **state)
{
    (void)state;
    struct load_options o;
    struct opt_parsed parsed;
    struct err err = { 0 };
    assert_int_equal(parse("t --port 1 --no-prefix-caching --kv-bytes=2MiB --stop a --port=9000 "
                           "--stop b,c --eager",
                           &o, &parsed, &err),
                     0);
    assert_int_equal(parsed.flag_count, 5);
    struct config_sources src = { .flags = parsed.flags, .flag_count = parsed.flag_count };
    CLEANUP(config_freep) struct config *c = NULL;
    assert_int_equal(config_load(&sample_schema, &src, &c, NULL, &err), 0);
    const struct sample_engine *e = config_section_get(c, "engine");
    assert_int_equal(e->port, 9000);
    assert_false(e->prefix_caching);
    assert_true(e->eager);
    assert_int_equal(e->kv.bytes, 2 << 20);
    assert_int_equal(e->stop.count, 3);
    assert_string_equal(e->stop.items[2].data, "c");
    CLEANUP(buf_fini) struct buf origin = { 0 };
    assert_int_equal(config_lookup(c, "engine.prefix_caching", NULL, &origin, NULL), 0);
    assert_string_equal(origin.data, "flag --no-prefix-caching");
    opt_parsed_fini(&parsed);
    assert_int_equal(e->port, 9000); /* nothing is borrowed from `parsed` */
}

static void help_comes_first(void **state)
{
    (void)state;
    struct load_options o;
    struct opt_parsed parsed;
    static const char *const lines[] = { "--help", "-h", "-vh", "--verbose -h --zzz" };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(parse(lines[i], &o, &parsed, NULL), 0);
        assert_true(parsed.help);
        opt_parsed_fini(&parsed);
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(opt_help(&command, &out), 0);
    static const char *const parts[] = {
        "Usage: muster load [options] TRACE [FILE...]\n\nReplays a trace.\n\nArguments:\n",
        "\n  -s, --speed X               How much faster than recorded. (0.1 to 100; default: 1)\n",
        "\n  -C, --no-color              Use colours. (default: true)\n",
        "\n  -h, --help                  Show this and exit.\n",
        "\nConfiguration (section `engine` of the file):\n      --model TEXT ",
        "\nExample: muster load t.jsonl\n",
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(out.data, parts[i])) fail_msg("%s in\n%s", parts[i], out.data);
}

static void bare_command(void **state)
{
    (void)state;
    static const struct opt_command bare = { .name = "muster version", .about = "Says it." };
    struct opt_parsed parsed;
    struct err err = { 0 };
    char word[] = "x", *argv[] = { word };
    assert_int_equal(opt_parse(&bare, 0, NULL, NULL, &parsed, &err), 0);
    opt_parsed_fini(&parsed);
    assert_true(opt_parse(&bare, 1, argv, NULL, &parsed, &err) < 0);
    assert_string_equal(err.text, "'x': no arguments are expected, only options");
    opt_parsed_fini(&parsed);
    assert_int_equal(opt_fail(&bare, &err), OPT_EXIT_USAGE);
}

static void memory_failure_is_an_answer(void **state)
{
    (void)state;
    uint64_t n = 1;
    for (bool reached = true; reached; n++) {
        struct load_options o;
        struct opt_parsed parsed;
        fault_arm("arena.alloc", n);
        int rc = parse("t --url a -u b --port 1 --stop a --stop b f", &o, &parsed, NULL);
        reached = fault_hits() >= n;
        fault_disarm();
        assert_int_equal(rc, reached ? -ENOMEM : 0);
        opt_parsed_fini(&parsed);
    }
    assert_true(n > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(lists_grow),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(flags_reach_the_configuration),
        cmocka_unit_test(help_comes_first),
        cmocka_unit_test(bare_command),
        cmocka_unit_test(memory_failure_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
