/* scale_outlook.h - the level of a rate now, and how far it may have risen some time from now.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Counts are kept in buckets of OUTLOOK_BUCKET_S. The level is the mean since the last change: a
 * change is the split of the recent buckets whose two means differ most, when they differ by more
 * than CHANGED standard deviations of counts as scattered as those of the last OUTLOOK_MEMORY_S, bursts
 * that come again and again included. A steady rate is averaged over minutes, a jump is believed
 * within seconds; a rise of a seventh over a minute, too small to end the mean, ends the calm. What
 * comes is told by what came: a path is the level now plus how the level went on from some moment
 * within the last OUTLOOK_MEMORY_S. Paths from moments at equal distances are an empirical distribution of
 * the errors of the forecast "as now", with their course in time: trends and steps need no names.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define OUTLOOK_BUCKET_S 5
#define OUTLOOK_BUCKETS 256
#define OUTLOOK_MEMORY_S 600.0

struct outlook {
    int64_t bucket;  /* number + 1 of the newest whole bucket; 0: none yet */
    uint64_t total;  /* counted up to its end */
    uint32_t known;  /* whole buckets in the ring */
    uint32_t regime; /* of them since the last change */
    uint32_t steady; /* whole buckets since the level rose last, or since the first */
    bool partial;    /* the bucket under way began before we did */
    float count[OUTLOOK_BUCKETS], level[OUTLOOK_BUCKETS];
};

/* `total` has been counted by now. */
void outlook_observe(struct outlook *o, uint64_t total, int64_t now_us);

/* A second; 0 without history. */
double outlook_level(const struct outlook *o);

/* Standard error of the level, as a share of it. */
double outlook_error(const struct outlook *o);

/* Whether no rise was seen for OUTLOOK_MEMORY_S, or since the first count: no path holds a step up. */
bool outlook_is_calm(const struct outlook *o);

/* Path number `which` of `count`, by steps of a bucket from now on. A path that is younger than its
 * steps goes on as now. */
void outlook_path(const struct outlook *o, uint32_t which, uint32_t count, uint32_t steps,
                  float *ret);
