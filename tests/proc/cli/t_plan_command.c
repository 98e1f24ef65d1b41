/* t_plan_command.c - runs the commands plan, perf, offers and policies, with good and bad options. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <string.h>

#define LAYERS "layers --devices 4xa100,8xl4,12xt4"

/* These commands know the models, hardware and policies of simulate, and refuse mistakes with the same
 * sentences. */
static void its_neighbours_explain_mistakes_too(void **state)
{
    (void)state;
    static const struct rig_row plan[] = {
        { "--rate 1 --hardware zzz", 2, "--hardware: no hardware 'zzz'; there are t4, " },
        { "--rate 1 --hardware h10", 2, "did you mean 'h100'?" },
        { "--rate 1 --hardware cpu", 1, "the price list has no offer" },
        { "--rate 1 --model another", 2, "--model: no shipped model 'another'; there are " },
        { "--rate 1 --mix nosuch", 2, "--mix: 'nosuch' is no mix policy; there are joint, " },
        { "--rate 1 --place nosuch", 2, "--place: 'nosuch' is no mix policy; there are joint, " },
        { "--rate 1 --compare spot", 2, "--compare: 'spot' is no mix policy; there are joint, " },
        { "--rate 1000000", 1, "it takes more instances" },
        { "--trace CMakeLists.txt", 1, "CMakeLists.txt: line 1: not a trace" },
        { "--rate 1 --mix helix", 2, "--mix: 'helix' is no mix policy; there are joint, " },
        { "--rate 20 --budget 0.01", 1, "for 0 % of the work" },
        { "--trace traces/text-5000.jsonl --prompt 9", 2, "leave out --prompt" },
        { "--rate 1 --hardware=", 2, "--hardware is empty" },
        { "--rate 1 --hardware h100,,l4", 2, "--hardware: an item of 'h100,,l4' is empty" },
        { "layers", 2, "--devices is missing" },
        { "layers --devices 4xa10", 2, "did you mean 'a10g'?" },
        { "layers --devices 40xa100", 2, "more than 32 devices" },
        { "layers --devices 2xt4", 1, "of the 80 layers of llama-3-70b beside the KV of" },
        { "layers --devices 4xl4 --model another", 2, "--model: no shipped model" },
        { "layers --devices 8xl4 --policy nosuch", 2,
          "--policy: 'nosuch' is no layers policy; there are helix, hexgen, pipedream, gpipe" },
        { "layers --devices 8xl4 --compare joint", 2, "--compare: 'joint' is no layers policy" },
        { LAYERS " -b 64 --policy gpipe", 1, "none: an equal share does not fit" },
        { "move --lost 3", 0, "in_order   323.7" },
        { "move --lost 3 -o json", 0, "\"sent_bytes_difference\":{\"mean\":" },
        { "move --lost 15", 2, "the 1 devices that stay hold no pipeline" },
        { "move --policy helix", 2, "--policy: 'helix' is no move policy" },
        { "load -n 200", 0, "nearest_tier   ready in" },
        { "load -n 200 -o json", 0, "\"mean_s_difference\":{\"mean\":" },
        { "load --compare spotserve", 2, "--compare: 'spotserve' is no load policy" },
    };
    static const struct rig_row offers[] = {
        { "--hardware h10", 2, "--hardware: no hardware 'h10', did you mean 'h100'?" },
    };
    static const struct rig_row perf[] = {
        { "fit ./another.csv --hardware zzz", 2, "--hardware: no hardware 'zzz'" },
        { "fit ./another.csv --hardware a100", 1,
          "muster perf: cannot open ./another.csv: No such" },
        { "fit ./another.csv --hardware a100 --model lama-3-8b", 2, "'llama-3-8b'?" },
    };
    static const struct rig_row policies[] = {
        { "scale", 0, "a bound, only in the simulator" },
        { "layers", 0, "planner only: muster plan layers --policy" },
        { "move", 0, "planner only: muster plan move --policy" },
        { "load", 0, "planner only: muster plan load --policy" },
    };
    rig_expect("plan", plan, COUNT_OF(plan));
    rig_expect("offers", offers, COUNT_OF(offers));
    rig_expect("perf", perf, COUNT_OF(perf));
    rig_expect("policies", policies, COUNT_OF(policies));
}

/* A trace has no rate if all its requests arrive at once; then --rate is needed. */
static void a_rate_is_wanted_where_there_is_none(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], words[600];
    rig_file(path, "at-once.csv",
             "TIMESTAMP,ContextTokens,GeneratedTokens\n"
             "2023-11-16 18:15:46.68,374,44\n");
    snprintf(words, sizeof words, "--trace %s", path);
    assert_int_equal(rig_muster("plan", words, &out), 2);
    assert_non_null(strstr(out.data, "give one with --rate"));
}

/* `muster plan layers` on Helix's cluster prints a table of stages, and the same in JSON; every option has
 * an effect. */
static void layers_are_laid_on_unequal_devices(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, first = { 0 };
    assert_int_equal(rig_muster("plan", LAYERS " --compare gpipe", &first), 0);
    assert_non_null(strstr(first.data, "llama-3-70b: 80 layers"));
    assert_non_null(strstr(first.data, "24 devices: ranges whose flow is the largest found"));
    assert_non_null(strstr(first.data, "\ngpipe "));
    assert_non_null(strstr(first.data, " 1 x a100-80 "));
    static const char *const rows[][2] = {
        /* with the option and without it */
        { "--policy hexgen", "" },
        { "--compare pipedream", "" },
        { "--batch 4", "" },
        { "--context 2000", "" },
        { "--link 1MB", "" },
        { "--model llama-2-70b", "" },
        { "--policy hexgen --machine 1", "--policy hexgen" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLEANUP(buf_fini) struct buf without = { 0 };
        char line[128];
        snprintf(line, sizeof line, LAYERS " %s", rows[i][0]);
        assert_int_equal(rig_muster("plan", line, &out), 0);
        snprintf(line, sizeof line, LAYERS " %s", rows[i][1]);
        assert_int_equal(rig_muster("plan", line, &without), 0);
        assert_string_not_equal(out.data, without.data);
    }
    assert_int_equal(rig_muster("plan", LAYERS " --compare gpipe -o json", &out), 0);
    assert_non_null(strstr(out.data, "\"row\":\"helix\",\"choice\":{\"found\":true"));
    assert_non_null(strstr(out.data, "\"compare\":{\"gpipe\":{\"found\":true"));
    assert_non_null(strstr(out.data, "\"stages\":[{\"first_layer\":0,\"layers\":"));
    assert_int_equal(rig_muster("plan", "layers --help", &out), 0);
    assert_non_null(strstr(out.data, "no engine runs stages yet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_neighbours_explain_mistakes_too),
        cmocka_unit_test(a_rate_is_wanted_where_there_is_none),
        cmocka_unit_test(layers_are_laid_on_unequal_devices),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
