/* gate.h - runs a `muster simulate` command line and compares its figures with bounds.
 *
 *     struct gate g = gate_run("--trace azure-2023-conv.csv --fleet 8xa100 --speed 6 "
 *                              "--compare route=shortest_ttft,round_robin --seeds 10");
 *     gate_below("mean TTFT", gate_difference(&g, "route=round_robin", "ttft_s.mean").mean, 0);
 *     gate_free(&g);
 *
 * Figures are named as in report_metrics. Every check prints the value that it found; a failure ends
 * the test.
 */
#pragma once
#include "cli/simulate/sim_arms.h"
#include "simulator/stats.h"
#include "tests/unit/unit.h"

struct gate {
    struct sim_options options;
    struct opt_parsed parsed;
    struct sim_arms arms;
    char *words;
};

/* Runs the command and prints its table. Words are cut at blanks; the trace is generated or one of
 * those in traces/. */
struct gate gate_run(const char *command);

/* The two halves of gate_run: between them a test may change arms in ways that no option offers. */
struct gate gate_prepare(const char *command);
void gate_go(struct gate *g);
void gate_free(struct gate *g);

/* Return the mean of a metric over the seeds, and the mean of arm minus first arm, seed by seed. `arm`
 * is as the table names it; NULL: the first. */
struct stats_mean gate_mean(const struct gate *g, const char *arm, const char *metric);
struct stats_mean gate_difference(const struct gate *g, const char *arm, const char *metric);

/* Returns the mean of (arm - against) / against, seed by seed. */
struct stats_mean gate_share(const struct gate *g, const char *arm, const char *against,
                             const char *metric);

/* Returns how far the arm of `g` stays behind the arm `against` of `h`, a run of the same seeds, as a
 * share of the latter's mean. A seed where it is ahead counts 0: no world makes up for another. */
struct stats_mean gate_shortfall(const struct gate *g, const char *arm, const struct gate *h,
                                 const char *against, const char *metric);

/* Returns the name of the arm with the highest mean; it lives as long as g. */
const char *gate_highest(const struct gate *g, const char *metric);

void gate_within(const char *what, double value, double wanted, double share);
void gate_below(const char *what, double value, double bound);
void gate_above(const char *what, double value, double bound);

/* The same for the whole interval; without enough seeds for an interval it fails. */
void gate_interval_below(const char *what, struct stats_mean value, double bound);
void gate_interval_above(const char *what, struct stats_mean value, double bound);
