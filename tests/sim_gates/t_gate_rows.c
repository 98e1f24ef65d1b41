/* t_gate_rows.c - checks that choosing a policy changes something: on the workloads of its kind, every
 * policy's digest differs from every other's. */
#include "base/core/bits.h"
#include "policies/catalog.h"
#include "tests/sim_gates/gate.h"

#include <stdio.h>

#define ROWS_MAX 64

/* Conversations of unlike tenants over shared prefixes, somewhat more than one instance can serve. */
#define TALKS                                                                              \
    "--trace gen:poisson,rate=1,prompt=lognormal(300,1),output=lognormal(150,2.3),n=600,"  \
    "output_max=1000,tenants=6,heavy=4,turns=4,think=exponential(8),system=256,systems=3 " \
    "--slo-ttft 3s --slo-tpot 150ms "
#define TIDE                                                                      \
    "--trace gen:poisson,rate=steps(1:300,4:300,1:600),prompt=lognormal(1500,1)," \
    "output=lognormal(250,2.3) --slo-ttft 3s --slo-tpot 150ms "
#define FLASHES                                                                           \
    "--trace gen:poisson,rate=steps(2:200,12:300),prompt=100,output=4 --kv-tokens 40000 " \
    "--slo-tpot 300ms --lead-time 20s --scale-policy keda_queue "                         \
    "--fleet 1-20xmeasured:a=0.05:b=2e-3:c=0.001@1 "
#define RAMP                                                                            \
    "--trace gen:poisson,rate=steps(0.5:360,1:180,1.5:180,2:180,2.5:180,3:180,3.5:180," \
    "4:180,4.5:180,5:180,5.5:180,6:180),prompt=lognormal(1000,1),output=150 "           \
    "--slo-ttft 3s --slo-tpot 150ms --lead-time 30s --kv-tokens 40000 "                 \
    "--fleet 1-16xmeasured:a=0.03:b=4e-4:c=0.001@1 "
#define PARTS                                                                             \
    "--trace gen:poisson,rate=4,prompt=lognormal(1000,1),output=lognormal(200,1),n=3000 " \
    "--fleet 4xa100 --slo-ttft 2s "
#define TEXTS "--trace traces/text-5000.jsonl --requests 1500 --speed 8 "

struct workload {
    const char *kind;       /* the option, which may go on behind a "-" */
    const char *options[2]; /* two policies may be alike on one; NULL: there is only one */
    const char *rows;       /* policies; NULL: all of the kind */
};

static const struct workload workloads[] = {
    { "route",
      { TALKS "--fleet 3xl4+2xa10g --speed 3", TALKS "--fleet 3xl4 --speed 3 --slo-ttft 500ms" },
      NULL },
    { "predict", { TEXTS "--fleet 1xl4 --seqs-max 4 --order sjf_output" }, NULL },
    { "order",
      { TALKS "--fleet 1xl4 --seqs-max 16", TALKS "--fleet 1xl4 --seqs-max 16 --chunk scls" },
      NULL },
    { "fair", { TALKS "--fleet 1xl4 --seqs-max 16" }, NULL },
    { "admit", { TALKS "--fleet 1xl4 --kv-tokens 8000 --chunk budget" }, NULL },
    { "preempt",
      { TALKS "--fleet 1xl4 --kv-tokens 8000 --admit fit --order fcfs --swap-space 4GB",
        TALKS "--fleet 1xl4 --kv-tokens 8000 --admit fit --order srtf --swap-space 4GB" },
      NULL },
    { "chunk", { TALKS "--fleet 1xl4" }, NULL },
    { "evict", { TALKS "--fleet 1xl4 --kv-tokens 20000" }, NULL },
    { "perf", { TALKS "--fleet 2xl4" }, NULL },
    /* Polca needs a limit that the others refuse: t_gate_power judges it. */
    { "power", { TALKS "--fleet 2xa100" }, "max,mu_serve,dynamollm" },
    /* Spotserve migrates only requests of machines that leave. */
    { "migrate",
      { TALKS "--fleet 3xl4 --kv-tokens 12000 --route random", TIDE
        "--fleet 3-3xl4@1+3-3xl4:spot:zone1@0.4 --zone-up 2m --notice 3s --scale-policy static" },
      NULL },
    /* The planner splits the fleet where the TPOT is tight, and does not where it is loose. */
    { "role", { PARTS "--slo-tpot 100ms", PARTS "--slo-tpot 12ms" }, NULL },
    { "scale-policy",
      { TIDE "--fleet 1-24xl4@1 --lead-time 60s", TIDE "--fleet 1-24xl4@1 --kv-tokens 9000" },
      NULL },
    /* Where outputs take long, kpa halves the fleet faster than instances drain. */
    { "shaper",
      { TIDE "--fleet 1-24xl4@1 --lead-time 20s --scale-policy keda_queue", FLASHES },
      NULL },
    { "forecast", { RAMP "--scale-policy dynamo_throughput" }, NULL },
    { "place",
      { TIDE "--fleet 1-12xl4@1+0-24xl4:spot:zone1@0.4 --zone-up 5m --scale-policy wva_v2",
        TIDE "--fleet 0-24xl4:spot:zone1@0.4+1-12xl4@1 --zone-up 5m --scale-policy wva_v2" },
      "joint,order,on_demand,spot,serverlessllm" },
    { "preset", { TALKS "--fleet 1xl4 --kv-tokens 20000 --seqs-max 32" }, NULL },
};

