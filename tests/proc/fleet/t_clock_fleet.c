/* t_clock_fleet.c - runs the power policies in a fleet: one service each under mu_serve, max and polca,
 * from `muster up` to the clocks that `muster get instances` shows.
 *
 * Real binary, real model. Nothing is timed: the test waits for each effect. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/up_rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BEGIN "{\"instance\":\""
#define ASKERS 4 /* as many as the engine computes at once: none waits */

/* Gets the object of the only instance of `service` from `muster get instances -o json`. */
static void instance_of(const char *service, struct buf *ret)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    char name[64];
    buf_clear(ret);
    buf_text(ret, "");
    if (MUSTER(&all, "get", "instances", STATE, "-o", "json") != 0) return;
    snprintf(name, sizeof name, "\"service\":\"%s\"", service);
    const char *at = strstr(all.data, name);
    if (!at) return;
    const char *end = strstr(at, BEGIN); /* the next instance */
    while (strncmp(at, BEGIN, strlen(BEGIN)) != 0)
        at--; /* its name stands before its service's, within the list */
    buf_append(ret, at, end ? (size_t)(end - at) : strlen(at));
    buf_byte(ret, 0);
}

static void await(const char *service, const char *says, struct buf *ret)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    do {
        instance_of(service, ret);
        if (ret->data && strstr(ret->data, says)) return;
        usleep(100000);
    } while (clock_mono_us() < until_us);
    fail_msg("%s never said '%s': %s", service, says, ret->data ? ret->data : "");
}

static double number(const struct buf *text, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(text->data, name);
    if (!at) fail_msg("no %s in %s", key, text->data);
    return strtod(at + strlen(name), NULL);
}

static int try_asking(const char *service, struct buf *reply)
{
    char body[256];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"The moon is\",\"max_tokens\":4,\"temperature\":0,"
             "\"ignore_eos\":true}",
             service);
    return rig_call(places.router_port, "/v1/completions", body, reply);
}

static void ask(const char *service, struct buf *reply)
{
    assert_int_equal(try_asking(service, reply), 200);
}

static atomic_bool enough;
static atomic_uint refused;

static void *keep_asking(void *service)
{
    while (!atomic_load(&enough))
        if (try_asking(service, NULL) != 200) atomic_fetch_add(&refused, 1);
    return NULL;
}

/* Gets the text of a reply. */
static void words_of(const struct buf *reply, char *ret, size_t size)
{
    const char *at = strstr(reply->data, "\"text\":\"");
    assert_non_null(at);
    at += strlen("\"text\":\"");
    snprintf(ret, size, "%.*s", (int)strcspn(at, "\""), at);
    assert_true(ret[0] != 0);
}

static void write_config(void)
{
    static const char *const rows[][2] = { { "lazy", "power: mu_serve" },
                                           { "full", "power: max" },
                                           { "capped", "power: polca, power_limit_watts: 1" } };
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "controller: { tick: 200ms }\n"
                    "local:\n"
                    "  cores: 1\n"
                    "  offers: [ { name: bit, share: 0.3, price_per_hour: 0.1 } ]\n"
                    "services:\n");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        buf_printf(&text,
                   "  - { name: %s, %s, model: " MODEL ", slo_ttft: 60s, slo_tpot: 20s,\n"
                   "      engine_flags: [--threads, '1', --max-num-seqs, '4'],\n"
                   "      pools: [ { name: only, offers: [bit], min: 1, max: 1 } ] }\n",
                   rows[i][0], rows[i][1]);
    buf_byte(&text, 0);
    places_config(text.data);
}

static int make_fleet(void **state)
{
    places_make(state);
    write_config();
    WANT(0, "API", UP);
    return 0;
}

/* An idle machine already exceeds a power limit of 1 W: polca lowers the clock, also of an engine that
 * starts again; outputs are the same as at the full clock. */
static void a_cap_is_kept_by_the_engine_that_is_there(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 }, slow = { 0 }, full = { 0 };
    char path[256], words[2][256];
    await("full", "\"clock\":1,", &text);
    await("capped", "\"clock\":0.2,", &text);
    assert_true(number(&text, "watts") > 1);
    ask("capped", &slow);
    ask("full", &full);
    words_of(&slow, words[0], sizeof words[0]);
    words_of(&full, words[1], sizeof words[1]);
    assert_string_equal(words[0], words[1]);
    assert_true(rig_metric(places.controller_port, "muster_controller_breaker_trips_total") >= 1);

    const char *name = text.data + strlen(BEGIN);
    snprintf(path, sizeof path, "%s/instances/%.*s/engine.id", places.state,
             (int)strcspn(name, "\""), name);
    CLEANUP(buf_fini) struct buf id = { 0 };
    assert_int_equal(file_read(path, 256, &id, NULL), 0);
    buf_byte(&id, 0);
    long pid = 0;
    assert_int_equal(sscanf(id.data, "pid %ld", &pid), 1);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    await("capped", "\"restarts\":1,", &text);
    await("capped", "\"clock\":0.2,", &text);
}

/* Under light load with much slack mu_serve lowers the clock step by step; the service under max keeps its
 * full clock. */
static void slack_lowers_the_clock(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    static char lazy[] = "lazy";
    pthread_t asker[ASKERS]; /* a P99 takes a hundred answers within the router's window */
    for (size_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i], NULL, keep_asking, lazy), 0);
    await("lazy", "\"clock\":0.9", &text); /* 0.95, or further down by now */
    atomic_store(&enough, true);
    for (size_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i], NULL);
    assert_int_equal(atomic_load(&refused), 0);
    double clock = number(&text, "clock");
    assert_true(clock >= 0.9 && clock < 0.96);
    assert_true(number(&text, "watts") > 0);
    await("full", "\"clock\":1,", &text);

    WANT(0, "CLOCK", "get", "instances", STATE);
    assert_int_equal(MUSTER(&text, "get", "services", "lazy", STATE, "-o", "json"), 0);
    assert_non_null(strstr(text.data, "\"power\":\"mu_serve\""));
    assert_non_null(strstr(text.data, "\"unmodelled\":0"));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cap_is_kept_by_the_engine_that_is_there),
        cmocka_unit_test(slack_lowers_the_clock),
    };
    return rig_end(cmocka_run_group_tests(tests, make_fleet, places_end));
}
