/* t_simulate_config.c - runs `muster simulate` with configuration files, and with options that it refuses. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/cli/simulate_rig.h"

#include <stdio.h>
#include <string.h>

/* Settings of the file have the effect of the flags of the same meaning, and flags win. */

static void expect(const struct buf *out, const char *says)
{
    if (!strstr(out->data, says)) fail_msg("no '%s' in %.600s", says, out->data);
}

/* A fleet and flags to combine with the file; the settings that the output says are taken from the file; and
 * the same fleet by flags alone. */
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
    assert_string_equal(digest[0], digest[1]); /* limits that the file lacks are not taken */
}

/* Policies and limits of a whole fleet's file have the effect of their flags; the output names the rest. */
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
    assert_string_not_equal(digest[0], digest[2]); /* the service's policy wins */
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

/* The roles of the only service have effect: its role policy, its link, its pools' roles in the fleet's
 * order; flags win. */
#define SPLIT                                            \
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
        { SPLIT,
          { "1xl4,2xl4",
            "services[0].kv_link, services[0].pools[0].role, services[0].pools[1].role;",
            "1xl4:prefill,2xl4:decode --link 1GB" } },
        { SPLIT,
          { "1xl4:decode,2xl4:prefill --link 3GB", "services[0].kv_link",
            "1xl4:decode,2xl4:prefill --link 3GB" } },
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a] } ]",
          { "1xl4:both,2xl4", "services[0].pools[0].role;", "3xl4 --link 1GB" } },
        { SPLIT, { "3xl4", "taken: services[0].kv_link; left", "3xl4 --link 1GB" } },
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

/* The router's migrate policy has effect, and brings the link of the service with it. */
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
    assert_string_not_equal(digest[0], digest[1]); /* requests migrate */
    assert_int_equal(simulate(&out, "--trace " GENERATED REFERENCE "--config %s", path), 0);
    expect(&out, "services, router.migrate, services[0].kv_link");
}

/* The service's power policy and its limit have effect; a flag wins, and the file's limit belongs to the
 * file's own policy. */
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
             "    power_limit_watts: 1\n"
             "    pools: [ { name: a, offers: [a], priority: low } ]\n");
    const char *taken = "taken: services[0].power, services[0].power_limit_watts, "
                        "services[0].pools[0].priority;";
    const struct as_flags rows[] = {
        { "2xl4", taken, "2xl4:low --power polca --power-limit-watts 1" },
        { "2xl4 --power mu_serve", taken, "2xl4 --power mu_serve" },
        { "2xl4 --power-limit-watts 100000", taken,
          "2xl4:low --power polca --power-limit-watts 100000" },
        { "2xl4 --power-limit-watts 130", taken, "2xl4:low --power polca --power-limit-watts 130" },
        { "2xl4:high --power-limit-watts 130", taken,
          "2xl4 --power polca --power-limit-watts 130" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expect_as_flags(path, &rows[i], digest[i]);
        if (i > 0) assert_string_not_equal(digest[i], digest[0]); /* a limit of 1 W brakes */
    }
    assert_string_not_equal(digest[4], digest[3]);
}

/* The fleet has as many pools as the file's service, but not all of them belong to that service. */
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
             "    power_limit_watts: 130\n"
             "    pools: [ { name: a, offers: [a], priority: low }, { name: b, offers: [a] } ]\n");
    const struct as_flags row = { "2xl4,1xl4:service1",
                                  "services, local, services[0].pools[0].priority",
                                  "2xl4,1xl4:service1 --power polca --power-limit-watts 130" };
    expect_as_flags(path, &row, digest);
}

/* Scaling is taken from the file as the running controller would take it; flags win, also one that
 * gives the default. */
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
        "--slo-tpot 200ms", /* 1: equal to 0, by flags */
        "--scale-margin 1", /* from 2 on: each differs from 0 */
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
    /* A fleet of fixed size takes none of these settings. */
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 3xl4 --config %s", path), 0);
    expect(&out, "taken: nothing but defaults; left");
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 3xl4 --lead-time 100s"), 2);
    expect(&out, "--lead-time needs --scale-policy");
}

/* Each of the file's services scales by its own policy, for its own SLO, with its own lead. */
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
        "services[1].engine.order", /* all engines of a run have the same policies */
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

/* Refused options, with their exit codes and parts of the sentences. */

