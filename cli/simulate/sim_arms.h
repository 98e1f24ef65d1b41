/* sim_arms.h - runs several simulations side by side: an arm for each choice, a run for each arm and seed.
 *
 * Layer:   cli (simulator, base/io)
 * Threads: runs are pure and independent; workers take them in order and write to places of their
 *          own, so results are the same however many there are
 */
#pragma once
#include "cli/simulate/sim_config.h"
#include "simulator/generate.h"
#include "simulator/report.h"

#define SIM_ARMS_MAX 256

struct sim_arm {
    struct buf name; /* "route=a order=b"; empty when nothing is compared */
    char **word;     /* its command line; texts of the options point into it */
    int word_count, word_given;
    struct sim_options options;
    struct opt_parsed parsed;
    struct sim_config config;
    struct sim_control_setup control; /* config points to it where the fleet scales */
    const struct trace *trace; /* shared with an earlier arm where it can be; NULL: generated */
    struct trace *trace_owned;
    struct generate_spec generate;
    struct report *run; /* one for each seed */
    struct err missing; /* why the arm is not applicable to its trace; empty: it is */
};

struct sim_arms {
    struct sim_arm *arm;
    uint32_t count, seeds;
};

/* Parses argv once for every combination of the compared values. -EINVAL with a sentence. */
int sim_arms_init(struct sim_arms *a, const struct opt_command *usage, int argc, char *const *argv,
                  const struct sim_options *first, struct err *err);
void sim_arms_fini(struct sim_arms *a);

/* Reads the files that the arms name. */
int sim_arms_load(struct sim_arms *a, struct err *err);

/* Runs all arms, `jobs` runs at once (0: one a core), and returns the first failure in order. An arm that
 * is not applicable to its trace is not a failure if there are other arms. */
int sim_arms_run(struct sim_arms *a, uint32_t jobs, struct err *err);

/* Append the results: the report of a single run; of more runs means, intervals, and differences from the
 * first arm. */
int sim_arms_json(const struct sim_arms *a, struct buf *out);
int sim_arms_table(const struct sim_arms *a, struct buf *out);
