/* scale_rows.h - the rows of scale_table, for scale.c and the tests.
 *
 * Layer: policies
 */
#pragma once
#include "policies/scale.h"

extern const struct scale_policy scale_work, scale_static;
extern const struct scale_policy scale_keda_queue, scale_kpa, scale_ray_serve, scale_skyserve;
extern const struct scale_policy scale_token_aware, scale_slo_aware, scale_wva_v1, scale_wva_v2;
extern const struct scale_policy scale_dynamo_load, scale_dynamo_static, scale_dynamo_throughput;
extern const struct scale_policy scale_blitzscale, scale_sageserve, scale_chiron;
extern const struct scale_policy scale_aibrix_apa, scale_apa_fixed;

/* The model behind scale_work, apart so that tests can hold it against a simulated queue. */

/* Seconds of an instance's time that one request costs at the margin: its prompt, and a place in
 * each step of its answer. */
double scale_request_work_s(const struct perf_coef *perf, double prompt_tokens,
                            double output_tokens);

/* Requests a second that one instance serves within the service's promise; 0 when it cannot keep
 * the promise even alone. */
double scale_instance_rate(const struct scale_pool *pool, const struct scale_view *view,
                           double utilisation_max);
