/* forecast_paths.h - estimates the present level of a rate and the paths it may take from now on.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Counts are kept in buckets of PATHS_BUCKET_S.
 *
 * level   the mean since the last change, over three minutes at most. Each split of these buckets
 *         has two means; the split with the largest difference is a change if the means differ by
 *         more than CHANGED standard deviations. The deviation follows from the scatter of counts
 *         over the last PATHS_MEMORY_S, repeated bursts included. So a steady rate is averaged over
 *         minutes, and a jump is believed within seconds
 * calm    no change upwards was seen for PATHS_MEMORY_S, and no rise of a seventh over a minute
 *         either, which is too little to end the mean
 * paths   a path is the level now plus the course that the level took from some moment within the
 *         last PATHS_MEMORY_S. Paths from moments at equal distances are an empirical distribution
 *         of the errors of the forecast "as now" and of their course in time, so no trend or step
 *         has to be modelled
 *
 * A wall clock that goes back, or a gap of ten minutes without an observation, empties the history. A
 * counter that begins anew, as after a restart of the controller, does not: until a whole bucket is
 * counted the rate is taken to be as before.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define PATHS_BUCKET_S 5
#define PATHS_BUCKETS 256  /* more than the memory has */
#define PATHS_MEMORY_S 600 /* a change within this time may come again */

struct forecast_paths {
    int64_t bucket;             /* number + 1 of the newest whole bucket; 0: none yet */
    uint64_t total;             /* counted up to its end */
    uint32_t known;             /* whole buckets in the rings */
    uint32_t regime;            /* of them since the last change: the level is their mean */
    uint32_t steady;            /* whole buckets since the last rise, or since the first */
    bool partial;               /* the present bucket began before the counter did */
    float count[PATHS_BUCKETS]; /* requests, by number of the bucket */
    float level[PATHS_BUCKETS]; /* requests a second, as estimated at the bucket's end */
};

/* Takes the counter: `total` requests have arrived by now. */
void paths_observe(struct forecast_paths *o, uint64_t total, int64_t now_us);

/* Returns the level in requests a second; 0 without history. */
double paths_level(const struct forecast_paths *o);

/* Returns the standard error of the level, as a share of it. */
double paths_error(const struct forecast_paths *o);

/* Returns true if no rise was seen for PATHS_MEMORY_S, or since the first count: then no path holds a
 * step up. */
bool paths_is_calm(const struct forecast_paths *o);

/* Draws path number `which` of `count`: requests a second for `steps` steps of a bucket from now on.
 * A path from fewer than `steps` buckets ago keeps its last value; without history all paths stay at
 * the level. */
void paths_draw(const struct forecast_paths *o, uint32_t which, uint32_t count, uint32_t steps,
                float *ret);