#define IDLE " --fleet 1-4xl4 --scale-policy keda_queue "

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "", 2, "--trace is missing" },
        { "--trace gen:posson", 2, "arrivals are poisson, constant or gamma" },
        { "--trace no-such-file", 1, "no-such-file" },
        { "--trace CMakeLists.txt", 1, "CMakeLists.txt: line 1: not a trace" },
        { "--trace " GENERATED " --route roundrobin", 2, "did you mean 'round_robin'?" },
        { "--trace " GENERATED " --order fcsf", 2, "did you mean 'fcfs'?" },
        { "--trace " GENERATED " --chunk zzz", 2, "see `muster policies chunk`" },
        { "--trace " GENERATED " --fleet 2xh10", 2, "no hardware 'h10', did you mean 'h100'?" },
        { "--trace " GENERATED " --fleet h100", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 2xh100:pp2", 2,
          "':pp2' is not tp1 to tp64, prefill, decode, high, low, spot" },
        { "--trace " GENERATED " --fleet 2xh100@x", 2, "'@x' is neither dollars" },
        { "--trace " GENERATED " --fleet 0xh100", 1, "at least one instance" },
        { "--trace " GENERATED " --model lama-3-8b", 2, "did you mean 'llama-3-8b'?" },
        { "--trace " GENERATED " --compare rout=a", 2, "did you mean --route?" },
        { "--trace " GENERATED " --compare route=round_robin,zzz", 2, "no policy 'zzz'" },
        { "--trace " GENERATED " --compare a", 2, "is not OPTION=A,B,C" },
        { "--trace " GENERATED " --compare seed=1,2", 2, "--seed is not compared" },
        { "--trace " GENERATED " --preset x", 2, "no policy 'x'; see `muster policies preset`" },
        { "--trace " GENERATED " --fleet 1-4xl4", 2, "--fleet 1-4xl4 needs --scale-policy" },
        { "--trace " GENERATED " --fleet 4-1xl4", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 2-1-4xl4", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 1-2-4xl4", 2, "--fleet 1-2-4xl4 needs --scale-policy" },
        { "--trace " GENERATED " --shaper hpa", 2, "--shaper needs --scale-policy" },
        { "--trace " GENERATED " --life 20s", 2, "--life needs --scale-policy" },
        { "--trace " GENERATED " --launch-failures 0.5", 2,
          "--launch-failures needs --scale-policy" },
        { "--trace " GENERATED " --power polca", 2, "--power polca needs --power-limit-watts" },
        { "--trace " GENERATED " --power-limit-watts 900", 2,
          "--power-limit-watts needs --power polca" },
        { "--trace " GENERATED " --fleet 2xl4:prefill", 1, "serves nobody" },
        { "--trace " GENERATED " --forecast holt", 2, "--forecast needs --scale-policy" },
        { "--trace " GENERATED " --scale-policy werk", 2, "did you mean 'work'?" },
        { "--trace " GENERATED " --scale-policy work --place melange", 2, "melange" },
        { "--trace " GENERATED " --routers 99", 2, "--routers" },
        { "--trace " GENERATED " --scale-policy nosuch", 2, "--scale-policy: no policy 'nosuch'" },
        { "--trace " GENERATED " --scale-policy clairvoyent", 2, "did you mean 'clairvoyant'?" },
        { "--trace " GENERATED " --fleet 4xzzz", 2, "there are t4, a10g, l4, " },
        { "--trace " GENERATED " --fleet 1xmeasure:a=1", 2, "did you mean 'measured'?" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=1e300 --kv-tokens 9999", 2,
          "':a=1e300' is out of range 0..1000 seconds" },
        { "--trace " GENERATED " --fleet 1xa100@1e308", 2, "out of range 0..1e+06 dollars" },
        { "--trace " GENERATED " --fleet 1xa100,", 2, "a kind of instances is missing" },
        { "--trace " GENERATED " --fleet 1xa100:", 2, "':' is not tp1 to tp64" },
        { "--trace " GENERATED " --fleet 1xa100:tp2:tp4", 2, "':tp4' says again" },
        { "--trace " GENERATED " --fleet 1xa100:prefill:decode", 2, "':decode' says again" },
        { "--trace " GENERATED " --fleet 1xa100:low:high", 2, "':high' says again" },
        { "--trace " GENERATED " --fleet 1xa100:low", 2, "':low' needs --power polca" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=0.1:a=0.2", 2, "':a=0.2' says again" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=0.1:b=0.2", 1, "need --kv-tokens" },
        { "--trace " GENERATED " --fleet 1xa100:tp3", 1, "tp must divide its heads" },
        { "--trace " GENERATED " --fleet 1xl4:service1", 1, "ends in :service0" },
        { "--trace " GENERATED IDLE "--scale-count 3", 2,
          "--scale-count has nothing to do here: it is for the scaling policy static" },
        { "--trace " GENERATED IDLE "--forecast holt", 2, "dynamo_throughput and sageserve" },
        { "--trace " GENERATED IDLE "--budget 4", 2, "it is for pools with a price" },
        { "--trace " GENERATED IDLE "--zone-up 1h", 2, "--zone-up has nothing to do here: it is" },
        { "--trace " GENERATED IDLE "--zone-down 1h", 2, "it is for spot pools, as 1-24xl4:spot" },
        { "--trace " GENERATED IDLE "--notice 1h", 2, "--notice has nothing to do here" },
        { "--trace " GENERATED " --fleet 1-4xl4 --scale-policy clairvoyant --shaper hpa", 2,
          "clairvoyant knows" },
        { "--trace " GENERATED IDLE "--compare scale-count=1,2", 2, "--scale-count has nothing" },
        { "--trace " GENERATED " --compare =a,b", 2, "'=a' is not OPTION=A,B,C" },
        { "--trace " GENERATED " --compare speed=1,-2", 2, "--speed: -2 is below" },
        { "--trace " GENERATED " --fleet=", 2, "--fleet is empty" },
        { "--trace " GENERATED " --order=", 2, "--order is empty" },
        { "--trace " GENERATED " --scale-policy=", 2, "--scale-policy is empty" },
        { "--trace " GENERATED " --compare route=", 2, "--route is empty" },
        { "--trace " GENERATED " --compare=", 2, "--compare is empty" },
        { "--trace " GENERATED " --compare order=fcfs --compare order=mlfq", 2,
          "order is given twice" },
        { "--trace " GENERATED " --model another", 2, "there are llama-2-13b, " },
        { "--trace " GENERATED " --model ./another", 1, "--model: cannot open ./another: No such" },
        { "--trace gen:poisson,rate=1e-7,n=5,prompt=5,output=5", 2, "take 579 days" },
    };
    rig_expect("simulate", rows, COUNT_OF(rows));
}

