/* t_cuts.c - cuts the parts of a fleet off from one another, under load, for MUSTER_CUT_S seconds.
 *
 * The data plane outlives the control plane, and a silent part is not a dead one: whichever parts cannot
 * hear each other, clients get every token of every output, no instance is ended, and no engine is started
 * again except the one that its own agent could not reach. All tests use one fleet: controller, router and
 * two instances of a third of a core, which reach each other through the relay only. Without the variable
 * a cut lasts a minute (`./check --gates`); `./check` makes shorter cuts, longer than each limit of a
 * request except router.engine_head.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/faults/relay.h"
#include "tests/proc/faults/streams.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define INSTANCES 2
#define CLIENTS 6
#define QUESTIONS 3
#define TOKENS 48
#define CUT_S 60     /* length of the main cuts */
#define CUT_S_MIN 12 /* the router gives up on a silent stream after 10 s */
#define VARIANT_S 20 /* of the other cuts, at most */
/* Longest waits for a token while another engine can be reached: the limits router.engine_head and
 * engine_gap, and time to begin again. */
#define FIRST_US 40000000
#define GAP_US 20000000
#define HEARD_S 5 /* a part that was heard within this time is connected */
#define INSTANCES_PATH "/api/v1/instances"

struct shown { /* an instance, as the controller shows it */
    char id[32];
    unsigned port, running;
    double report_age_s;
};

static char text[QUESTIONS][4096]; /* the output for each question, asked alone */
static uint32_t cut_s = CUT_S, variant_s = VARIANT_S;

/* Returns the least age in seconds of the last report or sync at the end of a cut that stopped it. Both come
 * every second, a little later on a busy machine. */
static double aged_s(uint32_t cut)
{
    return cut - cut / 6.0;
}

static void read_seconds(void)
{
    const char *given = getenv("MUSTER_CUT_S");
    if (given) cut_s = max_u32((uint32_t)strtoul(given, NULL, 10), CUT_S_MIN);
    variant_s = min_u32(cut_s, VARIANT_S);
    char sick[16];
    snprintf(sick, sizeof sick, "%us",
             min_u32(cut_s / 2, 15)); /* an agent notices within the cut */
    setenv("MUSTER_AGENT_SICK", sick, 1);
}

static int setup(void **state)
{
    (void)state;
    read_seconds();
    relay_open();
    fleet_open("200ms", FLEET_OF_THIRDS);
    relay_knows(PART_CONTROLLER, controller.port);
    relay_knows(PART_ROUTER, router.port);
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    for (uint32_t q = 0; q < QUESTIONS; q++) {
        CLEANUP(buf_fini) struct buf answer = { 0 };
        streams_ask(router.port, q, TOKENS, &answer);
        assert_true(answer.len < sizeof text[q]);
        memcpy(text[q], answer.data, answer.len);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    relay_close();
    return 0;
}

/* ---- the fleet ---- */

static void read_instances(struct shown ret[INSTANCES])
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(controller.port, INSTANCES_PATH, NULL, &reply), 200);
    const char *at = reply.data;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        at = strstr(at, "\"instance\":\"");
        if (!at) fail_msg("not %u instances: %s", INSTANCES, reply.data);
        ret[i] = (struct shown){ .report_age_s = -1 };
        assert_int_equal(sscanf(at, "\"instance\":\"%31[^\"]", ret[i].id), 1);
        const char *age = strstr(at, "\"report_age_s\":"), *port = strstr(at, "\"port\":");
        const char *running = strstr(at, "\"running\":");
        assert_true(age && port && running);
        assert_int_equal(sscanf(running, "\"running\":%u", &ret[i].running), 1);
        (void)sscanf(age, "\"report_age_s\":%lf", &ret[i].report_age_s);
        assert_int_equal(sscanf(port, "\"port\":%u", &ret[i].port), 1);
        at++;
    }
    if (strstr(at, "\"instance\":\""))
        fail_msg("more than %u instances: %s", INSTANCES, reply.data);
}

