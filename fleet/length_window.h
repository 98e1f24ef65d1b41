/* length_window.h - a router's record of prompt and output lengths: of the requests that arrived in
 * the last minutes, and of those that wait. Scaling plans with this distribution instead of two means.
 *
 * Layer:  fleet (policies/scale)
 * Rules:  (1) buckets of five seconds, so that a window needs the same memory at any rate
 *         (2) a request is added once, when it arrives, and taken out of the queue once, with the
 *             same two lengths, when its first token comes or it ends without one
 *         (3) zeroed bytes are an empty window
 */
#pragma once
#include "policies/scale/view.h"

#define LENGTH_BUCKET_US ((int64_t)5000000)
#define LENGTH_BUCKETS 60 /* five minutes: coming requests are expected to be like these */

struct length_window {
    int64_t number[LENGTH_BUCKETS];        /* of the bucket in this place, + 1; 0: none */
    struct lengths length[LENGTH_BUCKETS]; /* sums */
    struct lengths queued;                 /* sums */
    int64_t arrived_us;                    /* last arrival; no meaning before the first */
};

/* Adds a request. `prompt`: tokens that no cache is believed to hold; `output`: predicted tokens. */
void length_window_arrived(struct length_window *r, double prompt, double output, int64_t now_us);
void length_window_left(struct length_window *r, double prompt, double output);

/* Returns the means over the newest `buckets` buckets, the current one included; count 0: no request
 * arrived in them. */
void length_window_expected(const struct length_window *r, uint32_t buckets, int64_t now_us,
                            struct lengths *ret);

/* Returns the means over the requests that wait; count 0: none waits. */
void length_window_queued(const struct length_window *r, struct lengths *ret);
