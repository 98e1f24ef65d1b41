/* t_simulate.c - runs `muster simulate` as people call it: its JSON, its arms, its help, and the effect of
 * its options. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "tests/proc/cli/simulate_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gets the members and brackets of a JSON text, without its values. */
static void skeleton(struct str text, struct buf *out)
{
    struct json_reader r;
    json_reader_init(&r, text);
    while (json_next(&r) != JSON_END) {
        assert_true(r.token != JSON_ERROR);
        if (r.token == JSON_KEY) buf_printf(out, STR_FMT " ", STR_ARG(r.raw));
        if (r.token == JSON_OBJECT) buf_text(out, "{ ");
        if (r.token == JSON_OBJECT_END) buf_text(out, "} ");
    }
}

static void the_json_form_is_as_promised(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf shape = { 0 };
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 2xa100 -o json"), 0);
    skeleton(buf_view(&out), &shape);
    assert_string_equal(
        shape.data,
        "{ requests { offered completed rejected rejected_429 rejected_503 unfinished too_long "
        "failed } "
        "ttft_s { mean p50 p90 p99 } tpot_s { mean p50 p90 p99 } itl_s { mean p50 p90 p99 } "
        "jct_s { mean p50 p90 p99 } slo { ttft_s tpot_s attainment } goodput_rps token_hit_ratio "
        "hotspot preemptions swaps handoffs migrations migrations_dropped resumed resumed_tokens "
        "fetches fetched_tokens "
        "link_gb stall_s instances { mean max floor_mean } "
        "services { service offered completed slo { ttft_s tpot_s attainment } "
        "instances { mean max } } "
        "gpu_hours cost_usd energy_kwh "
        "scale_actions launches launches_failed lost launch_s { provision image weights warm_up } "
        "role_changes role { reason goodput_rps runner_up_rps } breaker_trips extrapolated sim { "
        "events steps cpu_s "
        "requests_per_core_minute "
        "steps_per_core_second seed digest } } ");
}

static void equal_words_give_equal_digests(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const fleets[] = {
        "2xa100+1xl4 --seed 5",
        "2xa100,1xl4 --seed 5",
        "2xa100,1xl4 --seed 5 --exact",
        "2xa100,1xl4 --seed 6",
        "2xa100,1xl4 --seed 5 --route round_robin",
        "2xa100,1xl4 --seed 5 --speed 2",
    };
    char digest[6][DIGEST];
    for (size_t i = 0; i < 6; i++)
        simulate_digest(digest[i], &out, "--trace " GENERATED " --fleet %s", fleets[i]);
    assert_string_equal(digest[0], digest[1]);
    assert_string_equal(digest[0], digest[2]); /* skipping ahead changes nothing */
    for (size_t i = 3; i < 6; i++)
        assert_string_not_equal(digest[0], digest[i]);
}

static void arms_are_every_combination_and_jobs_change_nothing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf again = { 0 };
    static const char line[] =
        "--trace " GENERATED " --fleet 3xl4 -o json --seeds 2 "
        "--compare route=shortest_ttft,round_robin --compare order=fcfs,response_ratio --jobs ";
    char one[8][DIGEST], many[8][DIGEST];
    assert_int_equal(simulate(&out, "%s1", line), 0);
    assert_int_equal(simulate(&again, "%s4", line), 0);
    digests(&out, one, 8);
    digests(&again, many, 8);
    assert_memory_equal(one, many, sizeof one);
    static const char *const names[] = { "\"name\":\"route=shortest_ttft order=fcfs\"",
                                         "\"name\":\"route=round_robin order=fcfs\"",
                                         "\"name\":\"route=shortest_ttft order=response_ratio\"",
                                         "\"name\":\"route=round_robin order=response_ratio\"" };
    const char *at = out.data;
    for (size_t i = 0; i < 4; i++) {
        at = strstr(at, names[i]);
        assert_non_null(at);
    }
    /* The first arm has the digest of the same settings without --compare. */
    char plain[DIGEST];
    simulate_digest(plain, &out,
                    "--trace " GENERATED " --fleet 3xl4 --order fcfs --route shortest_ttft");
    assert_string_equal(plain, one[0]);

    assert_int_equal(
        simulate(&out, "--trace " GENERATED " --fleet 3xl4 --seeds 3 --compare routers=1,2"), 0);
    assert_non_null(strstr(out.data, "routers=2"));
    assert_null(strstr(out.data, "not applicable"));
    assert_non_null(strstr(out.data, "against the first"));
    assert_non_null(strstr(out.data, "3 seeds; \u00b1 is Student's 95 % interval"));
}

