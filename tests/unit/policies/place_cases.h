/* place_cases.h - makes problems of placement for tests and bench_place.
 *
 * Layer:   tests (policies)
 * Threads: pure */
#pragma once
#include "base/core/rng.h"
#include "policies/layers/layers.h"
#include "policies/mix/solver.h"

/* Draws loads like those of profiles: a type has a speed, a slice a size (exponential, mean
 * `scale`), and types differ by what they are good at. One in ten slices fits no instance of some
 * type. */
void place_case_slices(struct rng *rng, uint32_t types, uint32_t groups, uint32_t count,
                       double scale, struct solver_problem *ret);

/* Draws the i-th of the big ones, 4 types x 64 slices. Even i: a workload's 16 buckets of 4 equal
 * slices; odd i: 64 slices without two alike, which is harder than any profile. */
void place_case_big(struct rng *rng, uint32_t i, struct solver_problem *ret);

/* Makes the single cluster of Helix's evaluation: 4 A100, 8 L4, 12 T4 for 70B, 10 Gb/s between
 * them. */
void place_case_helix(struct layers_problem *ret);

/* Makes its distributed cluster: the same 24 devices in three regions, 100 Mb/s between those. */
void place_case_regions(struct layers_problem *ret);
