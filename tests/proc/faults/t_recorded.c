/* t_recorded.c - starts this release on the state of an older one: its store, its instances' documents,
 * its secret.
 *
 * recorded/ is the state folder of a fleet of commit 62a3a0a, ended with SIGKILL (recorded/README.md).
 * One of its two instances runs: an agent of this release has its document. The other's processes
 * are gone, as after a power cut. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/fleet_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDED "tests/proc/faults/recorded/"
#define RUNS "i-672af5ae1128"
#define GONE "i-f79ae225be92"
#define ACME "authorization: Bearer muster-5e374e4742f2605e435c472f03fb1791ab25646d"
#define ASK "{\"prompt\":\"a\",\"max_tokens\":4,\"ignore_eos\":true}"
#define RECORDED_S 1795427200 /* date of its launches */
#define FILE_BYTES_MAX ((size_t)1 << 20)

static struct proc agent;

/* Copies a file of the record; in a text, fills in @STATE@, @MUSTER@ and @PORT@ for this machine. */
static void take(const char *file, bool text)
{
    static const char *const names[] = { "@STATE@", "@MUSTER@", "@PORT@" };
    char from[256], to[256], port[8];
    snprintf(port, sizeof port, "%u", controller.port);
    const char *const values[] = { fleet_state, getenv("MUSTER_BIN"), port };
    CLEANUP(buf_fini) struct buf was = { 0 }, is = { 0 };
    snprintf(from, sizeof from, RECORDED "%s", file);
    snprintf(to, sizeof to, "%s/%s", fleet_state, file);
    assert_int_equal(file_read(from, FILE_BYTES_MAX, &was, NULL), 0);
    struct str rest = buf_view(&was);
    while (rest.len > 0) {
        size_t at = text ? str_find(rest, STR("@")) : SIZE_MAX, name = 0;
        if (at == SIZE_MAX) at = rest.len;
        buf_str(&is, str_of(rest.data, at));
        rest = str_of(rest.data + at, rest.len - at);
        if (rest.len == 0) break;
        while (name < 3 && !str_starts(rest, str_from(names[name])))
            name++;
        assert_true(name < 3);
        buf_text(&is, values[name]);
        rest = str_of(rest.data + strlen(names[name]), rest.len - strlen(names[name]));
    }
    assert_int_equal(file_write_atomic(to, buf_view(&is), 0600, NULL), 0);
}

static void take_instance(const char *id)
{
    static const char *const files[] = { "spec.json", "agent.lock", "engine.id", "spawned" };
    char path[256];
    snprintf(path, sizeof path, "%s/instances/%s", fleet_state, id);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "instances/%s/%s", id, files[i]);
        take(path, true);
        /* Since when an instance is billed is told by its folder, in releases that wrote no time into it. */
        const struct timespec written[] = { { .tv_sec = RECORDED_S }, { .tv_sec = RECORDED_S } };
        snprintf(path, sizeof path, "%s/instances/%s/%s", fleet_state, id, files[i]);
        assert_int_equal(utimensat(AT_FDCWD, path, written, 0), 0);
    }
}

static bool engine_runs(void *arg)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[256];
    snprintf(path, sizeof path, "%s/instances/" RUNS "/engine.id", fleet_state);
    if (file_read(path, 256, &text, NULL) < 0) return false;
    struct str rest = buf_view(&text);
    struct proc_id *id = arg;
    return proc_id_parse(str_trim(str_cut(&rest, '\n')), id) == 0 && proc_is_alive(id);
}

static bool has(const char *path, const char *text)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return rig_call(controller.port, path, NULL, &reply) == 200 && strstr(reply.data, text);
}

static bool keys_hold(void *arg)
{
    (void)arg;
    return rig_call_with(router.port, "/v1/completions", ACME, ASK, NULL) == 200;
}

static bool the_dead_one_is_replaced(void *arg)
{
    (void)arg;
    return !has("/api/v1/instances", GONE) && fleet_is_at(2);
}

static void all_of_it_is_read(void **state)
{
    (void)state;
    struct proc_id before, after;
    assert_true(engine_runs(&before));
    /* One instance goes on under its old intent. The other is found dead, and a third one replaces it,
     * because a person had ordered two: that record was read too. */
    rig_wait(the_dead_one_is_replaced, NULL, "two instances, and not the dead one");
    assert_true(engine_runs(&after) && proc_id_eq(&before, &after));
    assert_true(has("/api/v1/instances", RUNS));
    assert_true(has("/api/v1/intents", GONE));
    assert_true(has("/api/v1/status", "\"unreadable\":[]"));
    assert_true(has("/health", "\"ok\""));
    assert_true(has("/api/v1/decisions?from=1", "\"first\":1"));
    /* Each of three costs a dollar an hour, and had run for more than two seconds when it was recorded. */
    assert_true(rig_metric(controller.port, "muster_controller_cost_dollars") >= 0.0018);

    /* The keys of its tenants are accepted, and no others. */
    rig_wait(keys_hold, NULL, "the recorded tenant's key is known");
    assert_true(rig_metric(controller.port, "muster_controller_tenants") == 2);
    assert_int_equal(rig_call(router.port, "/v1/completions", ASK, NULL), 401);
    assert_int_equal(rig_call_with(router.port, "/v1/completions",
                                   "authorization: Bearer muster-5e374e", ASK, NULL),
                     401);

    /* The fleet takes orders. */
    fleet_scale(3);
    fleet_wait(3);
    fleet_scale(1);
    fleet_wait(1);
}

static int open_fleet(void **state)
{
    (void)state;
    char spec[256], log[256];
    struct proc_id engine;
    struct err err = { 0 };
    snprintf(fleet_state, sizeof fleet_state, "%s/state", rig_folder()); /* as fleet_open will */
    assert_int_equal(file_make_folders(fleet_state, 0700, NULL), 0);
    controller.port = rig_port();
    take("muster.db", false);
    take("secret", false);
    take_instance(RUNS);
    take_instance(GONE);
    rig_hurry_agents();
    snprintf(spec, sizeof spec, "%s/instances/" RUNS "/spec.json", fleet_state);
    snprintf(log, sizeof log, "%s/instances/" RUNS "/agent.log", fleet_state);
    const struct proc_spec what = { .argv = ARGS(getenv("MUSTER_BIN"), "agent", "--spec", spec),
                                    .log_path = log,
                                    .detached = true };
    if (proc_spawn(&what, &agent, &err) < 0) fail_msg("%s", err.text);
    rig_wait(engine_runs, &engine, "the recorded instance runs");
    fleet_open("200ms",
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: 0.3, price_per_hour: 1, launch_delay: 100ms } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    engine_flags: [\"--threads\", \"1\", \"--max-num-seqs\", \"4\"]\n"
               "    pools: [ { name: only, offers: [bit], max: 3 } ]\n");
    return 0;
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL, RECORDED "muster.db"))) return RIG_SKIP;
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_of_it_is_read) };
    return rig_end(cmocka_run_group_tests(tests, open_fleet, NULL));
}