/* Kinds that no simulation uses, and the test that judges their policies instead. */
static const struct {
    const char *kind, *why;
} not_simulated[] = {
    { "mix", "chosen before a fleet runs: `muster plan`; t_gate_mix simulates the fleets" },
    { "layers", "planner only: no engine runs stages; t_layers compares the layouts" },
    { "move", "planner only: no engine takes over weights; t_remap compares the moves" },
    { "draft", "needs the tokens of outputs, which simulated requests lack: t_draft, t_generate" },
    { "load", "planner only: no driver loads by machine; t_loads compares the starts" },
};

struct rows {
    struct str kind;
    struct buf list;
};

/* Lists the default first, because the others are compared with it. */
static int add_default(void *ctx, const struct policy_info *policy)
{
    struct rows *r = ctx;
    if (str_eq(str_from(policy->kind), r->kind) && policy->is_default)
        buf_text(&r->list, policy->name);
    return 0;
}

static int add_other(void *ctx, const struct policy_info *policy)
{
    struct rows *r = ctx;
    if (str_eq(str_from(policy->kind), r->kind) && !policy->is_default)
        buf_printf(&r->list, ",%s", policy->name);
    return 0;
}

static bool is_same(const struct sim_arm *a, const struct sim_arm *b)
{
    if (a->missing.text[0] || b->missing.text[0]) return false;
    return a->run->digest == b->run->digest;
}

/* Policies by their place in the list of their kind. */
struct alike {
    uint32_t count, place[ROWS_MAX]; /* those of the run */
    bool pair[ROWS_MAX][ROWS_MAX];   /* [later][earlier]: alike on every workload so far */
};

/* Runs a workload and keeps the pairs that are alike on it too. */
static void compare(const struct workload *w, const char *options, const char *list,
                    struct alike *alike)
{
    CLEANUP(buf_fini) struct buf line = { 0 };
    buf_printf(&line, "%s --compare %s=%s", options, w->kind, list);
    struct gate g = gate_run(line.data);
    assert_in_range(g.arms.count, 2, ROWS_MAX);
    assert_int_equal(g.arms.count, alike->count);
    for (uint32_t i = 0; i < g.arms.count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            bool *pair = &alike->pair[alike->place[i]][alike->place[k]];
            *pair = *pair && is_same(&g.arms.arm[i], &g.arms.arm[k]);
            if (*pair)
                printf("alike: %s and %s\n", g.arms.arm[i].name.data, g.arms.arm[k].name.data);
        }
    }
    gate_free(&g);
}

/* Leaves the policies of `list` that are like another, in order. Returns the pairs. */
static uint32_t keep_alike(const char *list, struct alike *alike, struct buf *ret)
{
    struct str names = str_from(list);
    uint32_t pairs = 0, all = alike->count;
    alike->count = 0;
    for (uint32_t i = 0; i < all; i++) {
        struct str name = str_cut(&names, ',');
        uint32_t before = 0, after = 0;
        for (uint32_t k = 0; k < all; k++) {
            before += alike->pair[i][k];
            after += alike->pair[k][i];
        }
        pairs += before;
        if (before + after == 0) continue;
        buf_printf(ret, "%s%.*s", alike->count > 0 ? "," : "", (int)name.len, name.data);
        alike->place[alike->count++] = i;
    }
    return pairs;
}

/* Returns how many pairs of the policies in `list` are alike on every workload. The second workload runs only
 * what the first leaves alike. */
static uint32_t check(const struct workload *w, const char *list)
{
    static struct alike alike;
    CLEANUP(buf_fini) struct buf left = { 0 }, still = { 0 };
    alike = (struct alike){ 0 };
    for (struct str names = str_from(list); names.len > 0; alike.count++) {
        assert_true(alike.count < ROWS_MAX);
        str_cut(&names, ',');
        alike.place[alike.count] = alike.count;
        for (uint32_t k = 0; k < alike.count; k++)
            alike.pair[alike.count][k] = true;
    }
    uint32_t all = alike.count;
    compare(w, w->options[0], list, &alike);
    uint32_t pairs = keep_alike(list, &alike, &left);
    if (pairs == 0 || !w->options[1]) return pairs;
    compare(w, w->options[1], left.data, &alike);
    alike.count = all;
    return keep_alike(list, &alike, &still);
}

static uint32_t check_kind(const struct workload *w)
{
    struct str option = str_from(w->kind);
    struct rows r = { .kind = str_cut(&option, '-') };
    if (w->rows) buf_text(&r.list, w->rows);
    if (!w->rows) policies_each(add_default, &r);
    if (!w->rows) policies_each(add_other, &r);
    uint32_t pairs = check(w, r.list.data);
    buf_fini(&r.list);
    return pairs;
}

static void every_policy_changes_something(void **state)
{
    (void)state;
    uint32_t same = 0;
    for (size_t i = 0; i < COUNT_OF(workloads); i++)
        same += check_kind(&workloads[i]);
    assert_int_equal(same, 0);
}

/* Every kind has a workload, or a reason why it has none, so that no new kind is forgotten. */
static void every_kind_is_looked_at(void **state)
{
    (void)state;
    for (uint32_t k = 0; policy_kinds[k]; k++) {
        uint32_t times = 0;
        for (size_t i = 0; i < COUNT_OF(workloads); i++) {
            struct str option = str_from(workloads[i].kind);
            times += str_eq(str_cut(&option, '-'), str_from(policy_kinds[k]));
        }
        for (size_t i = 0; i < COUNT_OF(not_simulated); i++) {
            if (!str_eq(str_from(not_simulated[i].kind), str_from(policy_kinds[k]))) continue;
            printf("%s: %s\n", policy_kinds[k], not_simulated[i].why);
            times++;
        }
        if (times != 1) fail_msg("kind %s: %u workloads or reasons", policy_kinds[k], times);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_kind_is_looked_at),
                                        cmocka_unit_test(every_policy_changes_something) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
