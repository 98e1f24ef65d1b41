/* t_step_inputs.c - shows that a request's rank, group and tenant weight reach the engine.
 *
 * A controller, a router and an agent run a scripted engine. The weight is set for the tenant and comes
 * through the store and the router's sync, the rank from the router's predictor, the group from the
 * request. The engine shows the group and the weight of its last call, and counts the calls with a rank. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <string.h>

static uint16_t engine_port;
static char key[96];

static int setup(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf script = { 0 };
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    char path[RIG_PATH];
    engine_port = rig_port();
    buf_printf(&script,
               "#!/bin/sh\n"
               "while [ $# -gt 0 ]; do\n"
               "    case $1 in --listen) port=${2##*:} ;; --secret-file) secret=$2 ;; esac\n"
               "    shift\n"
               "done\n"
               "exec '%s' --port $port --name tiny --secret-file \"$secret\"\n",
               getenv("FAKE_ENGINE_BIN"));
    rig_file(path, "engine.sh", script.data);
    assert_int_equal(file_write_atomic(path, buf_view(&script), 0700, NULL), 0);
    buf_printf(&yaml,
               "router: { sync: 100ms, predict: ngram_rank }\n"
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: 0.1, price_per_hour: 1 } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: none\n"
               "    scale: static\n"
               "    count: 1\n"
               "    engine_program: '%s'\n"
               "    pools: [ { name: only, offers: [bit], max: 1 } ]\n",
               path);
    fleet_open("200ms", yaml.data);
    fleet_wait(1);
    engine_port = (uint16_t)rig_number(controller.port, "/api/v1/instances", "port");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_scale(0);
    rig_stop(&router);
    rig_stop(&controller);
    return 0;
}

static int64_t seen(const char *what)
{
    return rig_number(engine_port, "/seen", what);
}

/* Makes one request; `group` NULL: it names none. */
static void ask(const char *header, const char *group)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"prompt\":\"once upon a time\",\"max_tokens\":4");
    if (group) buf_printf(&body, ",\"prompt_cache_key\":\"%s\"", group);
    buf_text(&body, "}");
    assert_int_equal(rig_call_with(router.port, "/v1/completions", header, body.data, NULL), 200);
}

static void the_predictor_ranks(void **state)
{
    (void)state;
    int64_t before = seen("ranked");
    ask(NULL, NULL);
    assert_int_equal(seen("ranked"), before + 1);
}

static void named_groups_are_told_apart(void **state)
{
    (void)state;
    ask(NULL, NULL);
    assert_int_equal(seen("group"), 0);
    ask(NULL, "summaries");
    int64_t summaries = seen("group");
    ask(NULL, "reports");
    int64_t reports = seen("group");
    ask(NULL, "summaries");
    assert_true(summaries != 0 && reports != 0 && summaries != reports);
    assert_int_equal(seen("group"), summaries);
}

/* Returns true once the router has heard of the first key; until then it serves requests without one. */
static bool is_closed(void *arg)
{
    (void)arg;
    return rig_call_with(router.port, "/v1/models", NULL, NULL, NULL) == 401;
}

static bool is_let_in(void *arg)
{
    return rig_call_with(router.port, "/v1/models", arg, NULL, NULL) == 200;
}

static void add_tenant(const char *name, const char *weight)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char line[512], word[64];
    snprintf(line, sizeof line, "create %s --weight %s --controller %s --state %s", name, weight,
             controller.at, fleet_state);
    assert_int_equal(rig_muster("keys", line, &out), 0);
    const char *at = strstr(out.data, "\nmuster-");
    assert_non_null(at);
    assert_int_equal(sscanf(at + 1, "%63s", word), 1);
    snprintf(key, sizeof key, "authorization: Bearer %s", word);
    rig_wait(is_closed, NULL, "a key is needed");
    rig_wait(is_let_in, key, "the key is known");
}

static void a_tenant_weighs_what_its_key_says(void **state)
{
    (void)state;
    add_tenant("heavy", "3");
    ask(key, "summaries");
    assert_int_equal(seen("weight"), 3);
    int64_t heavy = seen("group");
    add_tenant("light", "1");
    ask(key, "summaries");
    assert_int_equal(seen("weight"), 1);
    assert_true(seen("group") != heavy); /* the same name, of another tenant */
}

static void weights_have_bounds(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(rig_muster("keys", "create x --weight 0", &out), 2);
    assert_non_null(strstr(out.data, "--weight"));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_predictor_ranks),
        cmocka_unit_test(named_groups_are_told_apart),
        cmocka_unit_test(a_tenant_weighs_what_its_key_says),
        cmocka_unit_test(weights_have_bounds),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
