/* demo.h - what the phases of the demo keep, and the summary that is made of it.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "cli/demo/config.h"
#include "cli/demo/demo_fleet.h"
#include "cli/load/load_report.h"

#define DEMO_SAMPLES_MAX 20000
#define DEMO_ARMS 3
#define DEMO_OURS 0   /* the default policy's arm */
#define DEMO_THEIRS 1 /* the arm that it is held against */

struct demo_options {
    struct str config, folder, trace, summary;
    int64_t growth_us, arm_us;      /* of the replay's clock */
    int64_t arm_from_us;            /* where in the trace the comparison begins */
    int64_t rounds;                 /* of the comparison: each policy once a round */
    double speed;                   /* arrivals come so many times as fast; 0: as measured */
    double growth_speed, arm_speed; /* deprecated: `speed` for one phase */
    bool stay;
};

/* Everything that came of one kind of run, over all its rounds. */
struct demo_samples {
    struct load_sample *sample;
    uint32_t count;
    float *itl_s;
    size_t itl_count;
    double seconds;
};

/* Parts of the growing phase, by the time at which a request was due. */
enum demo_phase { DEMO_BEFORE, DEMO_WHILE, DEMO_AFTER, DEMO_PHASES };

struct demo {
    const struct demo_options *options;
    struct config *config;
    char config_path[320]; /* of the file that the fleet runs on */
    struct demo_machine machine;
    struct demo_shape shape;
    struct demo_sizing sizing;
    double growth_speed, arm_speed;
    struct demo_fleet fleet;
    struct fleet_status status; /* latest */
    struct trace *trace;
    struct loop *loop;
    double tokens_per_word;
    int64_t started_wall_us, started_us;
    int64_t load_us;  /* when the growing load began; 0: it has not, or it has ended */
    int64_t grow_us;  /* from there to the first decision for a larger fleet; 0: none yet */
    int64_t grown_us; /* from there until the fleet was at its largest */
    uint32_t start_instances, max_instances, end_instances;
    uint32_t rounds_done;
    double grown_cost, grown_hours; /* of growing and shrinking */
    double static_max_per_h;        /* every pool at its maximum */
    struct demo_samples growth, arm[DEMO_ARMS];
    uint32_t event_shown;
};

extern const char *const demo_arm_policy[DEMO_ARMS];
extern const char *const demo_phase_name[DEMO_PHASES];

/* The phase of a request that was due so long after the load began. */
enum demo_phase demo_phase_of(const struct demo *d, int64_t due_us);

/* demo_summary.c: the file, the table, and what did not hold (printed; the count is returned). */
int demo_summary_write(const struct demo *d, struct err *err);
int demo_summary_print(const struct demo *d);
uint32_t demo_summary_judge(const struct demo *d);
