/* margin.h - finds what a scaling policy costs at a required attainment, over its margins.
 *
 * Every policy multiplies the load that it measures by a margin. A baseline has no right margin of its
 * own, so it gets the best in each world: that of the cheapest fleet that still keeps the SLO there.
 * Worlds differ in the instances' hidden speed, so no operator could choose as well; our policy keeps
 * its margin of 1 in all of them. All policies begin with the same fleet, which the caller chooses:
 * with less than the first minutes need, each would miss the SLO in the same first lead time, and no
 * margin could keep it.
 */
#pragma once
#include "tests/sim_gates/gate.h"

#define MARGIN_ATTAINMENT 0.99

struct margin_bed {
    struct gate gate;
    struct trace trace; /* the beginning of the gate's trace */
    uint32_t start;     /* instances, as the command's pool counts them */
};

/* Loads `command`, as for gate_run, with one pool that scales, and the first `seconds` of its trace. */
struct margin_bed margin_open(const char *command, double seconds);
void margin_close(struct margin_bed *b);

struct margin_point {
    double margin, attainment, cost, instances;
};

/* Returns the policy's point at this margin in the world of `seed`. `static` runs `start` instances
 * times the margin. */
struct margin_point margin_at(const struct margin_bed *b, const struct scale_policy *policy,
                              double lead_s, uint64_t seed, double margin);

/* Finds the cheapest point that keeps the SLO; returns false when none does. It tries `runs` points,
 * then more (12 in all) until no point between can cost less than `rival` dollars (0: no rival), a
 * fleet growing no faster than its margin. For `static` the points are whole numbers of instances
 * about start. */
bool margin_cheapest(const struct margin_bed *b, const struct scale_policy *policy, double lead_s,
                     uint64_t seed, uint32_t runs, double rival, struct margin_point *ret);
