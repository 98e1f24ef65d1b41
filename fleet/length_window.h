/* length_window.h - lengths of what arrived in the last minutes and of what waits: what a router
 * keeps so that scaling may plan with a distribution instead of two means.
 *
 * Layer:  policies (base/core)
 * Rules:  (1) buckets of five seconds, so that a window needs the same memory at any rate
 *         (2) a request is added once when it arrives and taken out of the queue once, with the
 *             same two lengths, when its first token comes or it ends without one
 *         (3) zeroed bytes are an empty window
 */
#pragma once
#include "policies/scale/view.h"

#define LENGTH_BUCKET_US ((int64_t)5000000)
#define LENGTH_BUCKETS 60 /* five minutes: what is expected to come is like these */

struct length_window {
    int64_t number[LENGTH_BUCKETS];        /* of the bucket that a place holds, + 1; 0: none */
    struct lengths length[LENGTH_BUCKETS]; /* sums */
    struct lengths queued;                 /* sums */
    int64_t arrived_us;                    /* the newest; of no meaning before one */
};

/* `prompt`: tokens that no cache is believed to hold; `output`: as predicted. */
void length_window_arrived(struct length_window *r, double prompt, double output, int64_t now_us);
void length_window_left(struct length_window *r, double prompt, double output);

/* Means over the newest `buckets` buckets, the current one included; count 0: nothing came. */
void length_window_expected(const struct length_window *r, uint32_t buckets, int64_t now_us,
                            struct lengths *ret);

/* Means of what waits; count 0: nothing. */
void length_window_queued(const struct length_window *r, struct lengths *ret);
