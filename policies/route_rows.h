/* route_rows.h - the rows of the route table, for the table and for rows built on others.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "policies/route.h"

extern const struct route_policy route_completion, route_shortest_ttft, route_min_ttft,
    route_mooncake_fetch, route_round_robin, route_random, route_least_request, route_power_of_two,
    route_consistent_hash, route_bounded_load, route_prefix_affinity, route_dynamo_cost,
    route_lmetric, route_llmd_scorers, route_preble, route_d2lpm, route_intelligent_router,
    route_tetri_p2c, route_learned_latency;
