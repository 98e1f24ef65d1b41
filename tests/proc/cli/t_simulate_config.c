/* t_simulate_config.c - what `muster simulate` takes from a file of configuration, and what it leaves:
 * the file's words do what the flags of the same meaning do, and flags are stronger. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/cli/simulate_rig.h"

#include <stdio.h>
#include <string.h>

static void expect(const struct buf *out, const char *says)
{
    if (!strstr(out->data, says)) fail_msg("no '%s' in %.600s", says, out->data);
}

/* A fleet, with flags behind it, and beside it the file, of which it says what is taken; and the fleet
 * that is the same in flags alone. */
struct as_flags {
    const char *fleet, *taken, *same;
};

static void expect_as_flags(const char *path, const struct as_flags *row, char ret[DIGEST])
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char with[DIGEST];
    simulate_digest(with, &out, "--trace " GENERATED " --fleet %s --config %s", row->fleet, path);
    expect(&out, row->taken);
    simulate_digest(ret, &out, "--trace " GENERATED " --fleet %s", row->same);
    if (strcmp(with, ret) != 0) fail_msg("%s beside the file is not %s", row->fleet, row->same);
}

static void a_file_of_configuration_names_rows(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], digest[3][DIGEST];
    rig_file(path, "muster.yaml", "router:\n  route: round_robin\n");
    static const char *const more[] = { "", "--route round_robin", "--route shortest_ttft" };
    for (size_t i = 0; i < 3; i++) {
        simulate_digest(digest[i], &out, "--trace " GENERATED " --fleet 3xl4 --config %s %s", path,
                        more[i]);
    }
    assert_string_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]); /* a flag beats the file */
    simulate_digest(digest[1], &out, "--trace " GENERATED " --fleet 3xl4 --route round_robin");
    assert_string_equal(digest[0], digest[1]); /* limits that it does not say are not taken */
}

/* Rows and limits of a whole fleet's file do what their flags do; the rest is named. */
static void a_fleets_file_is_taken_in_part_and_says_so(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], digest[4][DIGEST];
    rig_file(path, "fleet.yaml",
             "controller: { tick: 2s }\n"
             "router: { route: round_robin, hold_max: 5s }\n"
             "engine: { order: sjf_prompt, chunk: whole, max_num_seqs: 3 }\n"
             "local: { offers: [ { name: a, share: 1, price_per_hour: 1 } ] }\n"
             "services:\n"
             "  - name: s\n"
             "    model: none\n"
             "    scale: keda_queue\n"
             "    engine: { order: fcfs, predict: trail }\n"
             "    pools: [ { name: a, offers: [a] } ]\n");
    simulate_digest(digest[0], &out, "--trace " GENERATED " --fleet 2xl4 --config %s", path);
    static const char *const says[] = {
        "taken: router.route, router.hold_max, engine.max_num_seqs, engine.order, engine.chunk, "
        "services[0].engine.order;",
        "left, where the command's own words count: controller, services, local, "
        "services[0].engine.predict\n",
    };
    for (size_t i = 0; i < COUNT_OF(says); i++)
        expect(&out, says[i]);
    static const char *const flags[] = {
        "--route round_robin --order fcfs --chunk whole --seqs-max 3",
        "--route round_robin --order sjf_prompt --chunk whole --seqs-max 3",
        "--route round_robin --order fcfs --chunk whole",
    };
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        simulate_digest(digest[i + 1], &out, "--trace " GENERATED " --fleet 2xl4 %s", flags[i]);
    assert_string_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]); /* the service's row is the stronger one */
    assert_string_not_equal(digest[0], digest[3]);
    assert_int_equal(simulate(&out, "--trace " GENERATED REFERENCE "--config %s", path), 0);
    expect(&out, "taken: router.route, router.hold_max; left, where the command's own words count "
                 "and ref8000 has no engine: controller, services, local, "
                 "engine.max_num_seqs, engine.order, engine.chunk, services[0].engine.order");

    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 2xl4 --config muster.yaml"), 0);
    expect(&out, "muster.yaml: taken: router.route, router.predict, "
                 "router.migrate, router.hold_max, services[0].engine.order; left, "
                 "where the command's own words count: controller, services, "
                 "local, router.listen, router.");
}

/* Roles of the only service: its row, its link, its pools' in the fleet's order; flags are stronger. */
#define PARTED                                           \
    "pools: [ { name: a, offers: [a], role: prefill }, " \
    "{ name: b, offers: [a], role: decode } ]"
