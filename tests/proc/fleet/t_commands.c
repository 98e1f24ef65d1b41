/* t_commands.c - runs the commands that look after a fleet against real ones: drain, gc, apply, describe,
 * doctor, events.
 *
 * Real binary, real model, free ports, a state directory of its own. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/up_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void write_config_draining(const char *drain, const char *share, const char *pools)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "controller: { tick: 200ms, drain: %s }\n"
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: %s, price_per_hour: 0.1, launch_delay: 100ms } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    stabilisation: 1s\n"
               "    engine_flags: [\"--threads\", \"1\", \"--max-num-seqs\", \"4\"]\n"
               "    pools: %s\n",
               drain, share, pools);
    buf_byte(&text, 0);
    places_config(text.data);
}

static void write_config(const char *share, const char *pools)
{
    write_config_draining("10m", share, pools);
}

#define ONE_POOL "[ { name: only, offers: [bit], min: 1, max: 2 } ]"

static int make_fleet(void **state)
{
    static uint32_t fleets;
    places_make(state);
    /* Each has a state of its own: what the one before has left would count as serving until it is proven
     * to be gone. */
    snprintf(places.state, sizeof places.state, "%s/state%u", rig_folder(), fleets++);
    write_config("0.3", ONE_POOL);
    rig_hurry_agents();
    return 0;
}

static int end_fleet(void **state)
{
    return places_end(state) == 0 && rig_count(NULL) == 0 ? 0 : -1;
}

/* Reads the text behind the first "key":" of a command's JSON. */
static void read_text(const char *const *args, const char *key, char *ret, size_t size)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char name[64];
    assert_int_equal(rig_run(&out, args), 0);
    snprintf(name, sizeof name, "\"%s\":\"", key);
    const char *at = strstr(out.data, name);
    if (!at) fail_msg("no %s in %s", key, out.data);
    at += strlen(name);
    snprintf(ret, size, "%.*s", (int)strcspn(at, "\""), at);
}

static void drains(void **state)
{
    (void)state;
    char id[64];
    WANT(0, "API", UP);
    read_text(ARGS("get", "instances", STATE, "-o", "json"), "instance", id, sizeof id);
    WANT(2, "name one of INSTANCE, --pool and --node", "drain", STATE);
    WANT(1, "there is no instance 'i-0'", "drain", "i-0", STATE);
    WANT(1, "no service has a pool 'huge'", "drain", "--pool", "huge", STATE);
    WANT(1, "no instance runs on 'mars'; they run on", "drain", "--node", "mars", STATE);
    WANT(0, "1 instance is empty after", "drain", id, STATE);
    AWAIT("\"ready\":1", "get", "services", STATE, "-o", "json"); /* replaced */
    WANT(0, "drained by hand", "get", "events", id, STATE);
    WANT(0, "a command", "get", "events", "--last", "100", STATE);
    WANT(0, "\"empty\":true", "drain", "--pool", "only", STATE, "-o", "json");
    WANT(0, "drained: true\n", "get", "pools", STATE, "-o", "yaml");
    WANT(0, "drained by hand", "explain", STATE);
    WANT(0, "is down", "down", STATE);
    WANT(0, "drained by hand", UP); /* nothing to wait for */
    WANT(0, "is taken back", "drain", "--pool", "tiny/only", "--undo", STATE);
    AWAIT("\"ready\":1", "get", "services", STATE, "-o", "json");
    WANT(0, "is down", "down", STATE);
}

struct asker {
    pthread_t thread;
    uint32_t tokens;
    int status;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    char body[160];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Two brothers lived by the sea\",\"max_tokens\":%u,\"ignore_eos\":true}",
             a->tokens);
    a->status = rig_call(places.router_port, "/v1/completions", body, NULL);
    return NULL;
}

