/* last_hour.h - the last hour of the fleet in a few numbers, for the console's charts.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 * Rules:   a bounded ring in memory: a sample every LAST_HOUR_PERIOD_US, the oldest is dropped. A
 *          controller that starts again begins anew; dashboards keep more (metrics)
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define LAST_HOUR_PERIOD_US 5000000
#define LAST_HOUR_SAMPLES_MAX 720 /* an hour */

struct hour_sample {
    int64_t at_us; /* fleet time */
    double arrivals_s;
    uint32_t in_flight, held, ready; /* over all services */
    bool ttft_known, tpot_known;     /* the router that measured most had some */
    double ttft_p50_s, ttft_p99_s, tpot_p50_s;
};

struct last_hour {
    struct hour_sample sample[LAST_HOUR_SAMPLES_MAX];
    uint32_t first, count;
};

struct control;
struct json_writer;

/* Takes a sample when one is due. */
void last_hour_keep(struct control *c, int64_t now_us);

/* "history": {"period_s":5,"samples":[{..},..]}, oldest first; dates in place of fleet time. */
void last_hour_put(struct json_writer *w, const struct control *c);
