/* toy_fleet.h - a fast synthetic fleet under the simulated controller: for unit tests of
 * simulator/control and for searching policies before the real scheduler judges them.
 *
 * Layer: tests
 *
 * Each replica runs continuous batching as its step-time model says: a step costs
 * a + b prefill + c batch + d KV read, with a chunk of prompt tokens a step, admission in order while
 * the whole request fits the KV memory. Requests go to the replica with the least unfinished work,
 * or wait when none serves. Answers are as long as the trace says; predictions are the running
 * mean of finished answers.
 */
#pragma once
#include "simulator/control.h"

struct toy_request {
    int64_t at_us;
    uint32_t prompt, output;
};

struct toy_setup {
    struct sim_control_setup control; /* one pool */
    uint32_t chunk;
    const struct toy_request *request;
    uint32_t count;
};

struct toy_result {
    struct sim_control_totals totals;
    uint32_t met, ttft_met, tpot_met;
    double attainment, ttft_p90_s, tpot_p90_s;
    double end_s;
};

int toy_run(const struct toy_setup *setup, struct toy_result *ret);
