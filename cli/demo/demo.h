/* demo.h - the data of the demo's phases, its summary, and its own fleet: a controller, a router, and readings
 * of their APIs.
 *
 * Layer:    cli (base/io)
 * Lifetime: controller and router die with the demo; demo_fleet_stop ends the instances, or they end
 *           themselves once their controller is gone for longer than their grace
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/file.h"
#include "base/io/proc.h"
#include "cli/demo/sizing.h"
#include "cli/load/load_run.h"

#define FLEET_POOLS_MAX 16
#define FLEET_INSTANCES_MAX 64
#define FLEET_NAME_MAX 64
#define FLEET_EVENTS_MAX 256

struct fleet_pool {
    char name[FLEET_NAME_MAX];
    uint32_t ready, max;
    double price_per_h;
};

struct fleet_instance {
    char name[FLEET_NAME_MAX];
    bool ready;
    uint16_t port; /* of its engine; 0: not known */
};

/* One reading of GET /api/v1/status. */
struct fleet_status {
    char service[FLEET_NAME_MAX];
    double slo_ttft_s, slo_tpot_s;
    struct fleet_pool pool[FLEET_POOLS_MAX];
    uint32_t pool_count;
    struct fleet_instance instance[FLEET_INSTANCES_MAX];
    uint32_t instance_count; /* all that are not ended */
    uint32_t ready;
    double cost_total;
};

/* A change of one pool that a decision made. */
struct fleet_event {
    int64_t at_us; /* wall clock */
    char pool[FLEET_NAME_MAX];
    uint32_t from, to;
    char reason[192];
};

struct demo_fleet {
    char folder[256]; /* state, secret and logs */
    char secret[2 * FILE_SECRET_BYTES + 1];
    struct proc controller, router;
    uint16_t controller_port, router_port;
    struct fleet_event event[FLEET_EVENTS_MAX];
    uint32_t event_count;
    uint64_t decision_seen;
};

/* Starts controller and router on free ports of 127.0.0.1 with their state in `folder`, and waits until
 * they are healthy. */
int demo_fleet_start(struct demo_fleet *f, const char *config_path, const char *folder,
                     struct err *err);

int demo_fleet_status(struct demo_fleet *f, struct fleet_status *ret, struct err *err);

/* Appends to f->event the changes that decisions made since the last call; returns how many are new. */
int demo_fleet_events(struct demo_fleet *f, struct err *err);

/* Override policies: set a pool's count (count < 0 gives it back to the policy), set the routing policy,
 * empty the caches of every ready engine. */
int demo_fleet_scale(struct demo_fleet *f, const char *service, const char *pool, int count,
                     struct err *err);

int demo_fleet_route(struct demo_fleet *f, const char *policy, struct err *err);
int demo_fleet_reset_caches(struct demo_fleet *f, const struct fleet_status *s, struct err *err);

bool demo_fleet_is_alive(const struct demo_fleet *f,
                         const char **ret_dead); /* names the process that is not */

/* Ends everything, instances first; safe after a failed start. */
void demo_fleet_stop(struct demo_fleet *f);

#define DEMO_SAMPLES_MAX 20000
#define DEMO_ARMS 3
#define DEMO_OURS 0   /* the default policy's arm */
#define DEMO_THEIRS 1 /* the arm that it is compared with */

struct demo_options {
    struct str config, folder, trace, summary;
    int64_t growth_us, arm_us;      /* in the replay's time */
    int64_t arm_from_us;            /* where in the trace the comparison begins */
    int64_t rounds;                 /* of the comparison: each policy once a round */
    double speed;                   /* arrivals come so many times as fast; 0: as measured */
    double growth_speed, arm_speed; /* deprecated: `speed` for one phase */
    bool stay;
};

/* All samples of one kind of run, over all its rounds. */
struct demo_samples {
    struct load_sample *sample;
    uint32_t count;
    float *itl_s;
    size_t itl_count;
    double seconds;
};

/* Parts of the growing phase, by the time at which a request is due. */
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

/* Returns the phase of a request that was due this long after the load began. */
enum demo_phase demo_phase_of(const struct demo *d, int64_t due_us);

/* demo_summary.c: write the file, print the table, print the expectations that failed and return their
 * number. */
int demo_summary_write(const struct demo *d, struct err *err);
int demo_summary_print(const struct demo *d);
uint32_t demo_summary_judge(const struct demo *d);
