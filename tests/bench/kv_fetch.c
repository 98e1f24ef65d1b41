/* kv_fetch.c - times fetching a prompt's K and V from an engine on the same machine and computing them.
 *
 *     MUSTER_BIN=build/muster build/tests/bench/bench_kv_fetch
 *
 * For each model two engines run with one thread each. The first computes a new prompt and one token;
 * the second fetches the prompt's pages from it. The time is a client's wait, the request's JSON
 * included; the median of ROUNDS prompts is printed. CSV on stdout. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/kv/kv_rig.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS 9

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static void measure(const char *name, const char *model, uint32_t tokens, const char *type)
{
    const char *const args[] = { "--threads", "1", "--kv-cache-dtype", type, "--log-level",
                                 "warn",      NULL };
    struct rig_process a = kv_engine(model, args), b = kv_engine(model, args);
    CLEANUP(kv_answer_fini) struct kv_answer answer = { 0 };
    double computed_s[ROUNDS], fetched_s[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct generate_request req = kv_request(tokens, 100 + i);
        req.max_tokens = 1;
        int64_t from_us = clock_mono_us();
        kv_generate(&a, &req, &answer);
        computed_s[i] = (double)(clock_mono_us() - from_us) * 1e-6;
        from_us = clock_mono_us();
        struct kv_fetch_reply got = kv_fetch_now(&b, req.ids, tokens, "one", a.port);
        fetched_s[i] = (double)(clock_mono_us() - from_us) * 1e-6;
        assert_int_equal(got.pulled, tokens);
    }
    double bytes = kv_metric(&a, "muster_engine_kv_sent_bytes_total") / ROUNDS;
    double computed = median(computed_s), pulled = median(fetched_s);
    printf("%s,%u,%.0f,%.1f,%.1f,%.0f,%.0f\n", name, tokens, bytes / 1024, computed * 1e3,
           pulled * 1e3, tokens / computed, tokens / pulled);
    kv_engine_stop(&a);
    kv_engine_stop(&b);
}

static void fetches(void **state)
{
    (void)state;
    printf("model,tokens,kv_kib,computed_ms,pulled_ms,computed_tokens_per_s,pulled_tokens_per_s\n");
    measure("muster-tiny", KV_OTHER_MODEL, 256, "f16");
    measure("muster-tiny", KV_OTHER_MODEL, 896, "f16");
    measure("wide", kv_wide, 896, "f32");
    measure("wide", kv_wide, 3584, "f32");
}

int main(void)
{
    kv_rig_open();
    const struct CMUnitTest tests[] = { cmocka_unit_test(fetches) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kv_rig_close();
    return rig_end(failed);
}
