/* t_poison.c - sends a prompt that kills every engine that computes it, while clients send harmless ones:
 * it costs two engines and no more, and no other client's output. Every router then refuses it, also one
 * that has started again.
 *
 * Real controller, router, agents and engines with the shipped model. A prompt of DIES_AT tokens
 * ends the process of the engine that computes it.
 */
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define DIES_AT 61
#define DIES_AT_TEXT "device.die_at_61:1"
#define INSTANCES 2
#define CLIENTS 4
#define WARM_UP 120 /* outputs that earn the retries needed when an engine dies */

static int setup(void **state)
{
    (void)state;
    fleet_open("200ms", FLEET_OF_THIRDS_WITH(", '--fault', '" DIES_AT_TEXT "'", "2"));
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    return 0;
}

/* ---- clients that ask for something else ---- */

struct client {
    pthread_t thread;
    uint32_t number;
    uint32_t failed;
    char first[400]; /* the reply to the first that failed */
};

static struct client clients[CLIENTS];
static atomic_uint answered;
static atomic_bool stop;

static void *client_run(void *arg)
{
    struct client *c = arg;
    for (uint32_t i = 0; !stop; i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        char body[192];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"%u %u the king of the house\",\"max_tokens\":16,"
                 "\"ignore_eos\":true,\"temperature\":0}",
                 c->number, i);
        int status = rig_call(router.port, TEXT, body, &reply);
        answered += status == 200;
        c->failed += status != 200;
        if (status != 200 && !c->first[0])
            snprintf(c->first, sizeof c->first, "%d %s", status, reply.len ? reply.data : "");
    }
    return NULL;
}

static bool more_answered(void *arg)
{
    return answered >= *(const uint32_t *)arg;
}

static void wait_for_answers(uint32_t more)
{
    uint32_t goal = answered + more;
    rig_wait(more_answered, &goal, "clients are answered");
}

static void clients_end(void)
{
    stop = true;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        if (clients[i].failed) fail_msg("%u failed: %s", clients[i].failed, clients[i].first);
    }
    print_message("%u answered beside it\n", answered);
}

/* ---- the prompt ---- */

/* Returns the restarts of all instances together. */
static int64_t restarts(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int64_t sum = 0;
    assert_int_equal(rig_call(controller.port, "/api/v1/instances", NULL, &reply), 200);
    for (const char *at = reply.data; (at = strstr(at, "\"restarts\":")); at++) {
        unsigned one = 0;
        assert_int_equal(sscanf(at, "\"restarts\":%u", &one), 1);
        sum += one;
    }
    return sum;
}

static bool two_restarted(void *arg)
{
    (void)arg;
    return fleet_is_at(INSTANCES) && restarts() == 2;
}

static void expect_refused_at(uint16_t port, const struct buf *body)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int status = rig_call(port, TEXT, body->data, &reply);
    if (status != 422 || !strstr(reply.data, "request_crashes_engines"))
        fail_msg("%d %s", status, reply.len ? reply.data : "");
}

static void expect_refused(const struct buf *body)
{
    expect_refused_at(router.port, body);
}

/* Runs `muster quarantine ACTION [PROMPT]` and returns its exit status. */
static int quarantine(const char *action, const char *prompt, struct buf *out)
{
    buf_clear(out);
    return rig_run(out, ARGS("quarantine", action, "--controller", controller.at, "--state",
                             fleet_state, prompt));
}

/* Returns true once the router has a tokenizer. Until then it identifies prompts by their text, and would
 * not recognise the same prompt later. */
static bool has_tokenizer(void *arg)
{
    return rig_metric(*(const uint16_t *)arg, "muster_router_tokenizers") >= 1;
}

static void a_prompt_that_kills_costs_two_engines_and_nobody_s_answer(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, out = { 0 };
    fleet_prompt(DIES_AT, &body);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].number = i;
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]), 0);
    }
    wait_for_answers(WARM_UP);
    rig_wait(has_tokenizer, &router.port, "the router has the tokenizer");
    expect_refused(&body);
    /* The client tries again while the engines start, and again when they run. */
    expect_refused(&body);
    rig_wait(two_restarted, NULL, "both engines run again");
    expect_refused(&body);
    wait_for_answers(2 * CLIENTS);
    clients_end();
    assert_int_equal(restarts(), 2);
    assert_true(rig_metric(router.port, "muster_router_quarantine_refused_total") == 2);
}

struct row {
    const char *router, *state;
};

static bool is_listed(void *arg)
{
    const struct row *row = arg;
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)quarantine("list", NULL, &out); /* fails while a router that has just ended is listed */
    const char *at = out.len ? strstr(out.data, row->router) : NULL;
    char prompt[17], state[17];
    return at && sscanf(at, "%*s %16s %16s", prompt, state) == 2 && strcmp(state, row->state) == 0;
}

static void expect_told(const char *name, uint16_t port, const struct buf *body)
{
    rig_wait(has_tokenizer, &port, "the router has the tokenizer");
    rig_wait(is_listed, &(struct row){ name, "told" }, "the router is told");
    expect_refused_at(port, body);
}

/* Two routers are told of the prompt: one that saw no engine die, and one that has restarted. */
static void every_router_refuses_it(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct rig_process second = rig_server(
        "router", rig_port(),
        ARGS("--controller", controller.at, "--secret-file", fleet_secret, "--name", "second"));
    fleet_prompt(DIES_AT, &body);
    expect_told("second", second.port, &body);
    rig_stop(&router);
    fleet_start_router();
    expect_told("router-0", router.port, &body);
    assert_int_equal(restarts(), 2);
    rig_stop(&second);
}

static bool can_list(void *arg)
{
    return quarantine("list", NULL, arg) == 0;
}

static bool nothing_is_listed(void)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(quarantine("list", NULL, &out), 0);
    return out.len == 0 || (!strstr(out.data, "refused") && !strstr(out.data, "told"));
}

static void it_is_shown_and_cleared(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char prompt[17] = "";
    rig_wait(can_list, &out, "the router that has ended is left out");
    const char *at = strstr(out.data, "router-0");
    if (!at || !strstr(out.data, "told")) fail_msg("%s", out.data);
    assert_int_equal(sscanf(at, "router-0 %16s", prompt), 1);
    assert_true(rig_metric(router.port, "muster_router_quarantined_prompts{state=\"refused\"}") ==
                1);
    assert_int_equal(quarantine("clear", "0123", &out), 2);
    assert_int_equal(quarantine("clear", "zzzzzzzzzzzzzzzz", &out), 2);
    assert_int_equal(quarantine("clear", prompt, &out), 0);
    for (int i = 0; i < 3; i++) { /* nor does the controller bring it back */
        assert_true(nothing_is_listed());
        usleep(300000);
    }
    assert_int_equal(rig_call(router.port, "/admin/quarantine", NULL, NULL), 401);
    assert_int_equal(
        rig_call(router.port, "/admin/quarantine/clear", "{\"fingerprint\":\"all\"}", NULL), 401);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_that_kills_costs_two_engines_and_nobody_s_answer),
        cmocka_unit_test(every_router_refuses_it),
        cmocka_unit_test(it_is_shown_and_cleared),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