static void begin_asking(struct asker *a, uint32_t tokens)
{
    *a = (struct asker){ .tokens = tokens };
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

static bool router_knows_one(void *arg)
{
    (void)arg;
    return rig_metric(places.router_port, "muster_router_endpoints") == 1;
}

/* An output that is under way holds the drain up, and the command says so by its status. */
static void a_drain_waits_for_what_runs(void **state)
{
    (void)state;
    char id[64];
    static struct asker asker;
    write_config("0.05", ONE_POOL); /* slow enough to be caught at work */
    WANT(0, "API", UP);
    read_text(ARGS("get", "instances", STATE, "-o", "json"), "instance", id, sizeof id);
    rig_wait(router_knows_one, NULL, "the router knows the instance");
    begin_asking(&asker, 800);
    AWAIT("\"running\":1", "get", "instances", STATE, "-o", "json");
    WANT(124, "are not empty yet", "drain", id, "--timeout", "0", STATE);
    WANT(0, "draining", "get", "instances", id, STATE);
    WANT(0, "is taken back", "drain", id, "--undo", STATE);
    AWAIT("ready", "get", "instances", id, STATE);
    WANT(0, "is empty after", "drain", id, STATE);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.status, 200); /* the output came to its end */
    WANT(0, "is down", "down", "--now", STATE);
}

/* More work is in flight than the commands take on a busy machine, and more than a second of it when the instance's
 * second to drain is over. */
static void a_drain_that_cuts_says_so(void **state)
{
    (void)state;
    char id[64];
    static struct asker asker[16]; /* outlives a test that fails, and so may the threads */
    write_config_draining("1s", "0.05", ONE_POOL);
    WANT(0, "API", UP);
    read_text(ARGS("get", "instances", STATE, "-o", "json"), "instance", id, sizeof id);
    rig_wait(router_knows_one, NULL, "the router knows the instance");
    for (size_t i = 0; i < COUNT_OF(asker); i++)
        begin_asking(&asker[i], 1900);
    AWAIT("\"running\":4", "get", "instances", STATE, "-o", "json");
    WANT(1, "requests were in flight when an instance's time to drain was over", "drain", id,
         STATE);
    WANT(0, "the drain took too long: ", "get", "events", id, STATE);
    WANT(0, "is down", "down", "--now", STATE);
    for (size_t i = 0; i < COUNT_OF(asker); i++)
        pthread_join(asker[i].thread, NULL);
}

static void put_folder(const char *name, const char *file, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/instances/%s", places.state, name);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/instances/%s/%s", places.state, name, file);
    assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
    snprintf(path, sizeof path, "%s/instances/%s", places.state, name);
    const struct timespec at = { .tv_sec = time(NULL) - 100 };
    const struct timespec times[2] = { at, at };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void collects_with_and_without_a_controller(void **state)
{
    (void)state;
    WANT(0, "API", UP);
    AWAIT("Nothing is left over.", "gc", STATE); /* once the provider was listed */
    put_folder("i-left", "key", "x");
    WANT(0, "a launch that was never written down", "gc", STATE);
    WANT(0, "--yes removes what may go", "gc", STATE);
    WANT(0, "\"removed\":0,\"kept\":1", "gc", STATE, "-o", "json");
    WANT(0, "1 removed, 0 kept", "gc", "--yes", STATE);
    WANT(0, "1 removed", "get", "events", STATE); /* the order is kept */
    WANT(0, "ready", "get", "instances", STATE);  /* and what serves */
    WANT(0, "is down", "down", STATE);

    put_folder("i-left", "key", "x");
    WANT(0, "No controller runs on", "gc", STATE);
    WANT(0, "action: removed", "gc", "--yes", STATE, "-o", "yaml");
    WANT(0, "Nothing is left over.", "gc", STATE);
    WANT(1, "no controller answers", "gc", "--controller", places.controller_at, STATE);
}

#define DOCTOR "doctor", "-f", places.config, STATE

/* Puts the places where the fleet listens into the file, which `muster up` takes from flags otherwise. */
static void write_places(const char *model)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "controller: { listen: '%s' }\nrouter: { listen: '%s' }\n"
               "local: { cores: 1, offers: [ { name: bit, share: 0.3, price_per_hour: 0.1 } ] }\n"
               "services: [ { name: tiny, model: %s, pools: [ { name: p, offers: [bit] } ] } ]\n",
               places.controller_at, places.router_at, model);
    buf_byte(&text, 0);
    places_config(text.data);
}

