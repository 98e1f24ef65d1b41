/* shape.h - the interface of shapers, which decide when the fleet may follow its signal.
 *
 * Layer: policies (base/core)
 * Rules: (1) a shaper sees the counts that the signal wants and the present ones, never a reason
 *        (2) state is plain bytes of a fixed size; zeroed bytes are the first state
 *        (3) a shaper that looks back removes no instance before it has seen a whole window: a
 *            restarted controller with an empty store must not shrink a fleet it has just found
 *
 * History is a ring of SHAPE_BUCKETS extremes, so that its size is fixed; an extreme therefore
 * lives up to one bucket longer than the window.
 */
#pragma once
#include "base/core/str.h"
#include "policies/scale/view.h"

#define SHAPE_BUCKETS 32
#define SHAPE_STATE_BYTES_MAX 4096

struct scale_shape_config {
    double up_window_s;   /* hpa: up only to the least count wanted within this time */
    double down_window_s; /* window, hpa: down only to the largest count wanted within this time */
    uint32_t up_step_max, down_step_max; /* window: instances a decision and pool; 0: no limit */
    double up_share, down_share;         /* hpa: of the count at the period's start ... */
    uint32_t up_count, down_count;       /* ... or this many instances, whichever allows more */
    double up_period_s, down_period_s;   /* within this many seconds; 0: no limit */
};

/* The counts that the signal wants, by pool. `have` counts the instances that a pool keeps: ready and
 * starting. */
struct scale_shape_ask {
    uint32_t pool_count;
    const uint32_t *want, *have, *ready;
};

struct scale_shaped {
    uint32_t target[SCALE_POOLS_MAX];
    bool limited;      /* the signal wants another count */
    const char *limit; /* static: why; NULL when not limited */
    double hold_s;     /* until the first whole window has passed; 0 when that limits nothing */
};

struct scale_shaper {
    const char *name;   /* as in muster.yaml */
    const char *about;  /* --help and the documents */
    const char *source; /* where the rule comes from */
    uint32_t state_size;
    struct scale_shape_config published; /* its numbers where the configuration has none */
    void (*shape)(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret);
};

extern const struct scale_shaper *const scale_shape_table[];
extern const uint32_t scale_shape_count;
#define SCALE_SHAPER_DEFAULT "window"

const struct scale_shaper *scale_shape_find(struct str name); /* NULL when there is none */

#define POLICY(name) extern const struct scale_shaper scale_shape_##name;
#include "policies/scale/shape/shape.def"
#undef POLICY

/* Functions that shapers share (shape.c). The ring holds the extremes of the wanted counts, by bucket
 * and pool. */
struct shape_ring {
    int64_t first_us; /* start of the unbroken history; 0: none yet */
    int64_t last_us;
    int64_t slot[SHAPE_BUCKETS]; /* number + 1 of the bucket that the extremes hold; 0: unused */
    uint16_t most[SHAPE_BUCKETS][SCALE_POOLS_MAX], least[SHAPE_BUCKETS][SCALE_POOLS_MAX];
};

/* Records `ask->want`. A gap of more than a window, or a wall clock that went back, begins a new
 * history. Returns true once the history is as long as the window. */
bool shape_remember(struct shape_ring *r, double window_s, const struct scale_shape_ask *ask,
                    int64_t now_us);
/* Return the largest and the least count wanted of a pool over the last span_s <= window_s. */
uint32_t shape_most(const struct shape_ring *r, double window_s, double span_s, uint32_t pool);
uint32_t shape_least(const struct shape_ring *r, double window_s, double span_s, uint32_t pool);