/* One arm's predictor reads text and the trace has none: that arm says so, and the others run. */
static void arms_without_their_input_say_so(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char line[] = "--trace " GENERATED " --fleet 1xl4 --order response_ratio";
    char digest[2][DIGEST];
    assert_int_equal(simulate(&out, "%s --compare predict=key_table,ngram,oracle -o json", line),
                     0);
    digests(&out, digest, 2);
    assert_string_not_equal(digest[0], digest[1]);
    assert_non_null(strstr(out.data, "\"name\":\"predict=ngram\",\"not_applicable\":\""));
    assert_int_equal(simulate(&out, "%s --predict ngram", line), 1);
    assert_non_null(strstr(out.data, "not applicable: the trace has no text"));
}

static void help_and_table_are_for_people(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(simulate(&out, "--help"), 0);
    assert_non_null(strstr(out.data, "lognormal(MEAN,C2)"));
    assert_non_null(strstr(out.data, "heavy"));
    assert_non_null(strstr(out.data, "a100-80 or a100, h100"));
    assert_non_null(strstr(out.data, "kv_heads"));
    assert_non_null(strstr(out.data, "llama-3-8b"));
    /* MI300X's constants come from no measured table, and the output says so; the cost is known. */
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 1xmi300x@2.5"), 0);
    assert_non_null(strstr(out.data, "extrapolated: "));
    assert_non_null(strstr(out.data, "GPU-hours, $"));
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 1xa100@list"), 0);
    assert_non_null(strstr(out.data, "GPU-hours, $"));
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 1xa100"), 0);
    assert_null(strstr(out.data, "$"));
}