static void tells_what_is_wrong_before_a_start(void **state)
{
    (void)state;
    char path[400];
    write_places(MODEL);
    WANT(0, " 0 failed", DOCTOR);
    WANT(0, "no fleet runs at", DOCTOR);
    write_places("/nowhere.gguf");
    WANT(1, "tiny: /nowhere.gguf", DOCTOR);
    places_config("router: { listen: here }\n");
    WANT(1, "is not an address: write HOST:PORT", DOCTOR);
    places_config("rooter: {}\n");
    WANT(1, "did you mean 'router'", DOCTOR);
    write_places(MODEL);
    struct rig_process other = rig_fake_engine(places.router_port, ARGS(NULL));
    WANT(1, "is taken by another program", DOCTOR);
    rig_kill(&other);

    assert_int_equal(file_make_folders(places.state, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/secret", places.state);
    assert_int_equal(file_write_atomic(path, STR("0123456789abcdef"), 0644, NULL), 0);
    WANT(1, "is open to other users (mode 644)", DOCTOR);
    assert_int_equal(chmod(path, 0600), 0);
    WANT(0, "has mode 600", DOCTOR);
    snprintf(path, sizeof path, "%s/muster.db", places.state);
    assert_int_equal(
        file_write_atomic(path, STR("this is no store, whatever its name"), 0600, NULL), 0);
    WANT(1, "put a copy back", DOCTOR);
    unlink(path);
    assert_int_equal(chmod(places.state, 0755), 0);
    WANT(0, "is open to other users (mode 755)", DOCTOR);
    assert_int_equal(chmod(places.state, 0700), 0);
}

static void tells_of_a_running_fleet(void **state)
{
    (void)state;
    char token[128], text[160];
    write_places(MODEL);
    WANT(0, "API", UP);
    AWAIT("router-0 at", DOCTOR);
    WANT(0, "a running controller has it open", DOCTOR);
    WANT(0, "we may look and give orders", DOCTOR);
    WANT(0, " is ours", DOCTOR);
    WANT(0, "\"failed\":0", DOCTOR, "-o", "json");
    WANT(0, "is set to 1", "scale", "tiny", "1", STATE);
    AWAIT("as its instances serve", DOCTOR);
    WANT(0, "parts agree within 2 s", DOCTOR);
    read_text(ARGS("tokens", "create", "prom", "--role", "read", STATE, "-o", "json"), "token",
              token, sizeof token);
    WANT(0, "we may only look, as token prom", DOCTOR, "--token", token);
    snprintf(text, sizeof text, "%s", places.controller_at);
    WANT(0, "is down", "down", STATE);
    WANT(1, "no controller answers", DOCTOR, "--controller", text);
}

static void describes_each_kind(void **state)
{
    (void)state;
    char id[64], header[] = "x-request-id: walk-7";
    WANT(0, "API", UP);
    rig_wait(router_knows_one, NULL, "the router knows the instance");
    assert_int_equal(rig_call_with(places.router_port, "/v1/completions", header,
                                   "{\"prompt\":\"Two brothers\",\"max_tokens\":4}", NULL),
                     200);
    read_text(ARGS("get", "instances", STATE, "-o", "json"), "instance", id, sizeof id);
    AWAIT("router-0", "describe", "service", "tiny", STATE);
    WANT(0, "last decisions", "describe", "service", "tiny", STATE);
    WANT(0, id, "describe", "pool", "tiny/only", STATE);
    WANT(0, "  service           tiny", "describe", "pool", "only", STATE);
    WANT(0, "  phase             ready", "describe", "instance", id, STATE);
    WANT(0, "registered", "describe", "instance", id, STATE); /* an event */
    WANT(0, "object:\n  instance: i-", "describe", "instance", id, STATE, "-o", "yaml");
    WANT(0, "\"kind\":\"offer\",\"name\":\"bit\"", "describe", "offer", "bit", STATE, "-o", "json");
    WANT(0, "  port  ", "describe", "router", "router-0", STATE);
    AWAIT("  output tokens     4", "describe", "request", "walk-7", STATE);
    WANT(0, id, "describe", "request", "walk-7", STATE);
    WANT(1, "knows a request 'walk-8'", "describe", "request", "walk-8", STATE);
    WANT(1, "there is no pool 'tiny/none'", "describe", "pool", "tiny/none", STATE);
    WANT(2, "did you mean 'service'?", "describe", "servise", "tiny", STATE);
    WANT(0, "is empty after", "drain", id, STATE);
    AWAIT("  state             ended", "describe", "instance", id, STATE); /* remembered a while */
    WANT(0, "is down", "down", STATE);
}

/* Writes the fleet's configuration with other pools to another file. */
static void write_other(const char *pools, char ret[RIG_PATH])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[RIG_PATH];
    snprintf(path, sizeof path, "%s", places.config);
    snprintf(places.config, sizeof places.config, "%.140s.next", path);
    write_config("0.3", pools);
    snprintf(ret, RIG_PATH, "%s", places.config);
    snprintf(places.config, sizeof places.config, "%.159s", path);
}

#define TWO_POOLS                                       \
    "[ { name: only, offers: [bit], min: 1, max: 2 }, " \
    "{ name: more, offers: [bit], min: 1, max: 1 } ]"

static void applies_and_keeps(void **state)
{
    (void)state;
    char next[RIG_PATH], bad[RIG_PATH];
    WANT(0, "API", UP);
    write_other(TWO_POOLS, next);
    WANT(0, "services[tiny].pools[more]  added", "apply", "-f", next, "--dry-run", STATE);
    WANT(0, "Nothing was changed.", "apply", "-f", next, "--dry-run", STATE);
    WANT(0, "\"pool\":\"only\"", "get", "pools", STATE, "-o", "json");
    WANT(1, "no 'more' among the pools", "get", "pools", "more", STATE);
    WANT(0, "In force, as generation 2.", "apply", "-f", next, STATE);
    WANT(0, "Nothing differs", "apply", "-f", next, STATE);
    AWAIT("\"ready\":2", "get", "services", STATE, "-o", "json");
    WANT(0, "applied", "get", "config", STATE);

    rig_file(bad, "bad.yaml", "services: [ { name: tiny, modell: x } ]\n");
    WANT(1, "bad.yaml:1: services[0]: unknown key 'modell'", "apply", "-f", bad, STATE);
    rig_file(bad, "bad.yaml", "local: { cores: 3 }\n");
    WANT(1, "cannot be changed in a running controller", "apply", "-f", bad, STATE);
    WANT(0, "generation: 2\n", "get", "config", STATE, "-o", "yaml"); /* the old one stays */
    WANT(0, "is down", "down", STATE);

    WANT(0, "API", UP); /* from the same file: what was applied still holds */
    WANT(0, "source: applied\n", "get", "config", STATE, "-o", "yaml");
    AWAIT("\"ready\":2", "get", "services", STATE, "-o", "json");
    write_config("0.3", "[ { name: only, offers: [bit], min: 1, max: 3 } ]"); /* the file changes */
    AWAIT("source: file\n", "get", "config", STATE, "-o", "yaml");
    WANT(1, "no 'more' among the pools", "get", "pools", "more", STATE);
    AWAIT("\"ready\":1", "get", "services", STATE, "-o", "json");
    places_config("local: nonsense\n"); /* a bad file is refused, and the old one stays */
    AWAIT("is a plain value where a mapping is wanted", "get", "config", STATE);
    WANT(0, "\"max\":3", "get", "pools", "only", STATE, "-o", "json");
    WANT(0, "config_refused", "get", "events", STATE);
    WANT(0, "is down", "down", STATE);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drains, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(a_drain_waits_for_what_runs, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(a_drain_that_cuts_says_so, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(collects_with_and_without_a_controller, make_fleet,
                                        end_fleet),
        cmocka_unit_test_setup_teardown(describes_each_kind, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(applies_and_keeps, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(tells_what_is_wrong_before_a_start, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(tells_of_a_running_fleet, make_fleet, end_fleet),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
