/* t_controller.c - kills the real controller, real agents and fake engines with SIGKILL, the controller
 * at every step of a launch and of an end. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/rig.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WANTED 2

static const char *const steps[] = {
    "launch.decided",    "launch.written", "create.written", "create.called", "create.recorded",
    "register.recorded", "drain.recorded", "end.written",    "end.called",    "end.recorded",
};

struct fleet {
    char state[128], config[160];
    uint16_t port;
    struct rig_process controller;
};

static void write_file(const char *path, mode_t mode, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void write_file(const char *path, mode_t mode, const char *format, ...)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    va_list ap;
    va_start(ap, format);
    buf_vprintf(&text, format, ap);
    va_end(ap);
    assert_int_equal(file_write_atomic(path, buf_view(&text), mode, NULL), 0);
}

/* Sets up a fleet. A script turns the agent's engine flags into those of the fake engine. */
static void fleet_init(struct fleet *f, const char *name)
{
    char script[160];
    *f = (struct fleet){ .port = rig_port() };
    snprintf(f->state, sizeof f->state, "%s/%s", rig_folder(), name);
    assert_int_equal(file_make_folders(f->state, 0700, NULL), 0);
    snprintf(script, sizeof script, "%s/engine.sh", f->state);
    write_file(script, 0700,
               "#!/bin/sh\n"
               "while [ $# -gt 0 ]; do\n"
               "    case $1 in --listen) port=${2##*:} ;; --secret-file) secret=$2 ;; esac\n"
               "    shift\n"
               "done\n"
               "exec '%s' --port $port --name $$ --secret-file \"$secret\"\n",
               getenv("FAKE_ENGINE_BIN"));
    snprintf(f->config, sizeof f->config, "%s/muster.yaml", f->state);
    write_file(f->config, 0600,
               "controller: { tick: 200ms, state: '%s' }\n"
               "local:\n"
               "  cores: 1\n"
               "  offers:\n"
               "    - { name: bit, share: 0.1, price_per_hour: 1, launch_delay: 100ms }\n"
               "services:\n"
               "  - name: chat\n"
               "    model: none\n"
               "    scale: static\n"
               "    count: 0\n"
               "    stabilisation: 1s\n"
               "    engine_program: '%s'\n"
               "    pools: [ { name: only, offers: [bit], max: 4 } ]\n",
               f->state, script);
}

static void start(struct fleet *f, const char *crash_at)
{
    const char *option = crash_at ? "--crash-at" : NULL;
    f->controller =
        rig_server("controller", f->port, ARGS("--config", f->config, option, crash_at));
}

static void scale(struct fleet *f, int count)
{
    char body[64], secret[160], bearer[RIG_BEARER];
    snprintf(secret, sizeof secret, "%s/secret", f->state);
    rig_bearer(secret, bearer);
    snprintf(body, sizeof body, "{\"pool\":\"only\",\"count\":%d}", count);
    /* It may die before it replies. */
    rig_call_with(f->port, "/api/v1/services/chat/scale", bearer, body, NULL);
}

/* Returns the number behind "key": in the first service, or -1. */
static int64_t number(const struct fleet *f, const char *key)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[32];
    snprintf(name, sizeof name, "\"%s\":", key);
    if (rig_call(f->port, "/api/v1/services", NULL, &text) != 200) return -1;
    const char *at = strstr(text.data, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

static bool all_ready(const struct fleet *f)
{
    return number(f, "ready") == WANTED && number(f, "starting") == 0;
}

static bool all_gone(const struct fleet *f)
{
    return number(f, "ready") == 0 && number(f, "starting") == 0 && number(f, "draining") == 0 &&
           number(f, "ending") == 0;
}

/* Waits for `done`; a controller that dies meanwhile is started again without the fault, and gets the
 * count again. Returns the number of deaths. */
static uint32_t wait_for(struct fleet *f, bool (*done)(const struct fleet *f), int count,
                         const char *what)
{
    uint32_t deaths = 0;
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (!done(f)) {
        if (!rig_is_alive(&f->controller)) {
            rig_kill(&f->controller);
            deaths++;
            start(f, NULL);
            scale(f, count);
        }
        if (clock_mono_us() > until_us) fail_msg("%s: not reached", what);
        usleep(50000);
    }
    return deaths;
}

static int count_folders(const char *parent)
{
    DIR *dir = opendir(parent);
    int n = 0;
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, "i-", 2) == 0;
    closedir(dir);
    return n;
}

