/* shared_rig.c - starts the processes of a fleet on a shared store, and compares it before and after a fault. */
#include "tests/proc/shared_store/shared_rig.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/faults/streams.h"

#include <dirent.h>
#include <signal.h>

#define CLIENTS 6
#define QUESTIONS 3
#define TOKENS 32
#define FIRST_US 40000000 /* on a busy machine: no fault here touches an engine */
#define GAP_US 20000000
#define SYNC_AGE_S 3
#define LEASE_MS 2000u
#define TIMEOUT_MS 300u
#define SERVICES "/api/v1/services"

struct rig_process shared_controller[2], shared_router;
static const char *url;     /* of the store */
static uint32_t slower = 1; /* its bounds and the terms are so many times as long */
static char state[128], config[2][RIG_PATH], secret[160];
static char text[QUESTIONS][4096]; /* the output for each question, asked alone */

/* ---- the processes ---- */

void shared_start_controller(uint32_t index)
{
    shared_controller[index] =
        rig_server("controller", shared_controller[index].port, ARGS("--config", config[index]));
}

void shared_write_config(char ret_path[RIG_PATH], const char *name, uint32_t index,
                         const char *more)
{
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    char list[96];
    snprintf(list, sizeof list, "['127.0.0.1:%u', '127.0.0.1:%u']", shared_controller[0].port,
             shared_controller[1].port);
    buf_printf(&yaml,
               "controller: { tick: 200ms, state: '%s', store: '%s', store_timeout: %ums,\n"
               "  leader_lease: %ums, lease: 1s, grace: %us, controllers: %s,\n"
               "  hosts: [controller-%u.test] }\n"
               "router: { sync: 100ms, controllers: %s }\n"
               "local:\n"
               "  cores: 1\n"
               "  offers:\n"
               "    - { name: third, share: 0.33, price_per_hour: 1, launch_delay: 200ms,\n"
               "        max_num_seqs: 4 }\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    %s\n"
               "    zero_after: 1s\n"
               "    stabilisation: 1s\n"
               "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
               "    pools: [ { name: only, offers: [third], max: 3 } ]\n",
               state, url, slower * TIMEOUT_MS, slower * LEASE_MS, slower * SHARED_GRACE_S, list,
               index, list, more);
    rig_file(ret_path, name, yaml.data);
}

void shared_open(const char *store_url)
{
    snprintf(state, sizeof state, "%s/state", rig_folder());
    snprintf(secret, sizeof secret, "%s/secret", state);
    url = store_url;
    if (strncmp(url, "kubernetes:", 11) == 0) slower = SHARED_KUBE_SLOWER;
    for (uint32_t i = 0; i < 2; i++)
        shared_controller[i].port = rig_port();
    shared_write_config(config[0], "muster-0.yaml", 0, "");
    shared_write_config(config[1], "muster-1.yaml", 1, "");
    rig_hurry_agents();
    for (uint32_t i = 0; i < 2; i++)
        shared_start_controller(i);
    shared_router =
        rig_server("router", rig_port(), ARGS("--config", config[0], "--secret-file", secret));
    shared_scale(SHARED_INSTANCES);
    shared_wait_instances(SHARED_INSTANCES);
    for (uint32_t q = 0; q < QUESTIONS; q++) {
        CLEANUP(buf_fini) struct buf answer = { 0 };
        streams_ask(shared_router.port, q, TOKENS, &answer);
        assert_true(answer.len < sizeof text[q]);
        memcpy(text[q], answer.data, answer.len);
    }
}

void shared_close(void)
{
    for (uint32_t i = 0; i < 2; i++)
        rig_kill(&shared_controller[i]);
    rig_kill(&shared_router);
}

/* ---- who leads ---- */

static bool says_it_leads(uint32_t index)
{
    return rig_is_alive(&shared_controller[index]) &&
           rig_metric(shared_controller[index].port, "muster_controller_leader") == 1;
}

/* Returns the controller that leads; 2: none, or two say so, one after the other. */
static uint32_t leader_now(void)
{
    bool first = says_it_leads(0), second = says_it_leads(1);
    return first == second ? 2 : second;
}

static bool has_leader(void *arg)
{
    uint32_t *ret = arg;
    *ret = leader_now();
    return *ret < 2;
}

uint32_t shared_leader(void)
{
    uint32_t leader;
    rig_wait(has_leader, &leader, "a controller leads");
    return leader;
}

static bool leads(void *arg)
{
    uint32_t index = *(const uint32_t *)arg;
    if (index < 2) return says_it_leads(index);
    return !says_it_leads(0) && !says_it_leads(1);
}

void shared_wait_leader(uint32_t index)
{
    rig_wait(leads, &index, index < 2 ? "the other controller leads" : "no controller leads");
}

void shared_stop(uint32_t index, bool stopped)
{
    assert_int_equal(
        proc_signal(&shared_controller[index].proc.id, stopped ? SIGSTOP : SIGCONT, NULL), 0);
}

static bool stands_by(void *arg)
{
    uint16_t port = shared_controller[*(const uint32_t *)arg].port;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return rig_call(port, "/health", NULL, &reply) == 200 && strstr(reply.data, "standby");
}

void shared_wait_standby(uint32_t index)
{
    rig_wait(stands_by, &index, "the controller stands by");
}

/* ---- instances ---- */

static bool is_scaled(void *arg)
{
    uint32_t leader = leader_now();
    char body[64], bearer[RIG_BEARER];
    rig_bearer(secret, bearer);
    snprintf(body, sizeof body, "{\"pool\":\"only\",\"count\":%u}", *(const uint32_t *)arg);
    return leader < 2 && rig_call_with(shared_controller[leader].port, SERVICES "/tiny/scale",
                                       bearer, body, NULL) == 200;
}