static void a_fleets_file_says_its_roles(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], text[512], digest[DIGEST];
    static const struct {
        const char *service;
        struct as_flags as;
    } rows[] = {
        { PARTED,
          { "1xl4,2xl4",
            "services[0].kv_link, services[0].pools[0].role, services[0].pools[1].role;",
            "1xl4:prefill,2xl4:decode --link 1GB" } },
        { PARTED,
          { "1xl4:decode,2xl4:prefill --link 3GB", "services[0].kv_link",
            "1xl4:decode,2xl4:prefill --link 3GB" } },
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a] } ]",
          { "1xl4:both,2xl4", "services[0].pools[0].role;", "3xl4 --link 1GB" } },
        { PARTED, { "3xl4", "taken: services[0].kv_link; left", "3xl4 --link 1GB" } },
        { "role: pd_serve, kv_link: 2GB, pools: [ { name: a, offers: [a] } ]",
          { "3xl4", "services[0].role, services[0].kv_link;", "3xl4 --role pd_serve --link 2GB" } },
        { "role: pd_serve, pools: [ { name: a, offers: [a] } ]",
          { "3xl4 --role colocated", "services[0].role, services[0].kv_link;",
            "3xl4 --role colocated --link 1GB" } },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        snprintf(text, sizeof text, "services:\n  - { name: s, model: none, %s }\n",
                 rows[i].service);
        rig_file(path, "roles.yaml", text);
        expect_as_flags(path, &rows[i].as, digest);
    }
    assert_int_equal(simulate(&out, "--trace " GENERATED REFERENCE "--config %s", path), 0);
    expect(&out, "services, services[0].role, services[0].kv_link");
}

/* The router's migrate row, which brings the link of the service with it. */
static void a_fleets_file_says_who_moves(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], digest[2][DIGEST];
    rig_file(path, "moves.yaml",
             "router: { migrate: llumnix }\n"
             "services: [ { name: s, model: none, pools: [ { name: a, offers: [a] } ] } ]\n");
    static const struct as_flags rows[] = {
        { "3xl4 --kv-tokens 9000", "taken: router.migrate, services[0].kv_link;",
          "3xl4 --kv-tokens 9000 --migrate llumnix --link 1GB" },
        { "3xl4 --kv-tokens 9000 --migrate none --link 25GB", "taken: router.migrate",
          "3xl4 --kv-tokens 9000" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        expect_as_flags(path, &rows[i], digest[i]);
    assert_string_not_equal(digest[0], digest[1]); /* somebody moves */
    assert_int_equal(simulate(&out, "--trace " GENERATED REFERENCE "--config %s", path), 0);
    expect(&out, "services, router.migrate, services[0].kv_link");
}

/* The service's power row and its limit; a flag is stronger, and leaves the file's limit to the file's
 * own row. */
static void a_file_names_the_power_row(void **state)
{
    (void)state;
    char path[RIG_PATH], digest[5][DIGEST];
    rig_file(path, "power.yaml",
             "local: { offers: [ { name: a, share: 1, price_per_hour: 1 } ] }\n"
             "services:\n"
             "  - name: s\n"
             "    model: none\n"
             "    power: polca\n"
             "    row_watts: 1\n"
             "    pools: [ { name: a, offers: [a], priority: low } ]\n");
    const char *taken = "taken: services[0].power, services[0].row_watts, "
                        "services[0].pools[0].priority;";
    const struct as_flags rows[] = {
        { "2xl4", taken, "2xl4:low --power polca --row-watts 1" },
        { "2xl4 --power mu_serve", taken, "2xl4 --power mu_serve" },
        { "2xl4 --row-watts 100000", taken, "2xl4:low --power polca --row-watts 100000" },
        { "2xl4 --row-watts 130", taken, "2xl4:low --power polca --row-watts 130" },
        { "2xl4:high --row-watts 130", taken, "2xl4 --power polca --row-watts 130" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expect_as_flags(path, &rows[i], digest[i]);
        if (i > 0) assert_string_not_equal(digest[i], digest[0]); /* a breaker of 1 W brakes */
    }
    assert_string_not_equal(digest[4], digest[3]);
}

/* As many pools, but not all of the file's service. */
static void pools_of_two_services_are_not_those_of_one(void **state)
{
    (void)state;
    char path[RIG_PATH], digest[DIGEST];
    rig_file(path, "pools.yaml",
             "local: { offers: [ { name: a, share: 1, price_per_hour: 1 } ] }\n"
             "services:\n"
             "  - name: s\n"
             "    model: none\n"
             "    power: polca\n"
             "    row_watts: 130\n"
             "    pools: [ { name: a, offers: [a], priority: low }, { name: b, offers: [a] } ]\n");
    const struct as_flags row = { "2xl4,1xl4:service1",
                                  "services, local, services[0].pools[0].priority",
                                  "2xl4,1xl4:service1 --power polca --row-watts 130" };
    expect_as_flags(path, &row, digest);
}

/* Scaling as the running controller would take it from the file; flags are stronger, also one that
 * says its own default. */
static void a_fleets_file_says_how_it_scales(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], digest[7][DIGEST];
    rig_file(path, "scaling.yaml",
             "services:\n"
             "  - { name: s, model: none, scale: ray_serve, ongoing_target: 4, margin: 2,\n"
             "      shaper: window, stabilisation: 5s, down_step: 0, slo_ttft: 3s,\n"
             "      pools: [ { name: a, offers: [a] } ] }\n"
             "local: { offers: [ { name: a, share: 1, price_per_hour: 1,\n"
             "                     launch_delay: 3s, lead: 2s } ] }\n");
    static const char *const more[] = {
        "", /* 0: the file alone */
        "--scale-policy ray_serve --shaper window --scale-margin 2 --lead-time 5s --slo-ttft 3s "
        "--slo-tpot 200ms", /* 1: as 0, in other words */
        "--scale-margin 1", /* 2 and on: each another fleet than 0 */
        "--lead-time 100s",
        "--slo-ttft 1s --slo-tpot 50ms --scale-policy work",
        "--shaper hpa",
        "--scale-policy static --scale-count 5",
    };
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        simulate_digest(digest[i], &out,
                        "--trace gen:poisson,rate=steps(1:30,6:60,1:40),prompt=600,output=100 "
                        "--fleet 1-9xl4 --config %s %s",
                        path, more[i]);
        if (i == 1) assert_string_equal(digest[1], digest[0]);
        if (i > 1) assert_string_not_equal(digest[i], digest[0]);
        const char *said = "taken: services[0].slo_ttft, services[0].scale, services[0].shaper, "
                           "services[0].margin, services[0].ongoing_target, "
                           "services[0].stabilisation, services[0].down_step, "
                           "lead of services[0].pools[0]; left";
        if (i == 0) expect(&out, said);
    }
    /* A fleet that stays has nothing of it. */
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 3xl4 --config %s", path), 0);
    expect(&out, "taken: nothing but defaults; left");
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 3xl4 --lead-time 100s"), 2);
    expect(&out, "--lead-time needs --scale-policy");
}

