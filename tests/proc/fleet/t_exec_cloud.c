/* t_exec_cloud.c - buys a fleet's instances from docs/clouds/exec-example.sh, as it stands: a service goes up and down
 * over it, an instance that dies is replaced, a controller that is killed goes on, and every instance ends.
 *
 * Real controller, router, agents and engines with the shipped model. */
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXAMPLE "docs/clouds/exec-example.sh"
#define BOOT "docs/clouds/exec-example-boot.sh"

static char seller[PATH_MAX];

/* Instances find `muster` along PATH, as on a machine of their own. */
static void lead_to_muster(void)
{
    char path[2 * PATH_MAX];
    const char *program = getenv("MUSTER_BIN"), *slash = strrchr(program, '/');
    assert_non_null(slash);
    snprintf(path, sizeof path, "%.*s:%s", (int)(slash - program), program, getenv("PATH"));
    setenv("PATH", path, 1);
}

static int setup(void **state)
{
    (void)state;
    char yaml[8192], example[PATH_MAX], boot[PATH_MAX], model[PATH_MAX];
    assert_non_null(realpath(EXAMPLE, example));
    assert_non_null(realpath(BOOT, boot));
    assert_non_null(realpath(MODEL, model));
    snprintf(seller, sizeof seller, "%.200s/seller", rig_folder());
    assert_int_equal(mkdir(seller, 0700), 0);
    setenv("SELLER_FOLDER", seller, 1);
    lead_to_muster();
    snprintf(yaml, sizeof yaml,
             "router: { sync: 100ms }\n"
             "clouds:\n"
             "  - name: here\n"
             "    kind: exec\n"
             "    program: ['%.1000s']\n"
             "    environment: [PATH, SELLER_FOLDER, MUSTER_AGENT_REPORT, MUSTER_AGENT_SETTLE]\n"
             "    user_data: '%.1000s'\n"
             "    poll: 1s\n"
             "    lag: 100ms\n"
             "    offers: [ { name: process, type: process, max_num_seqs: 4 } ]\n"
             "services:\n"
             "  - name: tiny\n"
             "    model: '%.1000s'\n"
             "    zero_after: 1s\n"
             "    stabilisation: 1s\n"
             "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
             "    pools: [ { name: only, provider: here, offers: [process], max: 3 } ]\n",
             example, boot, model);
    fleet_open("200ms", yaml);
    return 0;
}

/* Folders of instances at the seller. */
static uint32_t sold(void)
{
    uint32_t n = 0;
    DIR *dir = opendir(seller);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, "i-", 2) == 0;
    closedir(dir);
    return n;
}

static bool none_is_left(void *arg)
{
    (void)arg;
    return sold() == 0 && rig_count("agent") == 0 && rig_count("engine") == 0;
}

static void a_request_is_answered(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(router.port, "/v1/completions",
                              "{\"prompt\":\"once\",\"max_tokens\":4,\"temperature\":0}", &reply),
                     200);
}

static void up_and_down(void **state)
{
    (void)state;
    fleet_scale(2);
    fleet_wait(2);
    assert_int_equal(sold(), 2);
    a_request_is_answered();
    assert_true(rig_metric(controller.port, "muster_controller_cost_dollars_per_hour") != 0);
    fleet_scale(1);
    fleet_wait(1);
    a_request_is_answered();
    fleet_scale(0);
    rig_wait(none_is_left, NULL, "every instance has ended");
}

static bool one_is_sold(void *arg)
{
    (void)arg;
    return sold() == 1;
}

/* Kills all processes of all instances without a word, as a machine dies. */
static void kill_all(void)
{
    char command[PATH_MAX + 128];
    snprintf(command, sizeof command,
             "kill -9 $(grep -lsz '^SELLER_INSTANCE=%s/i-' /proc/[0-9]*/environ | cut -d/ -f3)",
             seller);
    assert_int_equal(system(command), 0);
}

static bool is_replaced(void *arg)
{
    return access(arg, F_OK) < 0 && sold() == 1 && fleet_is_at(1);
}

/* Writes the path of the only instance's folder. */
static void find_one(char ret[PATH_MAX])
{
    DIR *dir = opendir(seller);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, "i-", 2) == 0)
            snprintf(ret, PATH_MAX, "%.1000s/%s", seller, e->d_name);
    closedir(dir);
}

static void one_that_dies_is_replaced(void **state)
{
    (void)state;
    char folder[PATH_MAX] = "";
    fleet_scale(1);
    fleet_wait(1);
    rig_wait(one_is_sold, NULL, "the instances of before have ended");
    find_one(folder);
    kill_all();
    rig_wait(is_replaced, folder, "another instance is there");
    a_request_is_answered();
    fleet_scale(0);
    rig_wait(none_is_left, NULL, "every instance has ended");
}

static void a_killed_controller_goes_on(void **state)
{
    (void)state;
    fleet_scale(2);
    rig_kill(&controller);
    fleet_start_controller();
    fleet_wait(2);
    assert_int_equal(sold(), 2);
    fleet_scale(0);
    rig_wait(none_is_left, NULL, "every instance has ended");
}

int main(void)
{
    if (system("command -v jq flock setsid >/dev/null") != 0) {
        printf("skipped: " EXAMPLE " needs jq, flock and setsid\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_and_down),
        cmocka_unit_test(one_that_dies_is_replaced),
        cmocka_unit_test(a_killed_controller_goes_on),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
