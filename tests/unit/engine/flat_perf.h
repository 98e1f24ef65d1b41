/* flat_perf.h - estimates that a step costs the same whatever it computes, so that every guess is computed. */
#pragma once
#include "policies/perf/perf_model.h"

#define FLAT_STEP_S 1e-3

extern const struct perf_policy flat_perf;