static void the_reference_refuses_what_decides_of_engines(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "--trace " GENERATED REFERENCE "--order mlfq", 2,
          "ref8000 computes one prompt after another: --order has nothing to decide there" },
        { "--trace " GENERATED REFERENCE "--preset vllm", 2, "--preset has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--fair vtc", 2, "--fair has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--admit fit", 2, "--admit has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--preempt newest --chunk deadline", 2, "--chunk has" },
        { "--trace " GENERATED REFERENCE "--preempt most_remaining", 2, "--preempt has nothing" },
        { "--trace " GENERATED REFERENCE "--evict gdsf_cost", 2, "--evict has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--perf linear", 2,
          "--perf has nothing to predict_length" },
        { "--trace " GENERATED REFERENCE "--power mu_serve", 2, "--power has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--migrate llumnix", 2, "--migrate has nothing to move" },
        { "--trace " GENERATED REFERENCE "--swap-space 4GB", 2,
          "--swap-space has nothing to hold" },
        { "--trace " GENERATED REFERENCE "--kv-tokens 4000", 2,
          "--kv-tokens has nothing to limit" },
        { "--trace " GENERATED REFERENCE "--link 1GB", 2, "--link has nothing to copy" },
        { "--trace " GENERATED REFERENCE "--bias 0.1", 2, "--bias has nothing to change" },
        { "--trace " GENERATED REFERENCE "--compare residual=0,0.1", 2, "--residual has nothing" },
        { "--trace " GENERATED " --fleet 2xref8000:tp2", 2, "takes no tpN, no role and no model" },
        { "--trace " GENERATED " --fleet 2xref8000:decode", 2, "no role" },
        { "--trace " GENERATED " --fleet 2xref8000:llama-3-8b", 2, "no model" },
    };
    rig_expect("simulate", rows, COUNT_OF(rows));
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
        cmocka_unit_test(mistakes_are_explained),
        cmocka_unit_test(the_reference_refuses_what_decides_of_engines),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