static void read_engine(const struct shown *instance, struct proc_id *ret)
{
    char path[RIG_PATH];
    CLEANUP(buf_fini) struct buf line = { 0 };
    snprintf(path, sizeof path, "%s/instances/%s/engine.id", fleet_state, instance->id);
    assert_int_equal(file_read(path, 256, &line, NULL), 0);
    struct str rest = buf_view(&line);
    assert_int_equal(proc_id_parse(str_trim(str_cut(&rest, '\n')), ret), 0);
}

/* ---- a cut ---- */

struct pair {
    enum part from, to;
    bool one; /* only the first instance's engine */
    enum cut cut;
    uint32_t cured; /* engines that are started again because of it */
};

/* The age of the controller's knowledge (its oldest report) and of the router's. */
struct ages {
    double report_s, sync_s;
};

static struct ages ages_now(void)
{
    struct shown s[INSTANCES];
    read_instances(s);
    double oldest_s = 0;
    for (uint32_t i = 0; i < INSTANCES; i++)
        if (s[i].report_age_s > oldest_s) oldest_s = s[i].report_age_s;
    return (struct ages){ oldest_s, rig_metric(router.port, "muster_router_sync_age_seconds") };
}

static bool answers_come(void *arg)
{
    return streams_whole() >= *(const uint64_t *)arg;
}

static void wait_for_answers(void)
{
    uint64_t goal = streams_whole() + 2 * CLIENTS;
    rig_wait(answers_come, &goal, "clients are answered");
}

/* Returns true once all engines compute, so that a cut has an effect on each of them. */
static bool all_compute(void *arg)
{
    struct shown *s = arg;
    read_instances(s);
    bool all = true;
    for (uint32_t i = 0; i < INSTANCES; i++)
        all &= s[i].running > 0;
    return all;
}

static void judge_streams(const struct streams_sum *sum, struct ages then)
{
    print_message("%llu answers, %llu failed, %llu broken; longest wait for a first token %.1f s, "
                  "for the next %.1f s; at the end the oldest report was %.0f s old, the rules "
                  "%.0f s\n",
                  (unsigned long long)sum->whole, (unsigned long long)sum->failed,
                  (unsigned long long)sum->broken, (double)sum->first_us_max * 1e-6,
                  (double)sum->gap_us_max * 1e-6, then.report_s, then.sync_s);
    if (sum->failed || sum->broken) fail_msg("%s", sum->error);
    if (sum->violation[0]) fail_msg("%s", sum->violation);
}

static bool heard_again(void *arg)
{
    (void)arg;
    struct ages now = ages_now();
    return now.report_s < HEARD_S && now.sync_s < HEARD_S;
}

/* Cuts the pairs while clients ask, and returns the ages just before the cuts end. */
static struct ages cut_for(uint32_t seconds, const struct pair *pairs, size_t count)
{
    struct streams_plan plan = { .port = router.port,
                                 .clients = CLIENTS,
                                 .tokens = TOKENS,
                                 .questions = QUESTIONS,
                                 .limits = { .first_us_max = FIRST_US, .gap_us_max = GAP_US } };
    struct streams_sum sum;
    struct shown before[INSTANCES], after[INSTANCES];
    struct proc_id engines[INSTANCES];
    uint32_t cured = 0;
    for (uint32_t q = 0; q < QUESTIONS; q++)
        plan.expected[q] = text[q];
    read_instances(before);
    for (uint32_t i = 0; i < INSTANCES; i++)
        read_engine(&before[i], &engines[i]);
    streams_start(&plan);
    wait_for_answers();
    rig_wait(all_compute, before, "every engine computes");

    for (size_t p = 0; p < count; p++)
        relay_cut(pairs[p].from, pairs[p].to, (uint16_t)(pairs[p].one ? before[0].port : 0),
                  pairs[p].cut);
    usleep(seconds * 1000000);
    struct ages then = ages_now();
    for (size_t p = 0; p < count; p++) {
        relay_cut(pairs[p].from, pairs[p].to, 0, CUT_NONE);
        cured += pairs[p].cured;
    }

