/* power.h - the interface of power policies, which choose the clock of each instance.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) a clock is a share of the full one, from POWER_CLOCK_MIN to 1, and a rung of the
 *              ladder. Arithmetic slows down with it and memory does not; where idle time is
 *              injected, the whole step slows down
 *          (2) an instance without a roofline keeps the full clock, unless the policy caps power
 *          (3) absent is not zero: without a known tail nothing is slowed down further
 *          (4) state is plain bytes of a fixed size; zeroed bytes are the first state
 *
 * A row of racks shares one breaker; all instances of the view belong to one row.
 */
#pragma once
#include "base/perf/roofline.h"

#define POWER_STATE_BYTES_MAX 256
#define POWER_CLOCK_MIN 0.2
#define POWER_RUNG 0.05 /* of the ladder of clocks */

/* The priority of an instance's work. */
enum priority {
    PRIORITY_HIGH,
    PRIORITY_LOW, /* is capped first: batch work, loose SLOs */
    PRIORITY_COUNT
};
extern const char *const priority_names[PRIORITY_COUNT + 1]; /* high low, NULL */

/* One instance over the last window. */
struct power_instance {
    const struct roofline *roofline; /* NULL: not known */
    struct perf_shape shape;         /* of its mean step; empty: it computed nothing */
    double busy;                     /* share of the window that steps took, at `clock` */
    double clock;                    /* in force now */
    bool injects_idle;               /* its clock is the share of time in which it computes: watts
                                        fall in proportion to the clock, not to its cube */
    bool tail_known;                 /* enough outputs for the two below */
    double ttft_s, tpot_s;           /* 99th percentiles */
    uint32_t waiting;                /* requests not yet computing */
    enum priority priority;
};

struct power_view {
    const struct power_instance *instance;
    uint32_t count;
    double ttft_slo_s, tpot_slo_s; /* > 0 */
    double power_limit_watts;      /* what the breaker allows; 0: none */
    double drawn_watts;            /* now, of everything behind it */
};

struct power_verdict {
    double *clock;      /* the caller's, one for each instance: written */
    const char *reason; /* static sentence */
    int64_t again_us;   /* ask again no later than this */
};

struct power_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size; /* at most POWER_STATE_BYTES_MAX; may be 0 */
    void (*decide)(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret);
};

#define POLICY(name) extern const struct power_policy power_##name;
#include "policies/power/power.def"
#undef POLICY

extern const struct power_policy *const power_table[];
extern const uint32_t power_count;
#define POWER_DEFAULT "max"

const struct power_policy *power_find(struct str name); /* NULL when there is none */

/* Asks the policy and rounds its clocks up to rungs of the ladder. */
void power_decide(const struct power_policy *p, void *state, const struct power_view *view,
                  int64_t now_us, struct power_verdict *ret);

/* Functions that policies share (power.c). */

/* The steady state of an instance at another clock, with the same requests arriving. Where steps
 * follow each other without a pause, slower steps hold more sessions: the mean step grows until it
 * computes all the work that arrives in its own duration. */
struct power_point {
    double stretch; /* step seconds, times those now */
    double busy;    /* share of time */
    double load;    /* d ln step / d ln work: towards 1 the queue grows without end */
    double watts;   /* mean; 0 without a roofline */
    bool stable;    /* a steady state exists, with at most twice the work in a step */
};
void power_point_at(const struct power_instance *in, double clock, struct power_point *ret);

double power_watts(const struct power_instance *in, double clock); /* watts of power_point_at */
