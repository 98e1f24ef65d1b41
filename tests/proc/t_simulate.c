/* t_simulate.c - the command as people call it: its JSON, its arms, its help, its files. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig.h"
#include "tests/proc/simulated.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs `muster simulate` with the words of `line`; its exit code, and all that it printed. */
static int simulate(const char *line, struct buf *out)
{
    return rig_muster("simulate", line, out);
}

/* The members and brackets of a JSON text, without its values. */
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
    assert_int_equal(simulate("--trace " GENERATED " --fleet 2xa100 -o json", &out), 0);
    skeleton(buf_view(&out), &shape);
    assert_string_equal(
        shape.data,
        "{ requests { offered completed rejected unfinished too_long failed } "
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

/* Everything behind "digest": of the JSON form, `count` times. */
static void digests(const struct buf *out, char (*ret)[17], uint32_t count)
{
    const char *at = out->data;
    for (uint32_t i = 0; i < count; i++) {
        at = strstr(at, "\"digest\":\"");
        assert_non_null(at);
        at += strlen("\"digest\":\"");
        snprintf(ret[i], sizeof ret[i], "%.16s", at);
    }
    assert_null(strstr(at, "\"digest\""));
}

static void equal_words_give_equal_digests(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const lines[] = {
        "--trace " GENERATED " --fleet 2xa100+1xl4 -o json --seed 5",
        "--trace " GENERATED " --fleet 2xa100,1xl4 -o json --seed 5",
        "--trace " GENERATED " --fleet 2xa100,1xl4 -o json --seed 5 --exact",
        "--trace " GENERATED " --fleet 2xa100,1xl4 -o json --seed 6",
        "--trace " GENERATED " --fleet 2xa100,1xl4 -o json --seed 5 --route round_robin",
        "--trace " GENERATED " --fleet 2xa100,1xl4 -o json --seed 5 --speed 2",
    };
    char digest[6][17];
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(simulate(lines[i], &out), 0);
        digests(&out, &digest[i], 1);
    }
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
    char words[1024];
    char one[8][17], many[8][17];
    snprintf(words, sizeof words, "%s1", line);
    assert_int_equal(simulate(words, &out), 0);
    snprintf(words, sizeof words, "%s4", line);
    assert_int_equal(simulate(words, &again), 0);
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
    /* The arm that is the plain command line has the plain command line's digest. */
    assert_int_equal(simulate("--trace " GENERATED " --fleet 3xl4 -o json --order fcfs "
                              "--route shortest_ttft",
                              &out),
                     0);
    char plain[17];
    digests(&out, &plain, 1);
    assert_string_equal(plain, one[0]);

    snprintf(words, sizeof words, "--trace %s --fleet 3xl4 --seeds 3 --compare routers=1,2",
             GENERATED);
    assert_int_equal(simulate(words, &out), 0);
    assert_non_null(strstr(out.data, "routers=2"));
    assert_null(strstr(out.data, "not applicable"));
    assert_non_null(strstr(out.data, "against the first"));
    assert_non_null(strstr(out.data, "3 seeds; \u00b1 is Student's 95 % interval"));
}

/* One arm's predictor reads text and the trace has none: said of that arm, the others are run. */
static void arms_without_their_input_say_so(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char line[] = "--trace " GENERATED " --fleet 1xl4 --order response_ratio";
    char words[1024], digest[2][17];
    snprintf(words, sizeof words, "%s --compare predict=key_table,ngram,oracle -o json", line);
    assert_int_equal(simulate(words, &out), 0);
    digests(&out, digest, 2);
    assert_string_not_equal(digest[0], digest[1]);
    assert_non_null(strstr(out.data, "\"name\":\"predict=ngram\",\"not_applicable\":\""));
    snprintf(words, sizeof words, "%s --predict ngram", line);
    assert_int_equal(simulate(words, &out), 1);
    assert_non_null(strstr(out.data, "not applicable: the trace has no text"));
}

