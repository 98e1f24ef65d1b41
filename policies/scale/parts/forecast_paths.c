/* forecast_paths.c - estimates level, rises and paths of a rate from counts by bucket. */
#include "policies/scale/parts/forecast_paths.h"

#include "base/core/bits.h"

#include <math.h>

#define BUCKET_US ((int64_t)PATHS_BUCKET_S * 1000000)
#define MEMORY_BUCKETS (PATHS_MEMORY_S / PATHS_BUCKET_S)
#define GAP_BUCKETS 128 /* ten minutes without a reading: older counts say nothing of now */
#define LEAST_BUCKETS 2 /* the shortest part of a split: one bucket may be a burst */
#define MOST_BUCKETS 36 /* three minutes: older counts say too little of the level now */
#define BURST_BUCKETS 4 /* a burst is no longer than twice that */
/* Standard deviations between two means that make a change. About thirty splits are tried every five
 * seconds; chance alone seldom makes one a change. */
#define CHANGED 4.0
/* Fewer deviations suffice for a slow rise: one of at least RISEN_SHARE that has lasted a minute. */
#define RISEN 3.0
#define RISEN_SHARE 1.15
#define RISEN_BUCKETS 12
#define FIRST_BUCKETS 12 /* the level of the first minute is a guess: no path begins there */
_Static_assert(MEMORY_BUCKETS < PATHS_BUCKETS, "the ring holds the memory");

static uint32_t place(int64_t bucket)
{
    return (uint32_t)(bucket % PATHS_BUCKETS);
}

/* Returns the count of the k-th newest whole bucket, from 1. */
static double newest(const struct forecast_paths *o, uint32_t k)
{
    return (double)o->count[place(o->bucket - k + PATHS_BUCKETS)];
}

/* Returns the level at the end of the k-th newest whole bucket. */
static double level_ago(const struct forecast_paths *o, uint32_t k)
{
    return (double)o->level[place(o->bucket - k + PATHS_BUCKETS)];
}

/* Returns the variance over the mean of counts of `width` buckets each, from differences of
 * neighbours, so that a jump counts only once. */
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

/* Returns the largest dispersion at the widths a burst may have, at least Poisson's 1: arrivals in
 * bunches and repeated bursts would otherwise look like changes. */
static double dispersion(const struct forecast_paths *o)
{
    double most = 1;
    for (uint32_t width = 1; width <= BURST_BUCKETS; width *= 2)
        most = fmax(most, dispersion_of(o, width));
    return most;
}

/* Returns true if the newest k buckets, of mean `now`, are a slow rise over those before, z standard
 * deviations above them. */
static bool is_rise(uint32_t k, double now, double before, double z)
{
    return k >= RISEN_BUCKETS && z > RISEN && now > RISEN_SHARE * before;
}

/* Cuts the regime at its clearest change, if there is one, and notes rises, slow ones as well. */
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

/* Returns the mean count of a bucket since the last change. */
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

/* Moves on to that bucket; buckets that were not counted get the mean count. */
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
    uint32_t least = min_u32(steps / 2, memory / 2); /* the youngest start, in buckets ago */
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
