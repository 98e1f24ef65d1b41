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
