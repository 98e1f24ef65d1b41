/* gate.h - a gate runs a `muster simulate` command line and holds its figures against what they
 * should be.
 *
 *     struct gate g = gate_run("--trace azure-2023-conv.csv --fleet 8xa100 --speed 6 "
 *                              "--compare route=shortest_ttft,round_robin --seeds 10");
 *     gate_below("mean TTFT", gate_difference(&g, "route=round_robin", "ttft_s.mean").mean, 0);
 *     gate_free(&g);
 *
 * Figures are named as in report_metrics. Every check prints what it found; failures end the test.
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

/* Words are cut at blanks; the trace is one that is generated or shipped in traces/. Prints the table. */
struct gate gate_run(const char *command);

/* The two halves of it: in between arms may be given what no option says. */
struct gate gate_prepare(const char *command);
void gate_go(struct gate *g);
void gate_free(struct gate *g);

/* `arm` as the table names it; NULL: the first. Over the seeds; of a difference: arm minus first,
 * seed by seed. */
struct stats_mean gate_mean(const struct gate *g, const char *arm, const char *metric);
struct stats_mean gate_difference(const struct gate *g, const char *arm, const char *metric);

/* (arm - against) / against, seed by seed. */
struct stats_mean gate_share(const struct gate *g, const char *arm, const char *against,
                             const char *metric);

/* How far the arm stays behind one of another run of the same seeds, seed by seed, as a share of that
 * one's mean: 0 where it is ahead, so that no world makes up for another. */
struct stats_mean gate_shortfall(const struct gate *g, const char *arm, const struct gate *h,
                                 const char *against, const char *metric);

/* The arm whose mean is highest. Lives as long as g. */
const char *gate_highest(const struct gate *g, const char *metric);

void gate_within(const char *what, double value, double wanted, double share);
void gate_below(const char *what, double value, double bound);
void gate_above(const char *what, double value, double bound);

/* The same of the whole interval; one without seeds to make it from fails. */
void gate_interval_below(const char *what, struct stats_mean value, double bound);
void gate_interval_above(const char *what, struct stats_mean value, double bound);