void shared_scale(uint32_t count)
{
    rig_wait(is_scaled, &count, "the leader takes the order");
}

static bool is_at(void *arg)
{
    uint32_t count = *(const uint32_t *)arg, leader = leader_now();
    if (leader == 2) return false;
    uint16_t port = shared_controller[leader].port;
    return rig_number(port, SERVICES, "ready") == count &&
           rig_number(port, SERVICES, "starting") == 0 &&
           rig_number(port, SERVICES, "draining") == 0 &&
           rig_metric(shared_router.port, "muster_router_endpoints") == count &&
           rig_metric(shared_router.port, "muster_router_sync_age_seconds") < SYNC_AGE_S;
}

void shared_wait_instances(uint32_t count)
{
    char what[80];
    snprintf(what, sizeof what, "one controller leads, and %u instances are ready", count);
    rig_wait(is_at, &count, what);
}

/* Appends the names of the instances' folders below `state`, sorted. */
static uint32_t instance_names(const char *below, struct buf *ret)
{
    struct dirent **found = NULL;
    char path[192];
    uint32_t count = 0;
    snprintf(path, sizeof path, "%s/%s", state, below);
    int n = scandir(path, &found, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strncmp(found[i]->d_name, "i-", 2) == 0) {
            buf_printf(ret, "%s ", found[i]->d_name);
            count++;
        }
        free(found[i]);
    }
    free(found);
    return count;
}

uint32_t shared_ended(void)
{
    CLEANUP(buf_fini) struct buf over = { 0 };
    return instance_names("instances/ended", &over);
}

void shared_expect(uint32_t count, uint32_t ended)
{
    CLEANUP(buf_fini) struct buf now = { 0 };
    assert_int_equal(instance_names("instances", &now), count);
    assert_int_equal(shared_ended(), ended);
    assert_int_equal(rig_count("engine"), count);
    assert_int_equal(rig_count("agent"), count);
}

/* ---- clients ---- */

static bool answers_come(void *arg)
{
    return streams_whole() >= *(const uint64_t *)arg;
}

void shared_hold(uint32_t seconds)
{
    const char *longer = getenv("MUSTER_HOLD_S");
    uint32_t given = longer ? (uint32_t)strtoul(longer, NULL, 10) : 0;
    usleep((given > seconds ? given : seconds) * 1000000);
}

void shared_wait_answers(void)
{
    uint64_t goal = streams_whole() + 2 * CLIENTS;
    rig_wait(answers_come, &goal, "clients are answered");
}

static void judge(const char *what, const struct streams_sum *sum)
{
    print_message(
        "%s: %llu answers, %llu failed, %llu broken; longest wait for a first token %.1f s, "
        "for the next %.1f s\n",
        what, (unsigned long long)sum->whole, (unsigned long long)sum->failed,
        (unsigned long long)sum->broken, (double)sum->first_us_max * 1e-6,
        (double)sum->gap_us_max * 1e-6);
    if (sum->failed || sum->broken) fail_msg("%s: %s", what, sum->error);
    if (sum->violation[0]) fail_msg("%s: %s", what, sum->violation);
}

void shared_under(const char *what, void (*fault)(void))
{
    struct streams_plan plan = { .port = shared_router.port,
                                 .clients = CLIENTS,
                                 .tokens = TOKENS,
                                 .questions = QUESTIONS,
                                 .limits = { .first_us_max = FIRST_US, .gap_us_max = GAP_US } };
    struct streams_sum sum;
    CLEANUP(buf_fini) struct buf before = { 0 }, after = { 0 };
    for (uint32_t q = 0; q < QUESTIONS; q++)
        plan.expected[q] = text[q];
    shared_wait_instances(SHARED_INSTANCES);
    (void)instance_names("instances", &before);
    uint32_t ended = shared_ended();
    int64_t began_us = clock_mono_us();
    streams_start(&plan);
    shared_wait_answers();
    fault();
    shared_wait_instances(SHARED_INSTANCES);
    shared_wait_answers();
    streams_end(&sum);
    judge(what, &sum);
    print_message("%s: %.1f s\n", what, (double)(clock_mono_us() - began_us) * 1e-6);
    (void)instance_names("instances", &after);
    assert_string_equal(before.data, after.data);
    shared_expect(SHARED_INSTANCES, ended);
}

/* ---- faults of the leader ---- */

void shared_leader_stopped(void)
{
    uint32_t leader = shared_leader(), other = 1 - leader;
    shared_stop(leader, true);
    shared_wait_leader(other);
    shared_hold(0);
    shared_wait_answers();
    shared_stop(leader, false);
    shared_wait_standby(leader);
    shared_wait_leader(other);
}

void shared_leader_killed(void)
{
    uint32_t leader = shared_leader(), other = 1 - leader;
    rig_kill(&shared_controller[leader]);
    shared_wait_leader(other);
    shared_wait_answers();
    shared_start_controller(leader);
    shared_wait_standby(leader);
}

void shared_leader_stopped_in_launches(const uint32_t *after_us, size_t count)
{
    uint32_t ended = shared_ended();
    for (size_t i = 0; i < count; i++) {
        shared_scale(SHARED_INSTANCES + 1);
        uint32_t leader = shared_leader(), other = 1 - leader;
        usleep(after_us[i]);
        shared_stop(leader, true);
        shared_wait_leader(other);
        shared_stop(leader, false);
        shared_wait_standby(leader);
        shared_wait_instances(SHARED_INSTANCES + 1);
        shared_expect(SHARED_INSTANCES + 1, ended);
        shared_scale(SHARED_INSTANCES);
        shared_wait_instances(SHARED_INSTANCES);
        ended++;
        while (rig_count("agent") > SHARED_INSTANCES)
            usleep(20000);
    }
}