static void help_and_table_are_for_people(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(simulate("--help", &out), 0);
    assert_non_null(strstr(out.data, "lognormal(MEAN,C2)"));
    assert_non_null(strstr(out.data, "heavy"));
    assert_non_null(strstr(out.data, "a100-80 or a100, h100"));
    assert_non_null(strstr(out.data, "kv_heads"));
    assert_non_null(strstr(out.data, "llama-3-8b"));
    /* MI300X's constants are of no measured table; the cost is said, being known. */
    assert_int_equal(simulate("--trace " GENERATED " --fleet 1xmi300x@2.5", &out), 0);
    assert_non_null(strstr(out.data, "extrapolated: "));
    assert_non_null(strstr(out.data, "GPU-hours, $"));
    assert_int_equal(simulate("--trace " GENERATED " --fleet 1xa100@list", &out), 0);
    assert_non_null(strstr(out.data, "GPU-hours, $"));
    assert_int_equal(simulate("--trace " GENERATED " --fleet 1xa100", &out), 0);
    assert_null(strstr(out.data, "$"));
}

/* No line of a help is wider than its options' are. */
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

/* Every option of a fleet that scales is felt. */
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
    char digest[COUNT][17], words[1024];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(words, sizeof words,
                 "--trace gen:poisson,rate=steps(1:60,4:120,1:300),prompt=1500,output=100 "
                 "--fleet 1-30xl4@1 --lead-time 30s --slo-tpot 150ms -o json %s",
                 rows[i]);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[i], 1);
        for (size_t k = 0; k < i; k++)
            if (strcmp(digest[i], digest[k]) == 0) fail_msg("%s is as %s", rows[i], rows[k]);
    }
    /* What one arm has a use for is no mistake of the others. */
    assert_int_equal(simulate("--trace " GENERATED " --fleet 1-4xl4 --scale-count 3 "
                              "--compare scale-policy=keda_queue,static -o json",
                              &out),
                     0);
    /* Both requests give up a minute after they came, while the first instance starts: that is paid. */
    const char *vain = "--trace gen:constant,rate=1,n=2,prompt=9,output=9 --fleet 0-4xl4@60 "
                       "--lead-time 300s --scale-policy work -o json";
    assert_int_equal(simulate(vain, &out), 0);
    assert_non_null(strstr(out.data, "\"rejected\":2"));
    assert_non_null(strstr(out.data, "\"launches\":1"));
    assert_true(fabs(strtod(strstr(out.data, "\"cost_usd\":") + 11, NULL) - 1) < 0.05);
}

/* A step of a quarter of an hour a token ends behind the drain: unfinished, not instantaneous. */
static void absurdly_slow_machines_answer_nothing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(
        simulate("--trace gen:constant,rate=1,n=5,prompt=30000,output=5 -o json --fleet "
                 "1xmeasured:a=1000:b=1000:c=1000:d=1000:e=1000 --kv-tokens 100000",
                 &out),
        0);
    assert_non_null(strstr(out.data, "\"completed\":0,\"rejected\":0,\"unfinished\":5"));
}

/* The type of a model's weights is felt: half the bytes, more room for KV and faster answers. */
static void a_file_says_a_models_shape(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static const char *const types[] = { "bf16", "fp8" };
    char path[512], words[1024], text[256], digest[3][17];
    snprintf(path, sizeof path, "%s/own.spec", rig_folder());
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "name: own\nlayers: 32\nhidden: 4096\nheads: 32\nkv_heads: 8\nffn: 14336\n"
                 "vocab: 128256\ndtype: %s\n",
                 types[i]);
        assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
        snprintf(words, sizeof words, "--trace %s --fleet 3xl4 -o json --model %s", GENERATED,
                 path);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[i], 1);
    }
    assert_int_equal(simulate("--trace " GENERATED " --fleet 3xl4 -o json", &out), 0);
    digests(&out, &digest[2], 1);
    assert_string_equal(digest[0], digest[2]); /* llama-3-8b is of these numbers */
    assert_string_not_equal(digest[0], digest[1]);
}

