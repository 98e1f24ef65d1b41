/* forecast_paths.h - the level of a rate now, and how far it may have risen some time from now.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Counts are kept in buckets of PATHS_BUCKET_S.
 *
 * level   the mean since the last change, of three minutes at most. A change is the split of these
 *         buckets whose two means differ most, when they differ by more than CHANGED standard
 *         deviations of counts as scattered as those of the last PATHS_MEMORY_S, bursts that come
 *         again and again included. So a steady rate is averaged over minutes, and a jump is
 *         believed within seconds
 * calm    no change upwards was seen for PATHS_MEMORY_S, and no rise of a seventh over a minute
 *         either, which is too little to end the mean
 * paths   what comes is told by what came: a path is the level now plus how the level went on from
 *         some moment within the last PATHS_MEMORY_S. Paths from moments at equal distances are
 *         an empirical distribution of the errors of the forecast "as now", with their course in
 *         time: trends and steps need no names
 *
 * A clock that goes back and ten minutes unseen empty it. A counter that begins anew, as that of a
 * controller does, does not: until a whole bucket was counted all is taken to be as before.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define PATHS_BUCKET_S 5
#define PATHS_BUCKETS 256  /* more than the memory has */
#define PATHS_MEMORY_S 600 /* what changed within so long may do so again */

struct forecast_paths {
    int64_t bucket;             /* number + 1 of the newest whole bucket; 0: none yet */
    uint64_t total;             /* counted up to its end */
    uint32_t known;             /* whole buckets in the rings */
    uint32_t regime;            /* of them since the last change, as far as they make the level */
    uint32_t steady;            /* whole buckets since the last rise, or since the first */
    bool partial;               /* the bucket under way began before the count did */
    float count[PATHS_BUCKETS]; /* requests, by number of the bucket */
    float level[PATHS_BUCKETS]; /* a second, as it was believed at the bucket's end */
};

/* `total` requests have been counted by now. */
void paths_observe(struct forecast_paths *o, uint64_t total, int64_t now_us);

/* Requests a second; 0 without history. */
double paths_level(const struct forecast_paths *o);

/* Standard error of the level, as a share of it. */
double paths_error(const struct forecast_paths *o);

/* No rise was seen for PATHS_MEMORY_S, or since the first count: no path holds a step up. */
bool paths_is_calm(const struct forecast_paths *o);

/* Path number `which` of `count`, in requests a second by steps of a bucket from now on. One that
 * began fewer steps ago stays where it has come to; without history all stay at the level. */
void paths_draw(const struct forecast_paths *o, uint32_t which, uint32_t count, uint32_t steps,
                float *ret);
