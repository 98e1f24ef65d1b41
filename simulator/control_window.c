/* control_window.c - sliding windows over buckets of five seconds. */
#include "simulator/control_window.h"

#include "base/core/bits.h"
#include "policies/scale_recent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_US SCALE_RECENT_BUCKET_US
#define BUCKETS 12 /* a minute of latencies and rates */
#define BINS 512
#define BIN_LEAST_S 1e-4
#define BIN_STEP 1.04
#define COUNT_MIN 10 /* answers before their P90 means anything, as the controller has it */

struct bins {
    int64_t bucket[BUCKETS]; /* number + 1 */
    uint32_t count[BUCKETS][BINS];
};

struct control_window {
    struct bins ttft, tpot;
    struct scale_recent recent;
    int64_t first_us, arrived_us;
    uint64_t arrivals, met, missed;
};

struct control_window *control_window_new(void)
{
    struct control_window *w = calloc(1, sizeof *w);
    if (w) w->first_us = w->arrived_us = -1;
    return w;
}

void control_window_free(struct control_window *w)
{
    free(w);
}

static void bins_add(struct bins *b, double seconds, int64_t now_us)
{
    int64_t number = now_us / BUCKET_US;
    uint32_t at = (uint32_t)(number % BUCKETS);
    if (b->bucket[at] != number + 1) {
        memset(b->count[at], 0, sizeof b->count[at]);
        b->bucket[at] = number + 1;
    }
    double k = log(fmax(seconds, BIN_LEAST_S) / BIN_LEAST_S) / log(BIN_STEP);
    b->count[at][min_u32((uint32_t)k, BINS - 1)]++;
}

/* The q-th quantile of the window; false with too few in it. */
static bool bins_quantile(const struct bins *b, int64_t now_us, double q, double *ret)
{
    int64_t number = now_us / BUCKET_US;
    uint32_t sum[BINS] = { 0 };
    uint64_t total = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        int64_t at = b->bucket[i] - 1;
        if (at < 0 || at > number || number - at >= BUCKETS) continue;
        for (uint32_t k = 0; k < BINS; k++) {
            sum[k] += b->count[i][k];
            total += b->count[i][k];
        }
    }
    if (total < COUNT_MIN) return false;
    uint64_t left = (uint64_t)ceil(q * (double)total);
    uint32_t k = 0;
    for (; k < BINS - 1 && left > sum[k]; k++)
        left -= sum[k];
    *ret = BIN_LEAST_S * pow(BIN_STEP, k + 0.5);
    return true;
}

void control_window_arrived(struct control_window *w, uint32_t prompt, double predicted,
                            int64_t now_us)
{
    scale_recent_arrived(&w->recent, prompt, predicted, now_us);
    if (w->first_us < 0) w->first_us = now_us;
    w->arrived_us = now_us;
    w->arrivals++;
}

void control_window_left(struct control_window *w, uint32_t prompt, double predicted)
{
    scale_recent_left(&w->recent, prompt, predicted);
}

void control_window_ttft(struct control_window *w, double seconds, int64_t now_us)
{
    bins_add(&w->ttft, seconds, now_us);
}

void control_window_tpot(struct control_window *w, double seconds, int64_t now_us)
{
    bins_add(&w->tpot, seconds, now_us);
}

void control_window_judged(struct control_window *w, bool met)
{
    *(met ? &w->met : &w->missed) += 1;
}

void control_window_demand(struct control_window *w, int64_t now_us, struct scale_demand *ret)
{
    struct scale_demand d = { .present = true,
                              .arrivals_total = w->arrivals,
                              .slo_known = true,
                              .slo_met_total = w->met,
                              .slo_missed_total = w->missed };
    int64_t number = now_us / BUCKET_US;
    struct scale_lengths lately;
    scale_recent_expected(&w->recent, SCALE_RECENT_BUCKETS, now_us, &d.expected);
    scale_recent_expected(&w->recent, BUCKETS, now_us, &lately);
    scale_recent_queued(&w->recent, &d.queued);
    d.idle_s = w->arrived_us < 0 ? 1e9 : (double)(now_us - w->arrived_us) / 1e6;

    /* The newest bucket is as old as it is, the window no longer than there is history. */
    double part_s = (double)(now_us - number * BUCKET_US) / 1e6;
    double full_s = (BUCKETS - 1) * (double)BUCKET_US / 1e6 + part_s;
    double seen_s = w->first_us < 0 ? full_s : (double)(now_us - w->first_us) / 1e6;
    d.arrivals_s = lately.count / fmax(1, fmin(full_s, seen_s));
    scale_demand_means(&d, lately.count > 0 ? &lately : &d.expected);
    d.ttft_known = bins_quantile(&w->ttft, now_us, 0.9, &d.ttft_s);
    d.tpot_known = bins_quantile(&w->tpot, now_us, 0.9, &d.tpot_s);
    *ret = d;
}