static void a_file_of_configuration_names_rows(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024], digest[3][17];
    snprintf(path, sizeof path, "%s/muster.yaml", rig_folder());
    struct str text = STR("router:\n  route: round_robin\n");
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
    static const char *const more[] = { "", "--route round_robin", "--route shortest_ttft" };
    for (size_t i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "--trace %s --fleet 3xl4 -o json --config %s %s", GENERATED,
                 path, more[i]);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[i], 1);
    }
    assert_string_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]); /* a flag beats the file */
    assert_int_equal(
        simulate("--trace " GENERATED " --fleet 3xl4 -o json --route round_robin", &out), 0);
    digests(&out, &digest[1], 1);
    assert_string_equal(digest[0], digest[1]); /* limits that it does not say are not taken */
}

static void the_reference_may_be_told_what_it_is(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char digest[3][17];
    static const char *const lines[] = {
        "--trace " GENERATED REFERENCE "-o json",
        "--trace " GENERATED REFERENCE "-o json --preset ref",
        "--trace " GENERATED REFERENCE "-o json --fair none --order fcfs --admit all --evict lru "
        "--preempt newest --chunk whole --power max --migrate none --bias 0 --residual 0",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(simulate(lines[i], &out), 0);
        digests(&out, &digest[i], 1);
        assert_string_equal(digest[i], digest[0]);
    }
}

/* Rows and limits of a whole fleet's file do what their flags do; the rest is named. */
static void a_fleets_file_is_taken_in_part_and_says_so(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024], digest[4][17];
    snprintf(path, sizeof path, "%s/fleet.yaml", rig_folder());
    struct str text = STR("controller: { tick: 2s }\n"
                          "router: { route: round_robin, hold_max: 5s }\n"
                          "engine: { order: sjf_prompt, chunk: whole, max_num_seqs: 3 }\n"
                          "local: { offers: [ { name: a, share: 1, price_per_hour: 1 } ] }\n"
                          "services:\n"
                          "  - name: s\n"
                          "    model: none\n"
                          "    scale: keda_queue\n"
                          "    engine: { order: fcfs, predict: trail }\n"
                          "    pools: [ { name: a, offers: [a] } ]\n");
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
    snprintf(words, sizeof words, "--trace %s --fleet 2xl4 -o json --config %s", GENERATED, path);
    assert_int_equal(simulate(words, &out), 0);
    digests(&out, &digest[0], 1);
    static const char *const says[] = {
        "taken: router.route, engine.max_num_seqs, engine.order, engine.chunk, "
        "services[0].engine.order;",
        "left, where the command's own words count: controller, services, local, router.hold_max, "
        "services[0].engine.predict\n",
    };
    for (size_t i = 0; i < COUNT_OF(says); i++)
        if (!strstr(out.data, says[i])) fail_msg("no '%s' in %.600s", says[i], out.data);
    static const char *const flags[] = {
        "--route round_robin --order fcfs --chunk whole --seqs-max 3",
        "--route round_robin --order sjf_prompt --chunk whole --seqs-max 3",
        "--route round_robin --order fcfs --chunk whole",
    };
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        snprintf(words, sizeof words, "--trace %s --fleet 2xl4 -o json %s", GENERATED, flags[i]);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[i + 1], 1);
    }
    assert_string_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]); /* the service's row is the stronger one */
    assert_string_not_equal(digest[0], digest[3]);
    snprintf(words, sizeof words, "--trace %s%s--config %s", GENERATED, REFERENCE, path);
    assert_int_equal(simulate(words, &out), 0);
    assert_non_null(strstr(out.data,
                           "taken: router.route; left, where the command's own words count "
                           "and ref8000 has no engine: controller, services, local, "
                           "router.hold_max, engine.max_num_seqs, engine.order, "
                           "engine.chunk, services[0].engine.order"));

    assert_int_equal(simulate("--trace " GENERATED " --fleet 2xl4 --config muster.yaml", &out), 0);
    assert_non_null(strstr(out.data, "muster.yaml: taken: router.route, router.predict, "
                                     "router.migrate, services[0].engine.order; left, "
                                     "where the command's own words count: controller, services, "
                                     "local, router.listen, router."));
}

