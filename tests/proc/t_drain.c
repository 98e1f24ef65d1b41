/* t_drain.c - a whole fleet that shrinks while long answers run: they go on at the instance that
 * stays, and the one that is to end does not wait for them.
 *
 * Real controller, router, agents and engines with the shipped model. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define TEXT "/v1/completions"
#define SERVICES "/api/v1/services"
#define ASKERS 4
#define TOKENS 1200

static uint16_t controller_port, router_port;
static struct rig_process controller, router;
static char state_folder[128], config[160];

struct asker {
    pthread_t thread;
    uint32_t number;
    struct buf alone, reply;
    int status;
};

static struct asker asker[ASKERS];

static void write_config(void)
{
    char folder[512];
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_non_null(getcwd(folder, sizeof folder));
    buf_printf(&text,
               "controller: { tick: 100ms, state: '%s' }\n"
               "router: { sync: 100ms, migrate: llumnix, route: least_request }\n"
               "local:\n"
               "  cores: 2\n"
               "  offers:\n"
               "    - { name: third, share: 0.33, price_per_hour: 1, max_num_seqs: 8 }\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: '%s/" MODEL "'\n"
               "    stabilisation: 1s\n"
               "    engine_flags: [--max-num-seqs, '8', --threads, '1', --hardware, cpu,\n"
               "                   --kv-cache-memory-bytes, 48MiB]\n"
               "    pools: [ { name: only, offers: [third], max: 2 } ]\n",
               state_folder, folder);
    assert_int_equal(file_write_atomic(config, buf_view(&text), 0600, NULL), 0);
}

static void scale(int count)
{
    char body[64];
    snprintf(body, sizeof body, "{\"pool\":\"only\",\"count\":%d}", count);
    assert_int_equal(rig_call(controller_port, SERVICES "/tiny/scale", body, NULL), 200);
}

static bool is_at(int64_t instances)
{
    return rig_number(controller_port, SERVICES, "ready") == instances &&
           rig_number(controller_port, SERVICES, "starting") == 0 &&
           rig_number(controller_port, SERVICES, "draining") == 0 &&
           rig_metric(router_port, "muster_router_endpoints") == (double)instances;
}

static bool are_two(void *arg)
{
    (void)arg;
    return is_at(2);
}

static bool is_one(void *arg)
{
    (void)arg;
    return is_at(1) && rig_count("engine") == 1;
}

static int setup(void **state)
{
    (void)state;
    char listen[32], at[32], secret[160];
    snprintf(state_folder, sizeof state_folder, "%s/state", rig_folder());
    snprintf(config, sizeof config, "%s/muster.yaml", rig_folder());
    snprintf(secret, sizeof secret, "%s/secret", state_folder);
    write_config();
    controller_port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", controller_port);
    const char *controls[] = { getenv("MUSTER_BIN"), "controller", "--config", config,
                               "--listen",           listen,       NULL };
    controller = rig_start("controller", controls, controller_port, "/health", 200);
    router_port = rig_port();
    snprintf(at, sizeof at, "127.0.0.1:%u", router_port);
    const char *routes[] = {
        getenv("MUSTER_BIN"), "router", "--config",      config, "--listen", at,
        "--controller",       listen,   "--secret-file", secret, NULL
    };
    router = rig_start("router", routes, router_port, "/health", 200);
    scale(2);
    rig_wait(are_two, NULL, "two instances are ready");
    return 0;
}

/* Not streamed: what it sends is one reply, equal byte for byte but for its id and its time. */
static void *ask(void *arg)
{
    struct asker *a = arg;
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\":\"%u brothers lived in a house by the sea\",\"max_tokens\":%d,"
             "\"ignore_eos\":true,\"temperature\":0.8,\"seed\":3}",
             a->number + 2, TOKENS);
    a->status = rig_call(router_port, TEXT, body, &a->reply);
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
    return rig_metric(router_port, "muster_router_in_flight_requests");
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
    scale(1);
    rig_wait(is_one, NULL, "one instance has ended");
    double still = running();
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    print_message("%.0f moves, %.0f dropped, %.0f of %d still ran when the instance had ended\n",
                  rig_metric(router_port, "muster_router_moves_total"),
                  rig_metric(router_port, "muster_router_moves_dropped_total"), still, ASKERS);
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        assert_int_equal(a->status, 200);
        assert_true(str_eq(text_of(&a->reply), buf_view(&a->alone)));
        buf_fini(&a->alone);
        buf_fini(&a->reply);
    }
    assert_true(rig_metric(router_port, "muster_router_moves_total") >= 1);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
}

int main(void)
{
    if (!getenv("MUSTER_BIN") || access(MODEL, R_OK) < 0) {
        print_message("skipped: MUSTER_BIN or " MODEL " is missing\n");
        return 77;
    }
    /* Agents inherit it: what takes a second for people takes a fifth here. */
    setenv("MUSTER_AGENT_REPORT", "200ms", 1);
    setenv("MUSTER_AGENT_SETTLE", "200ms", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_leave_an_instance_that_is_to_end),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
