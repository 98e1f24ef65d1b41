/* demo.h - the whole loop on this machine: grow under load, shrink after it, compare two policies.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "cli/demo_fleet.h"
#include "cli/load_report.h"
#include "cli/replay.h"

#include <signal.h>

#define DEMO_SAMPLES_MAX 20000
#define DEMO_FIXED_INSTANCES 3 /* the fleet that the policies are compared on */
#define DEMO_ARMS 2

struct demo_options {
    const char *config, *folder, *trace, *summary;
    bool stay;
    double growth_speed, arm_speed; /* arrivals come so many times as fast */
    int64_t growth_us, arm_us;      /* of the replay's clock */
    int64_t arm_from_us;            /* where in the trace the comparison begins */
    uint32_t rounds;                /* of the comparison: each policy once a round */
};

/* Everything that came of one kind of run, over all its rounds. */
struct demo_samples {
    struct load_sample *sample;
    uint32_t count;
    float *itl_s;
    size_t itl_count;
    double seconds;
};

struct demo {
    const struct demo_options *options;
    const volatile sig_atomic_t *interrupted;
    struct demo_fleet fleet;
    struct fleet_status status; /* latest */
    struct trace *trace;
    struct loop *loop;
    double tokens_per_word;
    int64_t started_wall_us;
    uint32_t start_instances, max_instances, end_instances;
    double grown_cost, grown_hours; /* of growing and shrinking */
    double static_max_per_h;        /* every pool at its maximum */
    struct demo_samples growth, arm[DEMO_ARMS];
    uint32_t event_shown;
};

extern const char *const demo_arm_policy[DEMO_ARMS];

/* 0: all went well; 1: it ran and something did not hold; a negative errno: it broke off.
 * -EINTR after Ctrl-C. Everything started is ended, unless `stay` asks for waiting first. */
int demo_run(const struct demo_options *options, const volatile sig_atomic_t *interrupted,
             struct err *err);

/* demo_summary.c: the file, the table, and what did not hold (printed; the count is returned). */
int demo_summary_write(const struct demo *d, struct err *err);
int demo_summary_print(const struct demo *d);
uint32_t demo_summary_judge(const struct demo *d);
