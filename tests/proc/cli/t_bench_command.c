/* t_bench_command.c - runs `muster bench`: keys, the same next token in every split, and mistakes. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a member of the reply's JSON. */
static double member(const struct buf *out, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(out->data, key);
    if (!at) fail_msg("no %s in %s", name, out->data);
    return strtod(at + strlen(key), NULL);
}

static void a_model_is_timed(void **state)
{
    (void)state;
    static const char *const splits[] = { "--batch 1 --threads 1", "--batch 3 --threads 2" };
    double next[COUNT_OF(splits)];
    for (size_t i = 0; i < COUNT_OF(splits); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        char line[512];
        snprintf(line, sizeof line,
                 "engine --model " MODEL " --prompt-tokens 40 --gen-tokens 4 %s -o json",
                 splits[i]);
        assert_int_equal(rig_muster("bench", line, &out), 0);
        buf_byte(&out, 0);
        static const char *const positive[] = { "prefill_tok_s",   "decode_tok_s",
                                                "bytes_per_token", "bandwidth_share",
                                                "read_gb_s",       "threads" };
        for (size_t k = 0; k < COUNT_OF(positive); k++)
            assert_true(member(&out, positive[k]) > 0);
        assert_true(member(&out, "peak_share") >= 0); /* no rate is known on other processors */
        next[i] = member(&out, "next_token");
    }
    assert_true(next[0] == next[1]);
}

static void kernels_are_timed(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(rig_muster("bench", "kernels --type q4_k --rows 64 --cols 256 -o json", &out),
                     0);
    buf_byte(&out, 0);
    assert_non_null(strstr(out.data, "\"operation\":\"Q4_K\",\"tokens\":1,"));
    assert_non_null(strstr(out.data, "\"operation\":\"Q4_K\",\"tokens\":256,"));
    assert_true(member(&out, "gop_s") > 0);
}

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "", 2, "ACTION is missing" },
        { "memory", 2, "no action 'memory': want engine or kernels" },
        { "engine", 2, "--model is missing" },
        { "engine --model /nonexistent/a.gguf", 1, "/nonexistent/a.gguf: No such" },
        { "engine --model " MODEL " --gen-tokens 60000", 2, "tokens, the model's context is" },
        { "engine --model " MODEL " --kernels mmx", 2,
          "--kernels mmx: none of that name run here" },
        { "kernels --type q9", 2, "--type q9: no such type; there are F32, F16" },
        { "kernels --cols 300", 2, "--cols 300: want a multiple of 256" },
        { "kernels --rows 65536 --cols 65536", 2, "--rows times --cols: at most" },
    };
    rig_expect("bench", rows, COUNT_OF(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_timed),
        cmocka_unit_test(kernels_are_timed),
        cmocka_unit_test(mistakes_are_explained),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