/* No line of a command's help is wider than 100 characters. */
static void help_has_lines_that_fit(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const rows[][2] = {
        { "simulate", "--help" },    { "policies", "--help" },  { "perf", "--help" },
        { "predict", "--help" },     { "replay", "--help" },    { "plan", "--help" },
        { "plan", "layers --help" }, { "plan", "move --help" }, { "plan", "load --help" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(rig_muster(rows[i][0], rows[i][1], &out), 0);
        struct str rest = buf_view(&out);
        while (rest.len > 0) {
            struct str line = str_cut(&rest, '\n');
            if (line.len > 100) fail_msg("%s: " STR_FMT, rows[i][0], STR_ARG(line));
        }
    }
}

/* Every option of a fleet that scales has an effect. */
static void fleets_follow_their_demand(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const rows[] = {
        "--scale-policy slo_aware",
        "--scale-policy keda_queue",
        "--scale-policy clairvoyant",
        "--scale-policy slo_aware --shaper hpa",
        "--scale-policy slo_aware --scale-margin 2",
        "--scale-policy slo_aware --lead-time 10s",
        "--scale-policy slo_aware --lead-spread 0.5",
        "--scale-policy slo_aware --budget 4",
        "--scale-policy slo_aware --life 2m",
        "--scale-policy slo_aware --launch-failures 0.5",
        "--scale-policy static --scale-count 3",
    };
    enum { COUNT = sizeof rows / sizeof rows[0] };
    char digest[COUNT][DIGEST];
    for (size_t i = 0; i < COUNT; i++) {
        simulate_digest(digest[i], &out,
                        "--trace gen:poisson,rate=steps(1:60,4:120,1:300),prompt=1500,output=100 "
                        "--fleet 1-30xl4@1 --lead-time 30s --slo-tpot 150ms %s",
                        rows[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(digest[i], digest[k]) == 0) fail_msg("%s is as %s", rows[i], rows[k]);
    }
    /* An option that only one arm uses is no mistake. */
    assert_int_equal(simulate(&out, "--trace " GENERATED " --fleet 1-4xl4 --scale-count 3 "
                                    "--compare scale-policy=keda_queue,static -o json"),
                     0);
    /* Both requests give up a minute after their arrival, while the first instance starts: its start is
     * paid. */
    assert_int_equal(simulate(&out, "--trace gen:constant,rate=1,n=2,prompt=9,output=9 "
                                    "--fleet 0-4xl4@60 --lead-time 300s --scale-policy work "
                                    "-o json"),
                     0);
    assert_non_null(strstr(out.data, "\"rejected\":2"));
    assert_non_null(strstr(out.data, "\"launches\":1"));
    assert_true(fabs(strtod(strstr(out.data, "\"cost_usd\":") + 11, NULL) - 1) < 0.05);
}

/* Steps that take a quarter of an hour for each token end after the drain: the requests count as
 * unfinished, not as completed at once. */
static void absurdly_slow_machines_answer_nothing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(
        simulate(&out, "--trace gen:constant,rate=1,n=5,prompt=30000,output=5 -o json --fleet "
                       "1xmeasured:a=1000:b=1000:c=1000:d=1000:e=1000 --kv-tokens 100000"),
        0);
    assert_non_null(strstr(out.data, "\"completed\":0,\"rejected\":0"));
    assert_non_null(strstr(out.data, "\"unfinished\":5"));
}

/* The type of a model's weights has an effect: half the bytes, more room for KV and faster steps. */
static void a_file_says_a_models_shape(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const types[] = { "bf16", "fp8" };
    char path[RIG_PATH], text[256], digest[3][DIGEST];
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "name: own\nlayers: 32\nhidden: 4096\nheads: 32\nkv_heads: 8\nffn: 14336\n"
                 "vocab: 128256\ndtype: %s\n",
                 types[i]);
        rig_file(path, "own.spec", text);
        simulate_digest(digest[i], &out, "--trace " GENERATED " --fleet 3xl4 --model %s", path);
    }
    simulate_digest(digest[2], &out, "--trace " GENERATED " --fleet 3xl4");
    assert_string_equal(digest[0], digest[2]); /* llama-3-8b has these numbers */
    assert_string_not_equal(digest[0], digest[1]);
}

static void the_reference_may_be_told_what_it_is(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char digest[3][DIGEST];
    static const char *const flags[] = {
        "",
        "--preset ref",
        "--fair none --order fcfs --admit all --evict lru --preempt newest --chunk whole "
        "--power max --migrate none --bias 0 --residual 0",
    };
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        simulate_digest(digest[i], &out, "--trace " GENERATED REFERENCE "%s", flags[i]);
        assert_string_equal(digest[i], digest[0]);
    }
}

static void the_link_is_felt_where_k_and_v_are_copied(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char plain[DIGEST], slow[DIGEST];
    simulate_digest(plain, &out, "--trace " GENERATED " --fleet 1xl4:prefill,2xl4:decode");
    simulate_digest(slow, &out,
                    "--trace " GENERATED " --fleet 1xl4:prefill,2xl4:decode --link 1GB");
    assert_string_not_equal(plain, slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_json_form_is_as_promised),
        cmocka_unit_test(equal_words_give_equal_digests),
        cmocka_unit_test(arms_are_every_combination_and_jobs_change_nothing),
        cmocka_unit_test(arms_without_their_input_say_so),
        cmocka_unit_test(help_and_table_are_for_people),
        cmocka_unit_test(help_has_lines_that_fit),
        cmocka_unit_test(fleets_follow_their_demand),
        cmocka_unit_test(absurdly_slow_machines_answer_nothing),
        cmocka_unit_test(a_file_says_a_models_shape),
        cmocka_unit_test(the_reference_may_be_told_what_it_is),
        cmocka_unit_test(the_link_is_felt_where_k_and_v_are_copied),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
