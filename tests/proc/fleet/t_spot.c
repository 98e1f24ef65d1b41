/* t_spot.c - runs a fleet on spot instances in three zones of the local cloud. While outputs run, the
 * market's script takes the instances of two zones away, with a notice of two seconds and with none:
 * the outputs continue in the third, and none is lost.
 *
 * Real controller, router, agents and engines with the shipped model. SkyServe's placer keeps one
 * instance in each zone. Zone c goes first and without notice, so that no request loses two engines
 * without notice: it would be refused as the cause of their death. The notice of zone a reaches the
 * router, and its SpotServe policy moves the requests off the instance that leaves. */
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define TEXT "/v1/completions"
#define INSTANCES "/api/v1/instances"
#define ASKERS 3
#define TOKENS 1800
#define LOST(zone) "muster_controller_instances_lost_total{offer=\"" zone "\"}"

static atomic_bool done;

struct asker {
    pthread_t thread;
    uint32_t number, answers;
    struct buf first; /* the first output's text, which all later ones must equal */
    char trouble[128];
};

static struct asker asker[ASKERS];

static int setup(void **state)
{
    (void)state;
    fleet_open("200ms",
               "router: { sync: 200ms, migrate: spotserve, route: least_request }\n"
               "local:\n"
               "  cores: 2\n"
               "  poll: 200ms\n"
               "  offers:\n"
               "    - { name: zone-a, zone: a, spot: true, share: 0.33, price_per_hour: 0.4,\n"
               "        max_num_seqs: 8, spot_life: 24s, spot_notice: 2s, spot_outage: 1h }\n"
               "    - { name: zone-c, zone: c, spot: true, share: 0.33, price_per_hour: 0.45,\n"
               "        max_num_seqs: 8, spot_life: 16s, spot_notice: 0s, spot_outage: 1h }\n"
               "    - { name: zone-b, zone: b, spot: true, share: 0.33, price_per_hour: 0.5,\n"
               "        max_num_seqs: 8 }\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    place: spot\n"
               "    engine_flags: [--max-num-seqs, '8', --threads, '1', --hardware, cpu,\n"
               "                   --kv-cache-memory-bytes, 48MiB]\n"
               "    pools: [ { name: only, offers: [zone-a, zone-b, zone-c], min: 2, max: 3 } ]\n");
    return 0;
}

static struct str text_of(const struct buf *reply)
{
    const char *from = reply->len > 0 ? strstr(reply->data, "\"text\":\"") : NULL;
    const char *to = from ? strstr(from, "\"finish_reason\":\"length\"") : NULL;
    return from && to ? str_of(from, (size_t)(to - from)) : (struct str){ 0 };
}

/* Asks the same again and again. The outputs are equal byte by byte, wherever they were made. */
static void *keep_asking(void *arg)
{
    struct asker *a = arg;
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\":\"%u sisters lived in a house by the sea\",\"max_tokens\":%d,"
             "\"ignore_eos\":true,\"temperature\":0.8,\"seed\":7}",
             a->number + 2, TOKENS);
    while (!done && !a->trouble[0]) {
        struct buf reply = { 0 };
        int status = rig_call(router.port, TEXT, body, &reply);
        struct str text = text_of(&reply);
        if (status != 200 || text.len == 0)
            snprintf(a->trouble, sizeof a->trouble, "answer %u has status %d", a->answers, status);
        else if (a->answers == 0)
            buf_str(&a->first, text);
        else if (!str_eq(text, buf_view(&a->first)))
            snprintf(a->trouble, sizeof a->trouble, "answer %u is another text", a->answers);
        a->answers++;
        buf_fini(&reply);
    }
    return NULL;
}

/* Returns true if each zone has an instance and the router knows all of them. */
static bool all_zones(void *arg)
{
    (void)arg;
    struct buf text = { 0 };
    bool all = rig_call(controller.port, INSTANCES, NULL, &text) == 200 &&
               strstr(text.data, "zone-a") && strstr(text.data, "zone-b") &&
               strstr(text.data, "zone-c") &&
               rig_metric(router.port, "muster_router_endpoints") >= 3;
    buf_fini(&text);
    return all;
}

/* Returns true once the controller knows both losses and no instance of the two zones drains or serves. */
static bool has_lost(void *arg)
{
    (void)arg;
    struct buf text = { 0 };
    bool lost = rig_metric(controller.port, LOST("zone-a")) >= 1 &&
                rig_metric(controller.port, LOST("zone-c")) >= 1 &&
                rig_call(controller.port, INSTANCES, NULL, &text) == 200 &&
                !strstr(text.data, "zone-a") && !strstr(text.data, "zone-c");
    buf_fini(&text);
    return lost;
}

static void losses_in_two_zones_lose_no_answer(void **state)
{
    (void)state;
    rig_wait(all_zones, NULL, "an instance in each zone");
    for (uint32_t i = 0; i < ASKERS; i++) {
        asker[i] = (struct asker){ .number = i };
        assert_int_equal(pthread_create(&asker[i].thread, NULL, keep_asking, &asker[i]), 0);
    }
    rig_wait(has_lost, NULL, "zones a and c have lost their instances");
    done = true;
    uint32_t answers = 0;
    for (uint32_t i = 0; i < ASKERS; i++) {
        pthread_join(asker[i].thread, NULL);
        if (asker[i].trouble[0]) fail_msg("asker %u: %s", i, asker[i].trouble);
        answers += asker[i].answers;
        buf_fini(&asker[i].first);
    }
    double moves = rig_metric(router.port, "muster_router_migrations_total");
    double continued = rig_metric(router.port, "muster_router_continued_total");
    print_message("%u answers, %.0f moved, %.0f continued\n", answers, moves, continued);
    assert_true(answers >= ASKERS);
    assert_true(moves + continued >= 1); /* zone c went without notice, while outputs ran there */
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = { cmocka_unit_test(losses_in_two_zones_lose_no_answer) };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
