/* t_grammar.c - checks compiled grammars against texts that they allow and forbid, and refusals by their
 * sentences. */
#include "base/core/bits.h"
#include "base/grammar/grammar.h"
#include "base/grammar/matcher.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

/* Follows a text byte by byte. Returns 1: a whole output; 0: the beginning of one; -1: forbidden. */
static int follow(struct automaton *m, struct str text)
{
    struct matcher t;
    assert_int_equal(matcher_init(&t, m), 0);
    int rc = matcher_advance(&t, text);
    int verdict = rc < 0 ? -1 : matcher_may_end(&t);
    if (rc < 0) assert_int_equal(rc, -EINVAL);
    matcher_fini(&t);
    return verdict;
}

static struct automaton *automaton_of(enum grammar_kind kind, const char *text)
{
    struct err err = { "" };
    struct grammar *g = NULL;
    struct automaton *m = NULL;
    const struct grammar_spec spec = { kind, str_from(text) };
    if (grammar_compile(&spec, &g, &err) < 0) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        fail();
    }
    assert_int_equal(automaton_new(g, NULL, &m), 0);
    return m;
}

struct row {
    enum grammar_kind kind;
    const char *grammar;
    const char *whole[8];
    const char *begun[4]; /* may go on, may not end */
    const char *wrong[12];
};

#define S GRAMMAR_JSON_SCHEMA
#define R GRAMMAR_REGEX
#define G GRAMMAR_GBNF
#define T GRAMMAR_TAGS

