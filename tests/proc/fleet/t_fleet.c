/* t_fleet.c - kills each part of a fleet, with the real engine and the shipped model, while clients go on
 * asking.
 *
 * One fleet for all tests, in order: controller, router, two instances of a third of a core. The
 * clients are threads that ask one request after the other and remember what went wrong.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fleet_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define INSTANCES 2
#define CLIENTS 8 /* as many as both engines run at once: each engine has requests when it dies */

/* ---- the fleet ---- */

static bool is_empty(void *arg)
{
    (void)arg;
    return fleet_is_at(0) && rig_count("agent") == 0 && rig_count("engine") == 0;
}

/* Checks that no instance was doubled or lost so far: ended instances leave a folder of their own. */
static void expect_no_other_instances(void)
{
    char path[192];
    uint32_t ended = 0;
    assert_int_equal(rig_count("engine"), INSTANCES);
    assert_int_equal(rig_count("agent"), INSTANCES);
    snprintf(path, sizeof path, "%s/instances/ended", fleet_state);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        ended += strncmp(e->d_name, "i-", 2) == 0;
    if (dir) closedir(dir);
    assert_int_equal(ended, 0);
}

static int setup(void **state)
{
    (void)state;
    fleet_open("200ms", FLEET_OF_THIRDS);
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    return 0;
}

/* ---- clients ---- */

struct client {
    pthread_t thread;
    uint32_t number, tokens;
    bool stream;
    atomic_uint answered;
    uint32_t failed, broken; /* broken: a stream that began and did not end as it should */
    char first[600];         /* the reply to the first of them */
};

static struct client clients[CLIENTS];
static atomic_bool clients_stop;

static void remember(struct client *c, int status, const struct buf *reply)
{
    if (c->first[0]) return;
    snprintf(c->first, sizeof c->first, "%d %.*s", status,
             (int)(reply->len < 500 ? reply->len : 500), reply->len ? reply->data : "");
}

static void *client_run(void *arg)
{
    struct client *c = arg;
    uint32_t i = 0;
    do {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        char body[256];
        snprintf(
            body, sizeof body,
            "{\"prompt\":\"%u %u the king of the house\",\"max_tokens\":%u,\"ignore_eos\":true,"
            "\"temperature\":0,\"stream\":%s}",
            c->number, i++, c->tokens, c->stream ? "true" : "false");
        int status = rig_call(router.port, TEXT, body, &reply);
        bool whole = status == 200 && strstr(reply.data, c->stream ? "[DONE]" : "\"usage\"");
        bool began = c->stream && status == 200;
        c->failed += !whole && !began;
        c->broken += !whole && began;
        if (!whole) remember(c, status, &reply);
        c->answered += whole;
    } while (!clients_stop);
    return NULL;
}

/* Starts the clients; every fourth one streams. `once`: each makes one request, otherwise one after another
 * until clients_end. */
static void clients_start(uint32_t tokens, bool once)
{
    clients_stop = once;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){ .number = i, .tokens = tokens, .stream = i % 4 == 3 };
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]), 0);
    }
}

static uint32_t answered(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        sum += clients[i].answered;
    return sum;
}

static bool more_answered(void *arg)
{
    return answered() >= *(const uint32_t *)arg;
}

/* Waits for two more rounds of outputs, so that every client is past its earlier requests. */
static void wait_for_answers(void)
{
    uint32_t goal = answered() + 2 * CLIENTS;
    rig_wait(more_answered, &goal, "clients are answered");
}

static void clients_end(bool streams_may_break)
{
    uint32_t failed = 0, broken = 0;
    const char *first = "";
    clients_stop = true;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        failed += clients[i].failed;
        broken += clients[i].broken;
        if (clients[i].first[0]) first = clients[i].first;
    }
    print_message("%u answered, %u failed, %u streams broken\n", answered(), failed, broken);
    if (failed || (broken && !streams_may_break)) fail_msg("%s", first);
}

/* ---- tests ---- */

static void kill_nine(const struct proc_id *id)
{
    assert_true(id->pid > 0);
    assert_int_equal(proc_signal(id, SIGKILL, NULL), 0);
}

static void an_engine_that_dies_fails_no_request_that_has_not_begun(void **state)
{
    (void)state;
    struct proc_id ids[INSTANCES];
    clients_start(24, false);
    wait_for_answers();
    fleet_ids("engine.id", ids, INSTANCES);
    struct fleet_successor next = { "engine.id", ids[0] };
    kill_nine(&ids[0]);
    rig_wait(fleet_has_successor, &next, "the agent starts another engine");
    fleet_wait(INSTANCES);
    wait_for_answers();
    clients_end(true);
    assert_true(rig_metric(router.port, "muster_router_retries_total") > 0);
    expect_no_other_instances();
}

