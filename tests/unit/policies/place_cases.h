/* place_cases.h - problems of placement that tests and bench_place share.
 *
 * Layer:   tests (policies)
 * Threads: pure */
#pragma once
#include "base/core/rng.h"
#include "policies/layers/layers.h"
#include "policies/mix/solver.h"

/* Loads as profiles give them: a type has a speed, a slice a size (exponential, mean `scale`), and
 * types differ by what they are good at. One in ten slices fits no instance of some type. */
void place_case_slices(struct rng *rng, uint32_t types, uint32_t groups, uint32_t count,
                       double scale, struct solver_problem *ret);

/* The i-th of the big ones, 4 types x 64 slices: half are a workload's 16 buckets of 4 equal
 * slices, half (i odd) 64 slices without two alike, which is harder than any profile. */
void place_case_big(struct rng *rng, uint32_t i, struct solver_problem *ret);

/* The single cluster of Helix's evaluation: 4 A100, 8 L4, 12 T4 for 70B, 10 Gb/s between them. */
void place_case_helix(struct layers_problem *ret);

/* Its distributed cluster: the same 24 devices in three regions, 100 Mb/s between those. */
void place_case_regions(struct layers_problem *ret);