/* Roles of the only service: its row, its link, its pools' in the fleet's order; flags are stronger. */
static void a_fleets_file_says_its_roles(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024], digest[2][17], other[17] = "";
    snprintf(path, sizeof path, "%s/roles.yaml", rig_folder());
    static const struct {
        const char *service, *fleet, *flags, *same, *taken;
    } rows[] = {
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a], role: decode "
          "} ]",
          "1xl4,2xl4", "", "--fleet 1xl4:prefill,2xl4:decode --link 1GB",
          "services[0].kv_link, services[0].pools[0].role, services[0].pools[1].role;" },
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a], role: decode "
          "} ]",
          "1xl4:decode,2xl4:prefill", " --link 3GB", "--fleet 1xl4:decode,2xl4:prefill --link 3GB",
          "services[0].kv_link" },
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a] } ]",
          "1xl4:both,2xl4", "", "--fleet 3xl4 --link 1GB", "services[0].pools[0].role;" },
        { "pools: [ { name: a, offers: [a], role: prefill }, { name: b, offers: [a], role: decode "
          "} ]",
          "3xl4", "", "--fleet 3xl4 --link 1GB", "taken: services[0].kv_link; left" },
        { "role: pd_serve, kv_link: 2GB, pools: [ { name: a, offers: [a] } ]", "3xl4", "",
          "--fleet 3xl4 --role pd_serve --link 2GB", "services[0].role, services[0].kv_link;" },
        { "role: pd_serve, pools: [ { name: a, offers: [a] } ]", "3xl4", " --role colocated",
          "--fleet 3xl4 --role colocated --link 1GB", "services[0].role, services[0].kv_link;" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        buf_printf(&text, "services:\n  - { name: s, model: none, %s }\n", rows[i].service);
        assert_int_equal(file_write_atomic(path, buf_view(&text), 0600, NULL), 0);
        snprintf(words, sizeof words, "--trace %s --fleet %s%s -o json --config %s", GENERATED,
                 rows[i].fleet, rows[i].flags, path);
        if (simulate(words, &out) != 0 || !strstr(out.data, rows[i].taken))
            fail_msg("%s: no '%s' in %.600s", words, rows[i].taken, out.data);
        digests(&out, &digest[0], 1);
        snprintf(words, sizeof words, "--trace %s %s -o json", GENERATED, rows[i].same);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[1], 1);
        if (strcmp(digest[0], digest[1]) != 0) fail_msg("row %zu is not %s", i, words);
    }
    snprintf(words, sizeof words, "--trace %s%s--config %s", GENERATED, REFERENCE, path);
    assert_int_equal(simulate(words, &out), 0);
    assert_non_null(strstr(out.data, "services, services[0].role, services[0].kv_link"));

    /* The router's migrate row, which brings the link of the service with it. */
    struct str migrating = STR("router: { migrate: llumnix }\n"
                               "services: [ { name: s, model: none,"
                               " pools: [ { name: a, offers: [a] } ] } ]\n");
    assert_int_equal(file_write_atomic(path, migrating, 0600, NULL), 0);
    static const char *const migrate[][3] = {
        { "--config", "taken: router.migrate, services[0].kv_link;",
          "--migrate llumnix --link 1GB" },
        { "--migrate none --link 25GB --config", "taken: router.migrate", "" },
    };
    for (size_t i = 0; i < COUNT_OF(migrate); i++) {
        snprintf(words, sizeof words, "--trace %s --fleet 3xl4 --kv-tokens 9000 -o json %s %s",
                 GENERATED, migrate[i][0], path);
        if (simulate(words, &out) != 0 || !strstr(out.data, migrate[i][1]))
            fail_msg("%s: no '%s' in %.600s", words, migrate[i][1], out.data);
        digests(&out, &digest[0], 1);
        snprintf(words, sizeof words, "--trace %s --fleet 3xl4 --kv-tokens 9000 -o json%s%s",
                 GENERATED, migrate[i][2][0] ? " " : "", migrate[i][2]);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[1], 1);
        if (strcmp(digest[0], digest[1]) != 0) fail_msg("not as %s", words);
        assert_string_not_equal(digest[0], other); /* somebody moves */
        memcpy(other, digest[0], sizeof other);
    }
    snprintf(words, sizeof words, "--trace %s%s--config %s", GENERATED, REFERENCE, path);
    assert_int_equal(simulate(words, &out), 0);
    assert_non_null(strstr(out.data, "services, router.migrate, services[0].kv_link"));

    /* The link is felt where K and V are copied. */
    assert_int_equal(
        simulate("--trace " GENERATED " --fleet 1xl4:prefill,2xl4:decode -o json", &out), 0);
    digests(&out, &digest[0], 1);
    assert_int_equal(
        simulate("--trace " GENERATED " --fleet 1xl4:prefill,2xl4:decode -o json --link 1GB", &out),
        0);
    digests(&out, &other, 1);
    assert_string_not_equal(digest[0], other);
}

