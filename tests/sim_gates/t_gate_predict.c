/* t_gate_predict.c - what a better word on lengths is worth: the same requests, shortest first by what
 * each predictor says, on an engine of four slots at nine tenths of what it can do.
 *
 * The concordance, coverage and error of the rows themselves are t_predict_trial's.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

static void reading_the_text_shortens_the_wait(void **state)
{
    (void)state;
    struct gate g =
        gate_run("--trace traces/text-5000.jsonl --speed 0.65 --fleet 1xl4 --seqs-max 4 "
                 "--order sjf_output --seeds 10 --compare predict=key_table,"
                 "prompt_histogram,ngram,intelligent_router,skip_predict,oracle");
    static const char *const better[] = { "predict=ngram", "predict=intelligent_router",
                                          "predict=skip_predict", "predict=oracle" };
    for (size_t i = 0; i < COUNT_OF(better); i++) {
        struct stats_mean d = gate_difference(&g, better[i], "ttft_s.mean");
        gate_below(better[i], d.mean + d.half, 0); /* the interval lies below the key table */
    }
    struct stats_mean worse = gate_difference(&g, "predict=prompt_histogram", "ttft_s.mean");
    gate_above("the prompt's length alone", worse.mean - worse.half, 0);
    double text = -gate_relative(&g, "predict=ngram", "ttft_s.mean");
    double most = -gate_relative(&g, "predict=oracle", "ttft_s.mean");
    gate_above("share of the oracle's gain that the text gives", text / most, 0.5);
    gate_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reading_the_text_shortens_the_wait) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
