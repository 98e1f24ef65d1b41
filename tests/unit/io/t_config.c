/* t_config.c - settings that arrive: from a file, from stronger sources, as defaults, with units. */
#include "base/core/fault.h"
#include "base/io/config/config_value.h"
#include "tests/unit/io/sample_config.h"

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

/* The n-th allocation fails for n = 1, 2, ... until none does: always an answer, never a crash. */
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

int main(void)
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}
