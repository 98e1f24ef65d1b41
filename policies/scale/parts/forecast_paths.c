/* forecast_paths.c - level, rises and paths of a rate, from counts by bucket. */
#include "policies/scale/parts/forecast_paths.h"

#include "base/core/bits.h"

#include <math.h>

#define BUCKET_US ((int64_t)PATHS_BUCKET_S * 1000000)
#define MEMORY_BUCKETS (PATHS_MEMORY_S / PATHS_BUCKET_S)
#define GAP_BUCKETS 128 /* ten minutes unseen: what was before is of another time */
#define LEAST_BUCKETS 2 /* the shortest part that may speak: one bucket may be a burst */
#define MOST_BUCKETS 36 /* three minutes: beyond that a mean is of another time */
#define BURST_BUCKETS 4 /* a burst is no longer than twice that */
/* Standard deviations between two means: a change. Of thirty splits that are tried every five
 * seconds chance alone seldom makes one. */
#define CHANGED 4.0
/* So many do for a rise that has lasted for a minute and is no smaller than this: a slow one. */
#define RISEN 3.0
#define RISEN_SHARE 1.15
#define RISEN_BUCKETS 12
#define FIRST_BUCKETS 12 /* the level of the first minute is a guess: no path begins there */
_Static_assert(MEMORY_BUCKETS < PATHS_BUCKETS, "the ring holds the memory");

static uint32_t place(int64_t bucket)
{
    return (uint32_t)(bucket % PATHS_BUCKETS);
}

/* The count of the k-th newest whole bucket, from 1. */
static double newest(const struct forecast_paths *o, uint32_t k)
{
    return (double)o->count[place(o->bucket - k + PATHS_BUCKETS)];
}

/* The level at its end. */
static double level_ago(const struct forecast_paths *o, uint32_t k)
{
    return (double)o->level[place(o->bucket - k + PATHS_BUCKETS)];
}

/* Variance over mean of counts of `width` buckets each, from neighbours: a jump counts once. */
static double dispersion_of(const struct forecast_paths *o, uint32_t width)
{
    uint32_t n = min_u32(o->known, MEMORY_BUCKETS);
    double sum = 0, newer = 0;
    uint32_t seen = 0;
    for (uint32_t from = 1; from + width - 1 <= n; from += width) {
        double count = 0;
        for (uint32_t k = from; k < from + width; k++)
            count += newest(o, k);
        if (from > 1 && count + newer > 0) {
            sum += (newer - count) * (newer - count) / (newer + count);
            seen++;
        }
        newer = count;
    }
    return seen ? sum / seen : 0;
}

/* The largest at the widths a burst may have, and at least Poisson's 1: arrivals that come in
 * bunches, and bursts that come again and again, look like changes otherwise. */
static double dispersion(const struct forecast_paths *o)
{
    double most = 1;
    for (uint32_t width = 1; width <= BURST_BUCKETS; width *= 2)
        most = fmax(most, dispersion_of(o, width));
    return most;
}

/* The newest k buckets, of mean `now`, rose slowly over those before, z standard deviations. */
static bool is_rise(uint32_t k, double now, double before, double z)
{
    return k >= RISEN_BUCKETS && z > RISEN && now > RISEN_SHARE * before;
}

/* Shortens the regime to where it changed, if it did, and notes rises, slow ones as well. */
static void find_change(struct forecast_paths *o)
{
    double all = 0, recent = 0, most = CHANGED, spread = dispersion(o);
    uint32_t n = o->regime, since = n;
    bool rose = false;
    for (uint32_t k = 1; k <= n; k++)
        all += newest(o, k);
    for (uint32_t k = 1; k < n; k++) {
        recent += newest(o, k);
        if (k < LEAST_BUCKETS || n - k < LEAST_BUCKETS) continue;
        double now = recent / k, before = (all - recent) / (n - k);
        double noise = sqrt(spread * fmax(all, 1) / n * (1.0 / k + 1.0 / (n - k)));
        double z = fabs(now - before) / noise;
        if (is_rise(k, now, before, z)) o->steady = 0;
        if (z <= most) continue;
        most = z;
        since = k;
        rose = now > before;
    }
    o->regime = since;
    if (rose) o->steady = 0;
}

/* Mean count of a bucket since the last change. */
static double mean_count(const struct forecast_paths *o)
{
    double sum = 0;
    for (uint32_t k = 1; k <= o->regime; k++)
        sum += newest(o, k);
    return o->regime ? sum / o->regime : 0;
}

static void close_bucket(struct forecast_paths *o, double count)
{
    o->count[place(o->bucket)] = (float)count;
    o->bucket++;
    o->known = min_u32(o->known + 1, PATHS_BUCKETS);
    o->steady = min_u32(o->steady + 1, PATHS_BUCKETS);
    o->regime = min_u32(o->regime + 1, MOST_BUCKETS);
    find_change(o);
    o->level[place(o->bucket - 1)] = (float)(mean_count(o) / PATHS_BUCKET_S);
}

/* On to that bucket: those that nobody counted are taken to have been like the mean. */
static void pass_over(struct forecast_paths *o, int64_t bucket)
{
    double mean = mean_count(o);
    while (o->bucket < bucket && o->known > 0)
        close_bucket(o, mean);
    o->bucket = bucket;
}

void paths_observe(struct forecast_paths *o, uint64_t total, int64_t now_us)
{
    int64_t bucket = now_us / BUCKET_US + 1, behind = bucket - o->bucket;
    bool begins = o->bucket == 0 || behind < 0 || behind > GAP_BUCKETS;
    bool anew = begins || total < o->total;
    if (!anew && behind == 0) return;
    if (begins) *o = (struct forecast_paths){ .bucket = bucket };
    if (anew || o->partial) {
        pass_over(o, bucket);
        o->partial = anew;
    } else {
        double each = (double)(total - o->total) / (double)behind;
        for (; behind > 0; behind--)
            close_bucket(o, each);
    }
    o->total = total;
}

double paths_level(const struct forecast_paths *o)
{
    return o->known ? level_ago(o, 1) : 0;
}

bool paths_is_calm(const struct forecast_paths *o)
{
    return o->steady >= MEMORY_BUCKETS || o->steady >= o->known;
}

double paths_error(const struct forecast_paths *o)
{
    double sum = mean_count(o) * o->regime;
    return sum > 0 ? fmin(sqrt(dispersion(o) / sum), 1) : 0;
}

void paths_draw(const struct forecast_paths *o, uint32_t which, uint32_t count, uint32_t steps,
                float *ret)
{
    uint32_t known = o->known > FIRST_BUCKETS ? o->known - FIRST_BUCKETS : 0;
    uint32_t memory = min_u32(known, MEMORY_BUCKETS);
    double level = paths_level(o);
    uint32_t least = min_u32(steps / 2, memory / 2); /* buckets ago of the youngest beginning */
    uint32_t span = memory > least ? memory - least : 0;
    uint32_t from = least + (uint32_t)((uint64_t)span * (2 * which + 1) / (2 * count));
    if (from < 1 || from > memory) {
        for (uint32_t k = 0; k < steps; k++)
            ret[k] = (float)level;
        return;
    }
    double base = level_ago(o, from);
    for (uint32_t k = 0; k < steps; k++) {
        uint32_t ago = from > k + 1 ? from - k - 1 : 1;
        ret[k] = (float)fmax(0, level + level_ago(o, ago) - base);
    }
}