/* Each of the file's services scales by its own row, for its own promise, with its own lead. */
static void a_fleets_file_says_how_each_service_scales(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH];
    rig_file(path, "services.yaml",
             "services:\n"
             "  - { name: s, model: none, scale: work, slo_ttft: 2s, slo_tpot: 150ms,\n"
             "      pools: [ { name: a, offers: [a] } ] }\n"
             "  - { name: r, model: none, scale: static, count: 2, slo_ttft: 20s,\n"
             "      pools: [ { name: b, offers: [a] } ], engine: { order: sjf_work } }\n"
             "local: { offers: [ { name: a, share: 1, price_per_hour: 1,\n"
             "                     launch_delay: 3s, lead: 2s } ] }\n");
    const char *trace = "gen:poisson,rate=steps(1:60,8:90,1:90),services=2,prompt=600,output=100";
    assert_int_equal(simulate(&out, "--trace %s --fleet 1-9xl4,1-9xl4:service1 -o json --config %s",
                              trace, path),
                     0);
    static const char *const said[] = {
        "services[0].scale, lead of services[0].pools[0], services[1].slo_ttft, services[1].scale, "
        "services[1].count, lead of services[1].pools[0]; left",
        "services[1].engine.order", /* all engines of a run have the same rows */
        "\"slo\":{\"ttft_s\":null,\"tpot_s\":null,",
        "\"slo\":{\"ttft_s\":2,\"tpot_s\":0.15,",
        "\"slo\":{\"ttft_s\":20,",
        "\"max\":2}}],\"gpu_hours\"", /* the second's */
    };
    for (size_t i = 0; i < COUNT_OF(said); i++)
        expect(&out, said[i]);
    assert_int_equal(simulate(&out,
                              "--trace %s --fleet 1-9xl4,1xl4:service1,1xl4:service2 --config %s",
                              trace, path),
                     2);
    expect(&out, "--fleet has service2, of which ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_configuration_names_rows),
        cmocka_unit_test(a_fleets_file_says_its_roles),
        cmocka_unit_test(a_fleets_file_says_who_moves),
        cmocka_unit_test(a_fleets_file_says_how_it_scales),
        cmocka_unit_test(a_fleets_file_says_how_each_service_scales),
        cmocka_unit_test(a_fleets_file_is_taken_in_part_and_says_so),
        cmocka_unit_test(a_file_names_the_power_row),
        cmocka_unit_test(pools_of_two_services_are_not_those_of_one),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