/* The service's power row and its limit; a flag is stronger, and leaves the file's limit to the file's
 * own row. */
static void a_file_names_the_power_row(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024];
    snprintf(path, sizeof path, "%s/power.yaml", rig_folder());
    struct str text = STR("local: { offers: [ { name: a, share: 1, price_per_hour: 1 } ] }\n"
                          "services:\n"
                          "  - name: s\n"
                          "    model: none\n"
                          "    power: polca\n"
                          "    row_watts: 1\n"
                          "    pools: [ { name: a, offers: [a], priority: low } ]\n");
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
    static const struct {
        const char *flags, *as;
    } rows[] = {
        { "--fleet 2xl4", "--fleet 2xl4:low --power polca --row-watts 1" },
        { "--fleet 2xl4 --power mu_serve", "--fleet 2xl4 --power mu_serve" },
        { "--fleet 2xl4 --row-watts 100000", "--fleet 2xl4:low --power polca --row-watts 100000" },
        { "--fleet 2xl4 --row-watts 130", "--fleet 2xl4:low --power polca --row-watts 130" },
        { "--fleet 2xl4:high --row-watts 130", "--fleet 2xl4 --power polca --row-watts 130" },
    };
    char first[17], low[17];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char digest[2][17];
        snprintf(words, sizeof words, "--trace %s -o json --config %s %s", GENERATED, path,
                 rows[i].flags);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[0], 1);
        if (!strstr(out.data, "taken: services[0].power, services[0].row_watts, "
                              "services[0].pools[0].priority;"))
            fail_msg("%.600s", out.data);
        snprintf(words, sizeof words, "--trace %s -o json %s", GENERATED, rows[i].as);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[1], 1);
        assert_string_equal(digest[0], digest[1]);
        if (i == 0) memcpy(first, digest[0], sizeof first);
        if (i > 0) assert_string_not_equal(digest[0], first); /* a breaker of 1 W brakes */
        if (i == 3) memcpy(low, digest[0], sizeof low);
        if (i == 4) assert_string_not_equal(digest[0], low);
    }
}

/* Scaling as the running controller would take it from the file; flags are stronger, also one that
 * says its own default. */
