/* t_hung.c - hangs an engine under running requests: another engine continues their outputs.
 *
 * Real engines with the shipped model; outputs are sampled, so that a token lost or sent twice would be
 * seen in the text. There are two ways to hang: the device stops behind a loop that answers, which the
 * engine finds itself; and the whole process stops, which only its silence shows.
 */
#include "base/core/own.h"
#include "tests/proc/router/router_rig.h"

#include <signal.h>
#include <stdio.h>

#define ASKERS 2 /* the second one streams */
#define TOKENS 400
#define PROMPT "Once upon a time there was a king"

static const char *const both[ENGINES] = { "", "" };
static const char *const one[ENGINES] = { "" };
static struct asker asker[ASKERS];

static void start_real(uint32_t i, const char *fault)
{
    if (engine[i].port == 0) engine[i].port = rig_port();
    engine[i] = rig_server("engine", engine[i].port,
                           ARGS("--model", MODEL, "--threads", "1", "--max-num-seqs", "8", "--seed",
                                "1", "--kv-cache-memory-bytes", "16MiB", "--cpu-share", "0.3",
                                fault ? "--fault" : NULL, fault));
}

static void alone(void)
{
    for (uint32_t i = 0; i < ASKERS; i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        asker[i] = (struct asker){ .number = i, .tokens = TOKENS, .prompt = PROMPT };
        ask_at(engine[1].port, PROMPT, TOKENS, i % 2, &asker[i].alone, &reply);
    }
}

static void ask_all(void)
{
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, asker_run, &asker[i]), 0);
}

static void expect_all_whole(void)
{
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        pthread_join(a->thread, NULL);
        if (!a->whole) fail_msg("%s", a->reply.len ? a->reply.data : "no reply");
        assert_string_equal(a->text.data, a->alone.data);
        asker_fini(a);
    }
}

/* All requests first go to the engine that hangs, because the other one is started later. */
static void an_answer_outlives_a_device_that_hangs(void **state)
{
    (void)state;
    start_real(1, NULL);
    alone();
    rig_kill(&engine[1]);
    start_real(0, "device.hang:100");
    start_router(both, ARGS("--route", "least_request"));
    ask_all();
    start_real(1, NULL);
    rig_wait_endpoints(&router, 2);
    expect_all_whole();
    assert_true(rig_metric(engine[0].port, "muster_engine_stalls_total") == 1);
    assert_true(counted("continued") == ASKERS);
    assert_true(rig_metric(router.port, "muster_router_retries_total{failure=\"died\"}") >= ASKERS);
}

/* Returns true once all are past their first token, so that none is sent again as a new request. */
static bool all_decode(void *arg)
{
    (void)arg;
    return rig_metric(engine[0].port, "muster_engine_time_to_first_token_seconds_count") >=
               ASKERS &&
           rig_metric(engine[0].port, "muster_engine_generation_tokens_total") > 50;
}

static void an_answer_outlives_a_process_that_stops(void **state)
{
    (void)state;
    start_real(1, NULL);
    alone();
    rig_kill(&engine[1]);
    start_real(0, NULL);
    start_router(both, ARGS("--route", "least_request", "--engine-gap", "4s"));
    ask_all();
    rig_wait(all_decode, NULL, "the first engine decodes for all");
    assert_int_equal(proc_signal(&engine[0].proc.id, SIGSTOP, NULL), 0);
    start_real(1, NULL);
    expect_all_whole();
    assert_true(counted("continued") == ASKERS);
    assert_true(rig_metric(router.port, "muster_router_retries_total{failure=\"silent\"}") ==
                ASKERS);
}

/* A request waits in the engine's queue for far longer than an engine may be silent: the router hears
 * heartbeats, and sends no request a second time. */
static void a_long_queue_is_no_silence(void **state)
{
    (void)state;
    if (engine[0].port == 0) engine[0].port = rig_port();
    engine[0] = rig_server(
        "engine", engine[0].port,
        ARGS("--model", MODEL, "--threads", "1", "--max-num-seqs", "1", "--cpu-share", "0.1"));
    start_router(one, ARGS("--engine-gap", "4s", "--engine-head", "4s"));
    for (uint32_t i = 0; i < ASKERS; i++)
        asker[i] = (struct asker){ .number = i, .tokens = TOKENS, .prompt = PROMPT };
    ask_all();
    for (uint32_t i = 0; i < ASKERS; i++) {
        pthread_join(asker[i].thread, NULL);
        assert_true(asker[i].whole);
        asker_fini(&asker[i]);
    }
    double waited = rig_metric(engine[0].port, "muster_engine_request_queue_seconds_sum");
    print_message("waited %.1f s in the engine's queue\n", waited);
    assert_true(rig_metric(router.port, "muster_router_retries_total") <= 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_answer_outlives_a_device_that_hangs, cleanup),
        cmocka_unit_test_teardown(an_answer_outlives_a_process_that_stops, cleanup),
        cmocka_unit_test_teardown(a_long_queue_is_no_silence, cleanup),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
