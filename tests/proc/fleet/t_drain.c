/* t_drain.c - shrinks a fleet while long outputs run: they continue at the instance that stays, and the
 * draining one does not wait for them.
 *
 * Real controller, router, agents and engines with the shipped model. */
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <stdio.h>

#define TEXT "/v1/completions"
#define ASKERS 4
#define TOKENS 1200

struct asker {
    pthread_t thread;
    uint32_t number;
    struct buf alone, reply;
    int status;
};

static struct asker asker[ASKERS];

static int setup(void **state)
{
    (void)state;
    fleet_open("100ms", "router: { sync: 100ms, migrate: llumnix, route: least_request }\n"
                        "local:\n"
                        "  cores: 2\n"
                        "  offers:\n"
                        "    - { name: third, share: 0.33, price_per_hour: 1, max_num_seqs: 8 }\n"
                        "services:\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    stabilisation: 1s\n"
                        "    engine_flags: [--max-num-seqs, '8', --threads, '1', --hardware, cpu,\n"
                        "                   --kv-cache-memory-bytes, 48MiB]\n"
                        "    pools: [ { name: only, offers: [third], max: 2 } ]\n");
    fleet_scale(2);
    fleet_wait(2);
    return 0;
}

static bool is_one(void *arg)
{
    (void)arg;
    return fleet_is_at(1) && rig_count("engine") == 1;
}

/* Asks without streaming: the response is equal byte by byte except its id and its time. */
static void *ask(void *arg)
{
    struct asker *a = arg;
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\":\"%u brothers lived in a house by the sea\",\"max_tokens\":%d,"
             "\"ignore_eos\":true,\"temperature\":0.8,\"seed\":3}",
             a->number + 2, TOKENS);
    a->status = rig_call(router.port, TEXT, body, &a->reply);
    return NULL;
}

static struct str text_of(const struct buf *reply)
{
    const char *from = reply->len > 0 ? strstr(reply->data, "\"text\":\"") : NULL;
    const char *to = from ? strstr(from, "\"finish_reason\":\"length\"") : NULL;
    assert_true(from && to);
    return str_of(from, (size_t)(to - from));
}

static double running(void)
{
    return rig_metric(router.port, "muster_router_in_flight_requests");
}

static bool all_run(void *arg)
{
    (void)arg;
    return running() == ASKERS;
}

static void answers_leave_an_instance_that_is_to_end(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        *a = (struct asker){ .number = i };
        ask(a);
        assert_int_equal(a->status, 200);
        buf_str(&a->alone, text_of(&a->reply));
    }
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, ask, &asker[i]), 0);
    rig_wait(all_run, NULL, "all answers run");
    fleet_scale(1);
    rig_wait(is_one, NULL, "one instance has ended");
    double still = running();
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    print_message("%.0f moves, %.0f dropped, %.0f of %d still ran when the instance had ended\n",
                  rig_metric(router.port, "muster_router_migrations_total"),
                  rig_metric(router.port, "muster_router_migrations_dropped_total"), still, ASKERS);
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        assert_int_equal(a->status, 200);
        assert_true(str_eq(text_of(&a->reply), buf_view(&a->alone)));
        buf_fini(&a->alone);
        buf_fini(&a->reply);
    }
    assert_true(rig_metric(router.port, "muster_router_migrations_total") >= 1);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_leave_an_instance_that_is_to_end),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
