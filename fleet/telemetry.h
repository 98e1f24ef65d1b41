/* telemetry.h - measures the demand for one service at one router: windows, counters, lengths.
 *
 * Layer:   fleet (base/wire, base/perf)
 * Threads: one at a time: the router's decision thread, or the simulator
 * Rules:   (1) zeroed bytes are a telemetry that has seen nothing
 *          (2) quantiles and rates cover the last TELEMETRY_WINDOW_US; a window keeps the newest
 *              TELEMETRY_SAMPLES_MAX values, and faster arrivals are measured over the shorter time
 *              that these fill
 *          (3) a request is queued once and leaves the queue once (telemetry_place)
 *          (4) counters rise as long as the telemetry lives
 */
#pragma once

#include "base/wire/sync.h"
#include "policies/scale/view.h"

/* A router's record of prompt and output lengths: of the requests that arrived in the last minutes, and of those that
 * wait. Scaling plans with this distribution instead of two means.
 *
 * Rules:  (1) buckets of five seconds, so that a window needs the same memory at any rate
 *         (2) a request is added once, when it arrives, and taken out of the queue once, with the
 *             same two lengths, when its first token comes or it ends without one
 *         (3) zeroed bytes are an empty window */

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

#define TELEMETRY_WINDOW_US ((int64_t)15000000)
#define TELEMETRY_SAMPLES_MAX 1024

/* A ring of the newest values; the oldest is overwritten. */
struct value_window {
    double value[TELEMETRY_SAMPLES_MAX];
    int64_t at_us[TELEMETRY_SAMPLES_MAX];
    uint32_t next, count;
};
void value_window_add(struct value_window *w, double value, int64_t now_us);
/* Returns mean and quantiles of the values in the window; count 0: there are none. */
void value_window_quantiles(const struct value_window *w, int64_t now_us,
                            struct wire_quantiles *ret);
double value_window_per_s(const struct value_window *w, int64_t now_us);

struct telemetry {
    struct service_demand total;   /* the _total counters */
    struct value_window arrivals;  /* prompt tokens of each */
    struct value_window predicted; /* predicted output tokens of each */
    struct value_window late; /* expected TTFT, in seconds, of requests refused because of it */
    struct value_window ttft_s, tpot_s, e2e_s;
    struct length_window lengths; /* of recent arrivals, and of waiting requests */
};

/* The outcome of a request that ended well. */
struct telemetry_outcome {
    double ttft_s, tpot_s, e2e_s; /* tpot_s 0: the output was one token */
    double ttft_slo_s, tpot_slo_s;
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
};

void telemetry_arrived(struct telemetry *t, uint32_t prompt_tokens, double predicted_tokens,
                       int64_t now_us);

/* A request's place in the queue. It keeps the two lengths that were added, so that the same ones are
 * taken out. Zeroed bytes: not in the queue. */
struct telemetry_place {
    double prompt, output;
    bool queued;
};

/* Adds a request to the queue. `prompt`: tokens that no cache is believed to hold; `output`: predicted
 * tokens. */
void telemetry_queued(struct telemetry *t, struct telemetry_place *place, double prompt,
                      double output, int64_t now_us);
/* Takes a request out of the queue, at its first token or its end, whichever is first. A second call
 * does nothing. */
void telemetry_unqueued(struct telemetry *t, struct telemetry_place *place);

void telemetry_refused(struct telemetry *t); /* at arrival; telemetry_failed follows */
/* Counts a refusal by overload control: the first token was expected after ttft_s. */
void telemetry_refused_late(struct telemetry *t, double ttft_s, int64_t now_us);
void telemetry_failed(struct telemetry *t); /* for every request that did not end well */
/* Returns true if the request met its SLO. */
bool telemetry_finished(struct telemetry *t, const struct telemetry_outcome *o, int64_t now_us);

/* Fills the service's part of a sync message. The caller sets the name, and the held and in-flight
 * figures, which are the dispatch's. */
void telemetry_report(const struct telemetry *t, int64_t now_us, struct service_demand *ret);