    rig_wait(heard_again, NULL, "everybody is heard again");
    fleet_wait(INSTANCES);
    wait_for_answers();
    streams_end(&sum);
    judge_streams(&sum, then);
    read_instances(after);
    for (uint32_t i = 0; i < INSTANCES; i++) {
        struct proc_id now;
        assert_string_equal(before[i].id, after[i].id);
        read_engine(&after[i], &now);
        cured -= !proc_id_eq(&engines[i], &now);
    }
    assert_int_equal(cured, 0);
    return then;
}

/* ---- tests ---- */

static void agents_without_the_controller(void **state)
{
    (void)state;
    struct pair p = { .from = PART_AGENT, .to = PART_CONTROLLER, .cut = CUT_BOTH };
    struct ages then = cut_for(cut_s, &p, 1);
    assert_true(then.report_s > aged_s(cut_s) && then.sync_s < 10);
}

static void the_router_without_the_controller(void **state)
{
    (void)state;
    struct pair p = { .from = PART_ROUTER, .to = PART_CONTROLLER, .cut = CUT_BOTH };
    struct ages then = cut_for(cut_s, &p, 1);
    assert_true(then.report_s < 10 && then.sync_s > aged_s(cut_s));
}

/* Reports and syncs arrive but the replies do not: the controller hears parts that do not hear it. */
static void the_controller_heard_by_nobody(void **state)
{
    (void)state;
    struct pair p[] = { { .from = PART_AGENT, .to = PART_CONTROLLER, .cut = CUT_BACK },
                        { .from = PART_ROUTER, .to = PART_CONTROLLER, .cut = CUT_BACK } };
    struct ages then = cut_for(variant_s, p, 2);
    assert_true(then.sync_s > aged_s(variant_s));
}

static void the_controller_alone(void **state)
{
    (void)state;
    struct pair p[] = { { .from = PART_AGENT, .to = PART_CONTROLLER, .cut = CUT_BOTH },
                        { .from = PART_ROUTER, .to = PART_CONTROLLER, .cut = CUT_BOTH } };
    struct ages then = cut_for(cut_s, p, 2);
    assert_true(then.report_s > aged_s(cut_s) && then.sync_s > aged_s(cut_s));
}

static void the_controller_resets_everybody(void **state)
{
    (void)state;
    struct pair p[] = { { .from = PART_AGENT, .to = PART_CONTROLLER, .cut = CUT_RESET },
                        { .from = PART_ROUTER, .to = PART_CONTROLLER, .cut = CUT_RESET } };
    struct ages then = cut_for(variant_s, p, 2);
    assert_true(then.report_s > aged_s(variant_s) && then.sync_s > aged_s(variant_s));
}

static void the_router_without_an_engine(void **state)
{
    (void)state;
    struct pair p = { .from = PART_ROUTER, .to = PART_ENGINE, .one = true, .cut = CUT_BOTH };
    (void)cut_for(cut_s, &p, 1);
}

static void an_engine_whose_answers_are_lost(void **state)
{
    (void)state;
    struct pair p = { .from = PART_ROUTER, .to = PART_ENGINE, .one = true, .cut = CUT_BACK };
    (void)cut_for(variant_s, &p, 1);
}

/* The agent cannot tell a cut from an engine that hangs, and starts another engine; the streams continue. */
static void an_agent_without_its_engine(void **state)
{
    (void)state;
    struct pair p = {
        .from = PART_AGENT, .to = PART_ENGINE, .one = true, .cut = CUT_BOTH, .cured = 1
    };
    (void)cut_for(cut_s, &p, 1);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "REROUTE_LIB", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_without_the_controller),
        cmocka_unit_test(the_router_without_the_controller),
        cmocka_unit_test(the_controller_heard_by_nobody),
        cmocka_unit_test(the_controller_alone),
        cmocka_unit_test(the_controller_resets_everybody),
        cmocka_unit_test(the_router_without_an_engine),
        cmocka_unit_test(an_engine_whose_answers_are_lost),
        cmocka_unit_test(an_agent_without_its_engine),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
