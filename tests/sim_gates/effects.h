/* effects.h - what each row is worth beside its simple alternative, as a table.
 *
 *     { "why", "--trace gen:... --compare order=fcfs,mlfq --seeds 10",
 *       { { "order=mlfq", "order=fcfs", "jct_s.mean", -0.10 } } }
 */
#pragma once
#include "tests/sim_gates/gate.h"

/* The whole 95 % interval of gate_share lies beyond `bound`: below it when it is negative, above it
 * when it is positive. Never 0: no effect is no pass. Where a policy is to come close to the best of
 * what nobody knows beforehand, `behind_max` stands in its place: the whole interval of gate_shortfall
 * lies below it. `measured`: the mean of the share when the bound was set. */
struct gate_effect {
    const char *arm, *against, *metric; /* against GATE_BEST: the best arm of `beside` */
    double bound, behind_max, measured;
};

#define GATE_BEST "the best of the others"

#define GATE_EFFECTS_MAX 16

struct gate_effects {
    const char *why;
    const char *command;
    struct gate_effect effect[GATE_EFFECTS_MAX]; /* ends with the first without an arm */
    const char *beside; /* the same seeds: what GATE_BEST is the best of; NULL: nothing */
};

/* Runs all and prints every effect; how many do not hold. */
uint32_t gate_effects_missed(const struct gate_effects *effects, size_t count);