static const struct row rows[] = {
    { R, "a{2,3}b?", { "aa", "aaa", "aab", "aaab" }, { "", "a" }, { "b", "aaaa", "ab", "aabb" } },
    { R, "^(foo|ba[rz])+$", { "foo", "barbaz" }, { "fo", "foob" }, { "x", "barr" } },
    { R, "\\d{3}-\\w+", { "123-a_9" }, { "123-" }, { "12-a", "123-\xc3\xa9" } },
    { R,
      "[^a-c]",
      { "d", "\xc3\xa9", "\xf0\x9f\x98\x80" },
      { "\xf0\x9f" },
      { "a", "\xff", "\xed\xa0\x80" } },
    { R, "x{,2}y", { "y", "xxy" }, { "x" }, { "xxx" } },
    { R, "a{x}", { "a{x}" }, { "a{" }, { "ax" } },
    { R, "(?:a(?P<n>b))*?c", { "c", "ababc" }, { "ab" }, { "b" } },
    { R, "", { "" }, { 0 }, { "a" } },
    { GRAMMAR_CHOICE,
      "[\"yes\",\"no\",\"yesterday\",\"no\"]",
      { "yes", "no", "yesterday" },
      { "", "yeste" },
      { "maybe", "nox" } },
    { G, "root ::= \"a\" root \"b\" | \"\"", { "", "ab", "aaabbb" }, { "aab" }, { "b", "abb" } },
    { G,
      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"",
      { "x", "aaxbc", "aaxcb" },
      { "aax" },
      { "axbb" } },
    { G,
      "root ::= item (\",\" item)* # a list\nitem ::= [a-z]+ |\n  \"\\\"\" [^\"\\n]{0,3} "
      "\"\\\"\"\n",
      { "a,bc", "\"x y\",z", "\"\"" },
      { "a,", "\"abc" },
      { "A", "\"abcd", ",a" } },
    { G,
      "root ::= x y\nx ::= \"a\"?\ny ::= x \"b\" | x",
      { "", "a", "aa", "ab", "aab", "b" },
      { 0 },
      { "aaa", "bb" } },
    { G,
      "root ::= \"\\u00e9\" . \"\\x41\"",
      { "\xc3\xa9\xe2\x82\xac"
        "A" },
      { "\xc3" },
      { "e" } },
    { GRAMMAR_JSON_OBJECT,
      "",
      { "{}", "{ }", "{\"a\": [1, -2.5e3, null], \"b\":{\"c\":\"\\u00e9\\n\"}}",
        "{\"\":\"\\ud83d\\ude00\"}" },
      { "{\"a\":[" },
      { "[]", "{\"a\":01}", "{\"a\":\"\\ud83d\"}", "{\"a\" :1}", "{,}", "{}x", "{\"a\":1,}",
        "{\"a\":\"\n\"}", "{  }" } },
    { S, "true", { "1", "null", "\"x\"", "[]" }, { "-" }, { "x" } },
    { S, "{\"type\":\"integer\"}", { "0", "-7", "12345678" }, { "-" }, { "01", "1.", "--1" } },
    { S, "{\"type\":[\"boolean\",\"null\"]}", { "true", "null" }, { "t" }, { "1" } },
    { S,
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
      "\"string\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
      { "{\"b\":\"x\"}", "{\"a\":1,\"b\":\"\"}", "{\"a\": 1, \"b\": \"\", \"c\": null}",
        "{\"b\":\"\",\"c\":null}" },
      { "{\"a\":1" },
      { "{}", "{\"a\":1}", "{\"b\":1}", "{\"b\":\"x\",\"d\":1}", "{\"c\":null",
        "{\"b\":\"\",\"a\":1}", "{,\"b\"" } },
    { S,
      "{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":2}},"
      "\"additionalProperties\":{\"type\":\"boolean\"}}",
      { "{}", "{\"ab\":1,\"x\":true}", "{\"abc\":true}", "{\"\":false}", "{\"a\":2}",
        "{\"ab\":1,\"a\":2,\"b\":true,\"c\":false}" },
      { "{\"abc\":t" },
      { "{\"ab\":t", "{\"a\":t", "{\"\\u0061\":true}", "{\"x\":1}" } },
    { S,
      "{\"enum\":[\"a\",1,null,{\"x\":[ 1 , 2 ]}]}",
      { "\"a\"", "1", "null", "{\"x\":[1,2]}" },
      { "{" },
      { "2", "\"b\"" } },
    { S,
      "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}",
      { "[true]", "[true,false, true]" },
      { "[" },
      { "[]", "[true,true,true,", "[1]" } },
    { S,
      "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},"
      "\"maxItems\":3}",
      { "[1,2]", "[1,2,3]" },
      { "[1" },
      { "[1]", "[2", "[1,2,3,3]" } },
    { S,
      "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
      "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
      "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
      { "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}" },
      { "{\"v\":1,\"next\":{" },
      { "{\"v\":1}" } },
    { S,
      "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
      { "\"ab\"", "\"\xc3\xa9\\n\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00x\"" },
      { "\"a" },
      { "\"a\"", "\"abcd" } },
    { S,
      "{\"type\":\"string\",\"pattern\":\"^[a-c\\\"\\\\\\\\]{2}$\"}",
      { "\"ab\"", "\"\\\"c\"", "\"\\\\a\"" },
      { "\"a" },
      { "\"d", "\"abc" } },
    { S,
      "{\"type\":\"string\",\"pattern\":\"b\"}",
      { "\"b\"", "\"abc\"" },
      { "\"aa" },
      { "\"ac\"" } },
    { S,
      "{\"type\":\"string\",\"format\":\"date\"}",
      { "\"2024-02-28\"", "\"1999-12-31\"" },
      { "\"2024" },
      { "\"2024-13", "\"2024-02-30\"", "\"2024-04-31\"" } },
    { S,
      "{\"type\":\"string\",\"format\":\"uuid\"}",
      { "\"01234567-89ab-cdef-0123-456789abcdef\"" },
      { "\"0123" },
      { "\"g" } },
    { S,
      "{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
      { "-12", "-1", "0", "9", "99", "104" },
      { "-" },
      { "-13", "105", "110", "200", "-0" } },
    { S,
      "{\"type\":\"integer\",\"minimum\":38,\"maximum\":1234}",
      { "38", "99", "100", "999", "1000", "1234" },
      { "1", "3" },
      { "01", "1235", "1240", "2000" } },
    { S,
      "{\"type\":\"number\",\"minimum\":0.5,\"maximum\":2.25}",
      { "0.5", "0.500001", "1", "1.999999", "2", "2.25", "2.2" },
      { "0", "0." },
      { "2.26", "0.4", "3", "-1", "2.250001" } },
    { S,
      "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",
      { "0.000001", "0.5", "1", "1.0" },
      { "0", "0.0" },
      { "1.1", "2" } },
    { S,
      "{\"type\":\"number\",\"minimum\":-1.5}",
      { "-1.5", "-1", "-0.25", "0", "7.25" },
      { "-" },
      { "-1.6", "-2" } },
    { S,
      "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":"
      "[\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}},\"required\":["
      "\"b\"]}]}",
      { "{\"a\":5,\"b\":null}" },
      { "{\"a\":5" },
      { "{\"a\":4,", "{\"a\":5}", "{\"b\"" } },
    { S,
      "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":"
      "\"integer\"}},\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
      "\"const\":\"y\"}},\"required\":[\"k\"]},{\"type\":\"string\"}]}",
      { "{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\"}", "\"s\"" },
      { "{\"k\":\"x\"" },
      { "{\"k\":\"z\"", "{\"k\":\"y\",\"v\"" } },
    { S, "{\"type\":\"object\"}", { "{}", "{\"a\":{\"b\":[]}}" }, { "{" }, { "[]" } },
    { S,
      "{\"properties\":{\"a\":true},\"required\":[\"z\"]}",
      { "{\"z\":1}", "{\"a\":[],\"z\":null}" },
      { "{" },
      { "{}", "{\"y\"", "1" } },
    { T,
      "{\"structures\":[{\"begin\":\"<f=a>\",\"schema\":{\"type\":\"integer\"},\"end\":\"</f>\"},"
      "{\"begin\":\"<f=b>\",\"schema\":{\"type\":\"null\"},\"end\":\"</"
      "f>\"}],\"triggers\":[\"<f=\"]}",
      { "", "x<y<f", "<f=a>1</f>", "s <f=b>null</f> t <<f=a>-2</f><", "\xff" },
      { "<f=", "a<f=a>1</f" },
      { "<f=c", "<f=a>x", "<f=b>1", "<<f=a>1<f" } },
    { T,
      "{\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"tag\",\"begin\":\"<t>\","
      "\"content\":{\"type\":\"any_text\"},\"end\":\"</t>\"},{\"type\":\"or\",\"elements\":["
      "{\"type\":\"const_string\",\"value\":\"no\"},{\"type\":\"regex\",\"pattern\":\"[0-9]+\"}]}]}"
      "}",
      { "<t></t>no", "<t>x</</t</t>42" },
      { "<t>no", "<t></t>", "<t></t>n" },
      { "no", "<t></t></t>", "<t>a</t>b</t>no" } },
    { T,
      "{\"format\":{\"type\":\"tags_with_separator\",\"at_least_one\":true,\"separator\":\", "
      "\",\"tags\":"
      "[{\"begin\":\"a\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"const\":1}},"
      "\"end\":\"z\"}]}}",
      { "a1z", "a1z, a1z" },
      { "", "a1z," },
      { "a1za", ", a1z", "a2" } },
    { T,
      "{\"format\":{\"type\":\"triggered_tags\",\"at_start\":true,\"stop_after_first\":true,"
      "\"triggers\":[\"{\\\"n\\\":\"],\"tags\":[{\"begin\":\"{\\\"n\\\":1\",\"end\":\"}\","
      "\"content\":"
      "{\"type\":\"const_string\",\"value\":\"\"}}]}}",
      { "", "x", "{\"n", "{\"m\":", "x{\"n\":2}", "{\"n\":1}" },
      { "{\"n\":" },
      { "{\"n\":2", "{\"n\":1} " } },
    { T,
      "{\"format\":{\"type\":\"triggered_tags\",\"at_least_one\":true,\"triggers\":[\"ab\",\"b\"],"
      "\"tags\":[{\"begin\":\"ab\",\"end\":\"1\",\"content\":{\"type\":\"const_string\",\"value\":"
      "\"\"}},{\"begin\":\"b\",\"end\":\"2\",\"content\":{\"type\":\"const_string\",\"value\":\"\"}"
      "}]}}",
      { "ab1", "b2", "ab1 b2a", "b2ab1" },
      { "a", "b", "b2 ab" },
      { "x", "ab2", "b1" } },
};

