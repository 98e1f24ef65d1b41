/* t_config_diff.c - tests where two configurations differ: values, items that came and went, keys. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/config_diff.h"
#include "tests/unit/io/sample_schema.h"
#include "tests/unit/unit.h"

static struct config *load(const char *text)
{
    struct config *c = NULL;
    struct err err = { 0 };
    struct config_sources s = { .path = "x.yaml", .text = str_from(text) };
    if (config_load(&sample_schema, &s, &c, NULL, &err) < 0) fail_msg("%s", err.text);
    return c;
}

static int write_change(void *ctx, const struct config_change *c)
{
    static const char *const kinds[] = { "", "+", "-" };
    return buf_printf(ctx, "%s%s %s " STR_FMT ">" STR_FMT "%s\n", kinds[c->kind], c->path,
                      c->section, STR_ARG(c->from), STR_ARG(c->to),
                      c->field->reloadable ? " r" : "");
}

static void rows_differ_as_told(void **state)
{
    static const struct {
        const char *from, *to, *changes, *why;
    } rows[] = {
        { "engine: { idle: 1000ms }", "engine: { idle: 1s }", "", "equal in another unit" },
        { "engine: { idle: 1s }", "engine: { idle: 2s, port: 1 }",
          "engine.port engine 8200>1\nengine.idle engine 1s>2s r\n", "values, defaults too" },
        { "engine: { kv: { page_tokens: 16 } }", "engine: { kv: { page_tokens: 32 } }",
          "engine.kv.page_tokens engine 16>32\n", "a value of a mapping" },
        { "engine: { stop: [a, b] }", "engine: { stop: [b, a] }", "engine.stop engine a,b>b,a\n",
          "the order of texts counts" },
        { "services: [ { name: a, pools: [{ name: p }] }, { name: b, pools: [{ name: p }] } ]",
          "services: [ { name: b, pools: [{ name: p }] }, { name: a, pools: [{ name: p }] } ]", "",
          "the order of items with a key does not" },
        { "services: [ { name: a, pools: [{ name: p }] }, { name: b, pools: [{ name: p }] } ]",
          "services: [ { name: c, pools: [{ name: p }] }, { name: a, ttft: 9s, pools: [{ name: p "
          "}] } ]",
          "services[a].ttft services 2s>9s\n-services[b] services >\n+services[c] services >\n",
          "one went, one came, one changed" },
        { "services: [ { name: a, pools: [ { name: p, price: 1 } ] } ]",
          "services: [ { name: a, pools: [ { name: p, price: 2 }, { name: q, price: 1 } ] } ]",
          "services[a].pools[p].price services 1>2\n+services[a].pools[q] services >\n",
          "pools within services" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(config_freep) struct config *from = load(rows[i].from);
        CLEANUP(config_freep) struct config *to = load(rows[i].to);
        CLEANUP(buf_fini) struct buf out = { 0 };
        buf_text(&out, "");
        assert_int_equal(config_diff(from, to, write_change, &out), 0);
        if (strcmp(out.data, rows[i].changes) != 0)
            fail_msg("%s:\n%s\nwant\n%s", rows[i].why, out.data, rows[i].changes);
        buf_clear(&out);
        assert_int_equal(config_diff(to, to, write_change, &out), 0);
        assert_int_equal(out.len, 0);
    }
}

static int stop_at_once(void *ctx, const struct config_change *c)
{
    (void)c;
    return ++*(int *)ctx;
}

static void a_caller_may_stop(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *from = load("engine: { port: 1, idle: 1s }");
    CLEANUP(config_freep) struct config *to = load("engine: { port: 2, idle: 2s }");
    int calls = 0;
    assert_int_equal(config_diff(from, to, stop_at_once, &calls), 1);
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_differ_as_told),
        cmocka_unit_test(a_caller_may_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
