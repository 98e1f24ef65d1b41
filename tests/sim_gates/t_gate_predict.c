/* t_gate_predict.c - judges what a better prediction of output lengths is worth.
 *
 * An engine of four places serves the same requests, shortest first by each predictor, at nine tenths
 * of its capacity. On this trace a prompt's words determine the length of its output.
 *
 * t_predict_trial judges the predictors' own concordance, coverage and error. Trail and self_report
 * need a model that runs: t_predict_engine and t_router judge them.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define WAIT "ttft_s.mean"
#define TABLE "predict=key_table"

static const struct gate_effects effects[] = {
    { "shortest output first by each predictor, against the default",
      "--trace traces/text-5000.jsonl --speed 0.65 --fleet 1xl4 --seqs-max 4 --order sjf_output "
      "--seeds 10 --compare "
      "predict=key_table,ngram,intelligent_router,skip_predict,ngram_rank,ssjf,"
      "ssjf_classes,ssjf_ordinal,ssjf_pairwise,s3,mu_serve,forest,oracle,noisy_oracle,"
      "prompt_histogram",
      {
          { "predict=ngram", TABLE, WAIT, -0.05, .measured = -0.106 },
          { "predict=intelligent_router", TABLE, WAIT, -0.05, .measured = -0.114 },
          { "predict=skip_predict", TABLE, WAIT, -0.04, .measured = -0.078 },
          { "predict=ngram_rank", TABLE, WAIT, -0.02, .measured = -0.073 },
          { "predict=ssjf", TABLE, WAIT, -0.05, .measured = -0.111 },
          { "predict=ssjf_classes", TABLE, WAIT, -0.04, .measured = -0.087 },
          { "predict=ssjf_ordinal", TABLE, WAIT, -0.04, .measured = -0.081 },
          { "predict=ssjf_pairwise", TABLE, WAIT, -0.04, .measured = -0.105 },
          { "predict=s3", TABLE, WAIT, -0.03, .measured = -0.089 },
          { "predict=mu_serve", TABLE, WAIT, -0.02, .measured = -0.076 },
          { "predict=forest", TABLE, WAIT, -0.005, .measured = -0.032 },
          { TABLE, "predict=prompt_histogram", WAIT, -0.10, .measured = -0.25 },
          { "predict=oracle", "predict=noisy_oracle", WAIT, -0.08, .measured = -0.155 },
      } },
};

static void reading_the_text_shortens_the_wait(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void the_text_gives_half_of_what_can_be_had(void **state)
{
    (void)state;
    struct gate g =
        gate_run("--trace traces/text-5000.jsonl --speed 0.65 --fleet 1xl4 --seqs-max 4 "
                 "--order sjf_output --seeds 10 --compare predict=key_table,ngram,oracle");
    struct stats_mean text = gate_share(&g, "predict=ngram", "predict=key_table", WAIT);
    struct stats_mean most = gate_share(&g, "predict=oracle", "predict=key_table", WAIT);
    double least = (-text.mean - text.half) / (-most.mean + most.half);
    gate_above("share of the oracle's gain that the text gives, least by both intervals", least,
               0.5);
    gate_free(&g);
}

static void every_predictor_is_held_against_something(void **state)
{
    (void)state;
#define PAGE "docs/systems/prediction.md"
    static const struct judged_elsewhere elsewhere[] = {
        { "tetri", PAGE },       { "task_mean", PAGE },
        { "client_mean", PAGE }, { "previous_turn", PAGE },
        { "ssjf_binary", PAGE }, { "trail", PAGE },
        { "self_report", PAGE }, { NULL },
    };
    assert_int_equal(judged_missed("predict", elsewhere), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_the_text_shortens_the_wait),
        cmocka_unit_test(the_text_gives_half_of_what_can_be_had),
        cmocka_unit_test(every_predictor_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
