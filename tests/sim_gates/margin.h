/* margin.h - what a scaling row costs at the attainment that was asked for: its margin curve.
 *
 * Every row multiplies the load it measures by a margin. A baseline has no right one of its own, so
 * it is given the best in each world: the cheapest fleet over its margins that still keeps the SLO
 * there. Worlds differ in the instances' hidden speed, so this is more than any operator could
 * choose; ours has its margin of 1 in all of them. All rows begin with the same fleet, which the
 * caller chooses: with less than the first minutes need, every row would miss the same first lead
 * time, and no margin could keep the SLO.
 */
#pragma once
#include "tests/sim_gates/gate.h"

#define MARGIN_ATTAINMENT 0.99

struct margin_bed {
    struct gate gate;
    struct trace trace; /* the beginning of the gate's */
    uint32_t start;     /* instances, as the command's pool counts them */
};

/* `command` as of gate_run, with one pool that scales; of the trace the first `seconds`. */
struct margin_bed margin_open(const char *command, double seconds);
void margin_close(struct margin_bed *b);

struct margin_point {
    double margin, attainment, cost, instances;
};

/* One point of the row's curve in the world of `seed`; `static` keeps start instances times the
 * margin. */
struct margin_point margin_at(const struct margin_bed *b, const struct scale_policy *policy,
                              double lead_s, uint64_t seed, double margin);

/* The cheapest point that keeps the SLO, after `runs` points and as many more (12 in all) as it
 * takes until none between can cost less than `rival` (dollars; 0: it has none), a fleet growing no
 * faster than its margin; false when no point keeps it. For `static` the points are whole numbers of
 * instances about start. */
bool margin_cheapest(const struct margin_bed *b, const struct scale_policy *policy, double lead_s,
                     uint64_t seed, uint32_t runs, double rival, struct margin_point *ret);