static void an_agent_that_dies_is_followed_by_one_that_adopts_the_engine(void **state)
{
    (void)state;
    struct proc_id agents[INSTANCES], engines[INSTANCES], after[INSTANCES];
    fleet_ids("agent.lock", agents, INSTANCES);
    fleet_ids("engine.id", engines, INSTANCES);
    clients_start(24, false);
    wait_for_answers();
    struct fleet_successor next = { "agent.lock", agents[0] };
    kill_nine(&agents[0]);
    rig_wait(fleet_has_successor, &next, "another agent comes");
    wait_for_answers();
    fleet_wait(INSTANCES);
    clients_end(false);
    fleet_ids("engine.id", after, INSTANCES);
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(proc_id_eq(&engines[i], &after[i]) && proc_is_alive(&after[i]));
    expect_no_other_instances();
}

static void a_controller_that_dies_is_not_missed_and_knows_its_fleet_again(void **state)
{
    (void)state;
    struct proc_id engines[INSTANCES], after[INSTANCES];
    fleet_ids("engine.id", engines, INSTANCES);
    clients_start(24, false);
    wait_for_answers();
    rig_kill(&controller);
    wait_for_answers();
    fleet_start_controller();
    fleet_wait(INSTANCES);
    wait_for_answers();
    clients_end(false);
    fleet_ids("engine.id", after, INSTANCES);
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(proc_id_eq(&engines[i], &after[i]) && proc_is_alive(&after[i]));
    expect_no_other_instances();
}

/* Makes one request and keeps the whole reply with its head. `key` NULL: sends none. */
static int ask_for(const char *body, const char *key, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    int status = 0;
    buf_text(&bytes, "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\n");
    if (key[0]) buf_printf(&bytes, "Authorization: Bearer %s\r\n", key);
    buf_printf(&bytes, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_int_equal(rig_raw(router.port, buf_view(&bytes), reply), 0);
    assert_int_equal(sscanf(reply->data, "HTTP/1.1 %d", &status), 1);
    return status;
}

static int ask_with_key(const char *key, struct buf *reply)
{
    return ask_for("{\"prompt\":\"a\",\"max_tokens\":2}", key, reply);
}

/* Asks with 20,000 letters: work for a text worker, and too long for the model. */
static int ask_long_with_key(const char *key, struct buf *reply)
{
    char body[20100];
    snprintf(body, sizeof body, "{\"max_tokens\":2,\"prompt\":\"%020000d\"}", 7);
    return ask_for(body, key, reply);
}

struct holder {
    char key[64];
    int status;
};

/* Returns the number of large bodies that text workers have done. */
static int texts_made(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char header[RIG_BEARER];
    int count = -1;
    rig_bearer(fleet_secret, header);
    assert_int_equal(rig_call_with(router.port, "/metrics", header, NULL, &reply), 200);
    const char *at = strstr(reply.data, "\nmuster_router_text_seconds_count ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, " muster_router_text_seconds_count %d", &count), 1);
    return count;
}

static bool key_gives(void *arg)
{
    const struct holder *h = arg;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return ask_with_key(h->key, &reply) == h->status;
}

static void a_router_that_dies_serves_again(void **state)
{
    (void)state;
    struct holder anybody = { .status = 200 };
    rig_kill(&router);
    int64_t before_us = clock_mono_us();
    fleet_start_router();
    rig_wait(key_gives, &anybody, "the router serves again"); /* 503 until its first sync */
    print_message("served again after %.0f ms\n", (double)(clock_mono_us() - before_us) * 1e-3);
    fleet_wait(INSTANCES);
    expect_no_other_instances();
}

/* Empties the engines' caches; the router's index follows by their events. */
static void reset_caches(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char header[RIG_BEARER];
    unsigned port;
    rig_bearer(fleet_secret, header);
    assert_int_equal(rig_call(controller.port, "/api/v1/instances", NULL, &reply), 200);
    for (const char *at = reply.data; (at = strstr(at, "\"port\":")); at++) {
        assert_int_equal(sscanf(at, "\"port\":%u", &port), 1);
        assert_int_equal(rig_call_with((uint16_t)port, "/reset_prefix_cache", header, "{}", NULL),
                         200);
    }
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (rig_metric(router.port, "muster_router_index_blocks") != 0) {
        assert_true(clock_mono_us() < until_us);
        usleep(50000);
    }
}

/* A block that the router chains and the engine reports has one key, not two. */
static void router_and_engines_name_blocks_alike(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    unsigned prompt_tokens = 0;
    buf_text(&body, "{\"max_tokens\":4,\"prompt\":\"");
    for (uint32_t i = 0; i < 60; i++) {
        buf_printf(&body, "block %u of a prompt that nobody sent before, ", i * 7919);
    }
    buf_text(&body, "\"}");
    reset_caches();
    assert_int_equal(rig_call(router.port, TEXT, body.data, &reply), 200);
    const char *at = strstr(reply.data, "\"prompt_tokens\":");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"prompt_tokens\":%u", &prompt_tokens), 1);
    assert_true(prompt_tokens > 320);
    /* All blocks are known once the engine's events have come; gauges are set at each sync. */
    double blocks = prompt_tokens / 16, known = 0;
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (known < blocks - 1 && clock_mono_us() < until_us) {
        usleep(50000);
        known = rig_metric(router.port, "muster_router_index_blocks");
    }
    /* Any other keys of the engine would have come by now. */
    rig_wait_more(controller.port, "muster_controller_router_syncs_total", 3);
    known = rig_metric(router.port, "muster_router_index_blocks");
    print_message("%.0f blocks sent, %.0f known\n", blocks, known);
    assert_true(known >= blocks - 1 && known <= blocks + 2);
}

