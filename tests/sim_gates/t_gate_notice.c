/* t_gate_notice.c - judges how migration saves outputs when a spot machine gets its notice.
 *
 * Four A100 on demand and four in one spot zone that goes every few minutes, an 8B model, outputs of
 * some twenty seconds. A request that is cut off resumes at another machine, which computes all of it
 * again. */
#include "tests/sim_gates/gate.h"
#include "tests/sim_gates/judged.h"

#include <stdio.h>

#define SEEDS 10

static struct gate run(const char *link, const char *notice)
{
    char command[512];
    snprintf(
        command, sizeof command,
        "--trace gen:poisson,rate=4,prompt=lognormal(2000,1),output=lognormal(1500,0.6),n=4000 "
        "--fleet 4-4xa100@3.43,4-4xa100:spot:zone1@1.19 --model llama-3-8b --zone-up 3m "
        "--zone-down 2m --lead-time 30s --slo-ttft 4s --scale-policy static --link %s "
        "--notice %s --compare migrate=none,llumnix,spotserve --seeds %d",
        link, notice, SEEDS);
    return gate_run(command);
}

/* Over a link that copies everything in time nothing is cut off, and requests that end in time by
 * themselves are not copied. */
static void a_notice_is_enough_where_the_link_is_fast(void **state)
{
    (void)state;
    struct gate g = run("25GB", "10s");
    gate_interval_above("cut off without moves", gate_mean(&g, "migrate=none", "resumed"), 5);
    gate_interval_below("cut off by llumnix", gate_mean(&g, "migrate=llumnix", "resumed"), 0.5);
    gate_interval_below("cut off by spotserve", gate_mean(&g, "migrate=spotserve", "resumed"), 0.5);
    struct stats_mean jct = gate_share(&g, "migrate=spotserve", "migrate=none", "jct_s.mean");
    gate_interval_below("spotserve's JCT against none's", jct, 0);
    struct stats_mean moves = gate_share(&g, "migrate=spotserve", "migrate=llumnix", "migrations");
    gate_interval_below("spotserve's moves against llumnix's", moves, -0.2);
    gate_free(&g);
}

/* Over a slow link spotserve begins only copies that can arrive, and has fewer requests cut off than no
 * migration. A lead over llumnix, which begins all copies at once, is not claimed any more (+0.4 +-
 * 8.2 %): the bound of -0.2 held while the simulator let any number of copies go to one engine. Engines
 * and routers allow 16, so that fewer of llumnix's are in vain. */
static void what_cannot_arrive_is_not_begun(void **state)
{
    (void)state;
    struct gate g = run("250MB", "10s");
    struct stats_mean none = gate_share(&g, "migrate=spotserve", "migrate=none", "resumed");
    gate_interval_below("cut off by spotserve against none", none, -0.2);
    gate_free(&g);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    assert_int_equal(judged_missed("migrate", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_notice_is_enough_where_the_link_is_fast),
        cmocka_unit_test(what_cannot_arrive_is_not_begun),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
