/* margin.h - what a scaling row costs at the attainment that was asked for: its margin curve.
 *
 * Every row multiplies the load it measures by a margin. A baseline has no right one of its own, so
 * it is given the best: the cheapest fleet over its margins that still keeps the promise. All rows
 * begin with the same fleet, which the caller chooses: with less than the first minutes need, every
 * row would miss the same first lead time, and no margin could keep the promise.
 */
#pragma once
#include "tests/sim_gates/gate.h"

#define MARGIN_ATTAINMENT 0.99

struct margin_world {
    struct gate gate;
    struct trace trace; /* the beginning of the gate's */
    uint32_t start;     /* instances */
    uint32_t seeds;
};

/* `command` as of gate_run, with one pool that scales; of the trace the first `seconds`. */
struct margin_world margin_open(const char *command, double seconds, uint32_t seeds);
void margin_close(struct margin_world *w);

struct margin_point {
    double margin, attainment, cost, instances; /* means over the seeds */
};

/* One point of the row's curve; `static` keeps start instances times the margin. */
struct margin_point margin_at(const struct margin_world *w, const struct scale_policy *row,
                              double lead_s, double margin);

/* The cheapest point that keeps the promise, after `runs` points; false when none of them does. */
bool margin_cheapest(const struct margin_world *w, const struct scale_policy *row, double lead_s,
                     uint32_t runs, struct margin_point *ret);

/* Makes `start` the smallest fleet that keeps the promise when it stays, from w->start on. */
struct margin_point margin_best_static(struct margin_world *w);