static void make_tenant(const char *name, uint32_t requests_per_min, struct holder *ret)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char body[128];
    snprintf(body, sizeof body, "{\"name\":\"%s\",\"requests_per_min\":%u}", name,
             requests_per_min);
    char bearer[RIG_BEARER];
    rig_bearer(fleet_secret, bearer);
    int status = rig_call_with(controller.port, "/api/v1/tenants", bearer, body, &reply);
    if (status / 100 != 2) fail_msg("%d %s", status, reply.len ? reply.data : "");
    const char *at = strstr(reply.data, "\"key\":\"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"key\":\"%63[^\"]", ret->key), 1);
}

/* Tokenises a short and a long text with that key. */
static void expect_tokenize(const char *key, int status)
{
    static const size_t bytes[] = { 1, (size_t)40 << 10 };
    for (size_t i = 0; i < COUNT_OF(bytes); i++) {
        CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
        char bearer[128];
        snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", key);
        buf_text(&body, "{\"prompt\":\"");
        for (size_t k = 0; k < bytes[i]; k++)
            buf_byte(&body, "ab "[k % 3]);
        buf_text(&body, "\"}");
        int got = rig_call_with(router.port, "/tokenize", bearer, body.data, &reply);
        if (got != status) fail_msg("%zu bytes: %d %.200s", bytes[i], got, reply.data);
    }
}

static void drop_tenant(const char *name)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 }, reply = { 0 };
    char bearer[RIG_BEARER];
    rig_bearer(fleet_secret, bearer);
    buf_printf(&bytes,
               "DELETE /api/v1/tenants/%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\n"
               "Connection: close\r\n\r\n",
               name, controller.port, bearer);
    assert_int_equal(rig_raw(controller.port, buf_view(&bytes), &reply), 0);
    if (strncmp(reply.data, "HTTP/1.1 2", 10) != 0) fail_msg("%s", reply.data);
}