static void a_fleets_file_says_how_it_scales(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024], digest[7][17];
    snprintf(path, sizeof path, "%s/scaling.yaml", rig_folder());
    struct str text =
        STR("services:\n"
            "  - { name: s, model: none, scale: ray_serve, ongoing_target: 4, margin: 2,\n"
            "      shaper: window, stabilisation: 5s, down_step: 0, slo_ttft: 3s,\n"
            "      pools: [ { name: a, offers: [a] } ] }\n"
            "local: { offers: [ { name: a, share: 1, price_per_hour: 1,\n"
            "                     launch_delay: 3s, lead: 2s } ] }\n");
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
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
        snprintf(words, sizeof words,
                 "--trace gen:poisson,rate=steps(1:30,6:60,1:40),prompt=600,output=100 "
                 "--fleet 1-9xl4 -o json --config %s %s",
                 path, more[i]);
        assert_int_equal(simulate(words, &out), 0);
        digests(&out, &digest[i], 1);
        if (i == 1) assert_string_equal(digest[1], digest[0]);
        if (i > 1) assert_string_not_equal(digest[i], digest[0]);
        const char *said = "taken: services[0].slo_ttft, services[0].scale, services[0].shaper, "
                           "services[0].margin, services[0].ongoing_target, "
                           "services[0].stabilisation, services[0].down_step, "
                           "lead of services[0].pools[0]; left";
        if (i == 0 && !strstr(out.data, said)) fail_msg("no '%s' in %.600s", said, out.data);
    }
    snprintf(words, sizeof words, "--trace %s --fleet 3xl4 --config %s", GENERATED, path);
    assert_int_equal(simulate(words, &out), 0); /* a fleet that stays has nothing of it */
    assert_non_null(strstr(out.data, "taken: nothing but defaults; left"));
    assert_int_equal(simulate("--trace " GENERATED " --fleet 3xl4 --lead-time 100s", &out), 2);
    assert_non_null(strstr(out.data, "--lead-time needs --scale-policy"));
}

/* Each of the file's services scales by its own row, for its own promise, with its own lead. */
static void a_fleets_file_says_how_each_service_scales(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[512], words[1024];
    snprintf(path, sizeof path, "%s/services.yaml", rig_folder());
    struct str text =
        STR("services:\n"
            "  - { name: s, model: none, scale: work, slo_ttft: 2s, slo_tpot: 150ms,\n"
            "      pools: [ { name: a, offers: [a] } ] }\n"
            "  - { name: r, model: none, scale: static, count: 2, slo_ttft: 20s,\n"
            "      pools: [ { name: b, offers: [a] } ], engine: { order: sjf_work } }\n"
            "local: { offers: [ { name: a, share: 1, price_per_hour: 1,\n"
            "                     launch_delay: 3s, lead: 2s } ] }\n");
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
    const char *trace = "gen:poisson,rate=steps(1:60,8:90,1:90),services=2,prompt=600,output=100";
    snprintf(words, sizeof words, "--trace %s --fleet 1-9xl4,1-9xl4:service1 -o json --config %s",
             trace, path);
    assert_int_equal(simulate(words, &out), 0);
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
        if (!strstr(out.data, said[i])) fail_msg("no '%s' in %s", said[i], out.data);
    snprintf(words, sizeof words,
             "--trace %s --fleet 1-9xl4,1xl4:service1,1xl4:service2 --config %s", trace, path);
    assert_int_equal(simulate(words, &out), 2);
    assert_non_null(strstr(out.data, "--fleet has service2, of which "));
}

int main(void)
{
    rig_folder();
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
        cmocka_unit_test(a_file_of_configuration_names_rows),
        cmocka_unit_test(a_fleets_file_says_its_roles),
        cmocka_unit_test(a_fleets_file_says_how_it_scales),
        cmocka_unit_test(a_fleets_file_says_how_each_service_scales),
        cmocka_unit_test(a_fleets_file_is_taken_in_part_and_says_so),
        cmocka_unit_test(a_file_names_the_power_row),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