static void verdict(struct automaton *m, const struct row *row, const char *text, int want)
{
    int got = follow(m, str_from(text));
    if (got == want) return;
    fprintf(stderr, "grammar %s\ntext %s: verdict %d, not %d\n", row->grammar, text, got, want);
    fail();
}

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct automaton *m = automaton_of(rows[i].kind, rows[i].grammar);
        for (size_t k = 0; k < COUNT_OF(rows[i].whole) && rows[i].whole[k]; k++)
            verdict(m, &rows[i], rows[i].whole[k], 1);
        for (size_t k = 0; k < COUNT_OF(rows[i].begun) && rows[i].begun[k]; k++)
            if (*rows[i].begun[k] || follow(m, STR("")) == 0)
                verdict(m, &rows[i], rows[i].begun[k], 0);
        for (size_t k = 0; k < COUNT_OF(rows[i].wrong) && rows[i].wrong[k]; k++)
            verdict(m, &rows[i], rows[i].wrong[k], -1);
        automaton_free(m);
    }
}

static const struct {
    enum grammar_kind kind;
    const char *grammar, *sentence; /* a part of it */
    int rc;
} refusals[] = {
    { T, "[]", "must be a JSON object", -EINVAL },
    { T, "{\"format\":{\"type\":\"grammar\"}}", "the format grammar is not supported", -ENOTSUP },
    { T, "{\"structures\":[],\"triggers\":[\"a\"]}", "structures must be a list", -EINVAL },
    { T, "{\"structures\":[{\"begin\":\"b\",\"schema\":true,\"end\":\"\"}],\"triggers\":[\"a\"]}",
      "starts with no trigger", -EINVAL },
    { T,
      "{\"structures\":[{\"begin\":\"a\",\"schema\":{\"not\":{}},\"end\":\"\"}],\"triggers\":["
      "\"a\"]}",
      "#/not", -ENOTSUP },
    { R, "(a", "no closing )", -EINVAL },
    { R, "a)", "closes no group", -EINVAL },
    { R, "(?=a)b", "(?= is not supported", -ENOTSUP },
    { R, "a\\1", "escape \\1", -ENOTSUP },
    { R, "a^b", "^ and $", -ENOTSUP },
    { R, "[z-a]", "backwards", -EINVAL },
    { R, "((a{60000}){60000}){60000}", "more than", -E2BIG },
    { G, "root ::= root \"a\" | \"a\"", "left recursion", -EINVAL },
    { G, "root ::= a\na ::= \"\" b\nb ::= a?", "left recursion", -EINVAL },
    { G, "root ::= missing", "missing is used and not defined", -EINVAL },
    { G, "root ::= \"a", "line 1", -EINVAL },
    { G, "a ::= \"x\"", "root is used and not defined", -EINVAL },
    { G, "root ::= \"a\" root", "no text satisfies", -EINVAL },
    { GRAMMAR_CHOICE, "[]", "at least one", -EINVAL },
    { GRAMMAR_CHOICE, "[1]", "at least one", -EINVAL },
    { S, "{", "not valid JSON", -EINVAL },
    { S, "{\"type\":\"objekt\"}", "#/type", -EINVAL },
    { S, "{\"properties\":{\"a/b\":{\"not\":{}}}}", "#/properties/a~1b/not: this keyword",
      -ENOTSUP },
    { S, "{\"items\":{\"uniqueItems\":true}}", "#/items/uniqueItems", -ENOTSUP },
    { S, "{\"type\":\"string\",\"format\":\"color\"}", "#/format", -ENOTSUP },
    { S, "{\"type\":\"string\",\"pattern\":\"(\"}", "#/pattern: regex", -EINVAL },
    { S, "{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":3}", "#/pattern", -ENOTSUP },
    { S, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf/1", -ENOTSUP },
    { S, "{\"$ref\":\"#\"}", "circle", -E2BIG },
    { S, "{\"$ref\":\"#/$defs/x\"}", "nothing at this reference", -EINVAL },
    { S, "{\"$ref\":\"http://x/y\"}", "into this schema", -ENOTSUP },
    { S, "false", "no text satisfies", -EINVAL },
    { S, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
      "no text satisfies", -EINVAL },
    { S, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text satisfies", -EINVAL },
    { S, "{\"type\":\"number\",\"minimum\":0.00000001}", "six digits", -ENOTSUP },
    { S, "{\"type\":\"object\",\"minProperties\":1}", "#/minProperties", -ENOTSUP },
    { S, "{\"enum\":[\"a\"],\"minLength\":1}", "enum or const", -ENOTSUP },
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        struct err err = { "" };
        struct grammar *g = NULL;
        const struct grammar_spec spec = { refusals[i].kind, str_from(refusals[i].grammar) };
        int rc = grammar_compile(&spec, &g, &err);
        if (rc != refusals[i].rc || !strstr(err.text, refusals[i].sentence)) {
            fprintf(stderr, "%s: %d %s\n", refusals[i].grammar, rc, err.text);
            fail();
        }
        assert_null(g);
    }
}

/* Outputs over the same grammar share an automaton; its tables are dropped now and then, and no output is
 * lost by that. An ambiguous grammar stays linear where the number of ways doubles with each byte. */
static void test_bounds(void **state)
{
    (void)state;
    struct automaton *m = automaton_of(G, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
    struct matcher t;
    assert_int_equal(matcher_init(&t, m), 0);
    for (int i = 0; i < 900; i++)
        assert_int_equal(matcher_advance(&t, STR("a")), 0);
    assert_int_equal(matcher_advance(&t, STR("x")), 0);
    for (int i = 0; i < 900; i++)
        assert_int_equal(matcher_advance(&t, i % 2 ? STR("b") : STR("c")), 0);
    assert_true(matcher_is_over(&t));
    matcher_fini(&t);
    automaton_free(m);

    m = automaton_of(GRAMMAR_REGEX, "[a-z]{20000}");
    assert_int_equal(matcher_init(&t, m), 0);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(matcher_advance(&t, STR("q")), 0);
    assert_true(matcher_is_over(&t));
    struct automaton_stats stats;
    automaton_stats_get(m, &stats);
    assert_true(stats.drops > 0);
    matcher_fini(&t);
    automaton_free(m);
}

/* An output that nests too deep is given up where it stands; others of the automaton go on meanwhile. */
static void test_too_deep(void **state)
{
    (void)state;
    struct automaton *m = automaton_of(GRAMMAR_JSON_OBJECT, "");
    struct matcher deep, flat;
    int rc = 0;
    assert_int_equal(matcher_init(&flat, m), 0);
    assert_int_equal(matcher_init(&deep, m), 0);
    assert_int_equal(matcher_advance(&deep, STR("{\"a\":")), 0);
    int levels = 0;
    for (; levels < 2 * AUTOMATON_DEPTH_MAX && rc == 0; levels++)
        rc = matcher_advance(&deep, levels % 2 ? STR("{\"k\":") : STR("["));
    assert_int_equal(rc, -E2BIG);
    assert_true(levels > AUTOMATON_DEPTH_MAX / 4);
    assert_int_equal(matcher_advance(&flat, STR("{\"a\": 1}")), 0);
    assert_true(matcher_is_over(&flat));
    assert_false(matcher_may_end(&deep));
    matcher_fini(&deep);
    matcher_fini(&flat);
    automaton_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