static void keys_are_made_limited_and_revoked(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct holder wide = { .status = 200 }, narrow = { .status = 429 };
    struct holder asker = { .status = 200 };
    struct holder nobody = { .key = "no-such-key", .status = 401 };
    /* Lists come whole: a router that knows the second key knows the first. */
    make_tenant("narrow", 3, &narrow);
    make_tenant("wide", 0, &wide);
    rig_wait(key_gives, &nobody, "strangers are refused");
    rig_wait(key_gives, &wide, "the first key is known");
    assert_int_equal(rig_call(router.port, TEXT, "{\"prompt\":\"a\"}", NULL), 401);

    uint32_t passed = 0;
    while (ask_with_key(narrow.key, &reply) == 200 && passed <= 3)
        passed++;
    assert_int_equal(passed, 3);
    assert_int_equal(ask_with_key(narrow.key, &reply), 429);
    unsigned retry_after_s = 0;
    const char *at = strstr(reply.data, "retry-after: ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "retry-after: %u", &retry_after_s), 1);
    assert_true(retry_after_s >= 1 && retry_after_s <= 60);
    assert_non_null(strstr(reply.data, "rate_limit_error"));
    assert_int_equal(ask_with_key(wide.key, &reply), 200); /* a limit is one tenant's own */
    int texts = texts_made();
    assert_int_equal(ask_long_with_key(narrow.key, &reply), 429); /* refused before any work */
    assert_int_equal(texts_made(), texts);
    assert_int_equal(ask_long_with_key(wide.key, &reply), 400);
    assert_int_equal(texts_made(), texts + 1);
    expect_tokenize(narrow.key, 429);
    assert_int_equal(texts_made(), texts + 1);
    expect_tokenize(wide.key, 200);
    make_tenant("asker", 4, &asker);
    rig_wait(key_gives, &asker, "a third key is known");
    expect_tokenize(asker.key, 200);
    assert_int_equal(ask_with_key(asker.key, &reply), 200);
    assert_int_equal(ask_with_key(asker.key, &reply), 429); /* the fifth in a minute */

    drop_tenant("asker");
    drop_tenant("narrow");
    narrow.status = 401;
    rig_wait(key_gives, &narrow, "a key that was revoked is refused");
    assert_int_equal(ask_with_key(wide.key, &reply), 200);
    /* After the end of the last key the service stays closed. */
    drop_tenant("wide");
    wide.status = 401;
    rig_wait(key_gives, &wide, "the last key is refused");
    assert_int_equal(ask_with_key("", &reply), 401);
    assert_int_equal(ask_with_key("no-such-key", &reply), 401);
    char bearer[RIG_BEARER];
    rig_bearer(fleet_secret, bearer);
    assert_int_equal(rig_call_with(controller.port, "/api/v1/keys/open", bearer, "{}", NULL), 200);
    struct holder anybody = { .status = 200 };
    rig_wait(key_gives, &anybody, "a person has opened the service");
    assert_int_equal(ask_with_key(wide.key, &reply),
                     200); /* an open service does not look at keys */
}

static void a_fleet_of_none_holds_a_request_until_an_instance_runs(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    fleet_scale(-1);
    rig_wait(is_empty, NULL, "nobody asks, nothing runs");
    double held = rig_metric(router.port, "muster_router_hold_seconds_count");
    int64_t before_us = clock_mono_us();
    int status = rig_call(router.port, TEXT, "{\"prompt\":\"a\",\"max_tokens\":2}", &reply);
    if (status != 200) fail_msg("%d %s", status, reply.len ? reply.data : "");
    print_message("from nothing to an answer in %.0f ms\n",
                  (double)(clock_mono_us() - before_us) * 1e-3);
    assert_true(rig_metric(router.port, "muster_router_hold_seconds_count") == held + 1);
}

static void signal_all(const char *file)
{
    struct proc_id ids[INSTANCES];
    fleet_ids(file, ids, INSTANCES);
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_int_equal(proc_signal(&ids[i], SIGTERM, NULL), 0);
}

static bool nobody_is_left(void *arg)
{
    (void)arg;
    return rig_count(NULL) == 0;
}

static bool all_in_flight(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_in_flight_requests") == CLIENTS;
}

static void sigterm_ends_everything_and_no_answer_is_cut(void **state)
{
    (void)state;
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    clients_start(200, true);
    rig_wait(all_in_flight, NULL, "every client's request is with an engine");
    assert_int_equal(rig_stop(&router), 0);
    clients_end(false);
    assert_int_equal(answered(), CLIENTS);
    assert_int_equal(rig_stop(&controller), 0);
    assert_int_equal(rig_count("engine"), INSTANCES); /* they outlive both */
    signal_all("agent.lock");
    rig_wait(nobody_is_left, NULL, "agents and engines have ended");
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_that_dies_fails_no_request_that_has_not_begun),
        cmocka_unit_test(an_agent_that_dies_is_followed_by_one_that_adopts_the_engine),
        cmocka_unit_test(a_controller_that_dies_is_not_missed_and_knows_its_fleet_again),
        cmocka_unit_test(a_router_that_dies_serves_again),
        cmocka_unit_test(router_and_engines_name_blocks_alike),
        cmocka_unit_test(keys_are_made_limited_and_revoked),
        cmocka_unit_test(a_fleet_of_none_holds_a_request_until_an_instance_runs),
        cmocka_unit_test(sigterm_ends_everything_and_no_answer_is_cut),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
