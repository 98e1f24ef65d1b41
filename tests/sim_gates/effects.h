/* effects.h - runs a table of claims: what each policy is worth against its simple alternative.
 *
 *     { "why", "--trace gen:... --compare order=fcfs,mlfq --seeds 10",
 *       { { "order=mlfq", "order=fcfs", "jct_s.mean", -0.10, .measured = -0.17 } } }
 */
#pragma once
#include "tests/sim_gates/gate.h"

/* One claim. The whole 95 % interval of gate_share lies beyond `bound`: below a negative one, above a
 * positive one; it is never 0, because no effect is no pass. `behind_max` stands in its place where a
 * policy must come close to an arm that is known to be best only afterwards: the whole interval of
 * gate_shortfall lies below it. `measured` is the mean when the bound was set, within it: a row without one
 * fails before anything runs. */
struct gate_effect {
    const char *arm, *against, *metric; /* against GATE_BEST: the best arm of `beside` */
    double bound, behind_max, measured;
};

#define GATE_BEST "the best of the others"
#define GATE_NEVER 1e-9 /* measured: behind by less than what is printed */

#define GATE_EFFECTS_MAX 16

struct gate_effects {
    const char *why;
    const char *command;
    struct gate_effect effect[GATE_EFFECTS_MAX]; /* ends with the first without an arm */
    const char *beside; /* a command over the same seeds: its arms for GATE_BEST; or NULL */
};

/* Runs all commands and prints every effect. Returns how many do not hold. */
uint32_t gate_effects_missed(const struct gate_effects *effects, size_t count);