static int folders(const struct fleet *f, const char *sub)
{
    char path[192];
    snprintf(path, sizeof path, "%s/instances%s", f->state, sub);
    return count_folders(path);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct fleet f;
        fleet_init(&f, steps[i]);
        start(&f, steps[i]);
        scale(&f, WANTED);
        uint32_t deaths = wait_for(&f, all_ready, WANTED, steps[i]);
        assert_int_equal(folders(&f, ""), WANTED);
        scale(&f, 0);
        deaths += wait_for(&f, all_gone, 0, steps[i]);
        if (deaths != 1) fail_msg("%s: died %u times", steps[i], deaths);
        assert_int_equal(folders(&f, ""), 0);            /* no orphan */
        assert_int_equal(folders(&f, "/ended"), WANTED); /* no second launch */
        rig_stop(&f.controller);
    }
}

/* Reads the process in the first line of a file of the only instance. */
static struct proc_id process(const struct fleet *f, const char *file)
{
    char path[512];
    struct proc_id id = { 0 };
    snprintf(path, sizeof path, "%s/instances", f->state);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, "i-", 2) != 0) continue;
        CLEANUP(buf_fini) struct buf text = { 0 };
        snprintf(path, sizeof path, "%s/instances/%.64s/%s", f->state, e->d_name, file);
        if (file_read(path, 256, &text, NULL) < 0) continue;
        struct str rest = buf_view(&text);
        proc_id_parse(str_trim(str_cut(&rest, '\n')), &id);
    }
    closedir(dir);
    return id;
}

static bool one_ready(const struct fleet *f)
{
    return number(f, "ready") == 1;
}

static void kill_nine(const struct proc_id *id)
{
    assert_true(id->pid > 0);
    assert_int_equal(proc_signal(id, SIGKILL, NULL), 0);
}

/* Waits until the file names another living process. */
static struct proc_id wait_other(const struct fleet *f, const char *file,
                                 const struct proc_id *before)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    for (;;) {
        struct proc_id id = process(f, file);
        if (id.pid && !proc_id_eq(&id, before) && proc_is_alive(&id)) return id;
        if (clock_mono_us() > until_us) fail_msg("%s: nobody came back", file);
        usleep(50000);
    }
}

static void engines_and_agents_come_back(void **state)
{
    (void)state;
    struct fleet f;
    fleet_init(&f, "killed");
    start(&f, NULL);
    scale(&f, 1);
    wait_for(&f, one_ready, 1, "up");
    struct proc_id agent = process(&f, "agent.lock"), engine = process(&f, "engine.id");

    kill_nine(&agent); /* the engine lives on, and the next agent takes it up */
    struct proc_id agent2 = wait_other(&f, "agent.lock", &agent);
    struct proc_id same = process(&f, "engine.id");
    assert_true(proc_id_eq(&engine, &same) && proc_is_alive(&engine));

    kill_nine(&engine); /* the agent starts another */
    struct proc_id engine2 = wait_other(&f, "engine.id", &engine);
    wait_for(&f, one_ready, 1, "up again");
    assert_true(proc_is_alive(&agent2));

    rig_kill(&f.controller); /* agent and engine are not affected */
    usleep(300000);
    assert_true(proc_is_alive(&agent2) && proc_is_alive(&engine2));
    start(&f, NULL);
    wait_for(&f, one_ready, 1, "known again");
    same = process(&f, "engine.id");
    assert_true(proc_id_eq(&engine2, &same));

    kill_nine(&agent2); /* an instance is replaced if its agent and its engine die */
    kill_nine(&engine2);
    wait_other(&f, "engine.id", &engine2);
    wait_for(&f, one_ready, 1, "replaced");
    assert_int_equal(folders(&f, ""), 1);
    assert_int_equal(folders(&f, "/ended"), 1);
    scale(&f, 0);
    wait_for(&f, all_gone, 0, "gone");
    assert_int_equal(rig_stop(&f.controller), 0);
}

static void a_second_controller_is_refused(void **state)
{
    (void)state;
    struct fleet f;
    fleet_init(&f, "second");
    start(&f, NULL);
    const char *argv[] = { getenv("MUSTER_BIN"), "controller",  "--config", f.config,
                           "--listen",           "127.0.0.1:0", NULL };
    struct rig_process second = rig_start("second", argv, 1, NULL, 0);
    struct proc_exit how = { 0 };
    assert_int_equal(proc_wait(&second.proc, RIG_WAIT_US, &how), 0);
    assert_int_equal(how.code, 1);
    CLEANUP(buf_fini) struct buf log = { 0 };
    assert_int_equal(file_read(second.log, 65536, &log, NULL), 0);
    assert_non_null(strstr(log.data, "controller.state"));
    proc_close(&second.proc);
    rig_stop(&f.controller);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
    rig_hurry_agents();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_controller_is_refused),
        cmocka_unit_test(engines_and_agents_come_back),
        cmocka_unit_test(killed_at_every_step),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
