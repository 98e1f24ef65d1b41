/* predict_rows.h - the rows of the predict table, for the table and for rows built on others.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "policies/predict.h"

extern const struct predict_policy predict_key_table, predict_prompt_histogram, predict_client_mean,
    predict_previous_turn, predict_task_mean, predict_ngram, predict_ngram_rank, predict_ssjf,
    predict_ssjf_pairwise, predict_s3, predict_mu_serve, predict_tetri, predict_intelligent_router,
    predict_forest, predict_skip, predict_trail, predict_self_report, predict_oracle,
    predict_noisy_oracle;
