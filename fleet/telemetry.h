/* telemetry.h - the demand for one service as one router measures it: windows, counters, lengths.
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
#include "fleet/length_window.h"

#define TELEMETRY_WINDOW_US ((int64_t)15000000)
#define TELEMETRY_SAMPLES_MAX 1024

/* The newest values; the oldest is overwritten. */
struct value_window {
    double value[TELEMETRY_SAMPLES_MAX];
    int64_t at_us[TELEMETRY_SAMPLES_MAX];
    uint32_t next, count;
};
void value_window_add(struct value_window *w, double value, int64_t now_us);
/* count 0 when nothing fell into the window. */
void value_window_quantiles(const struct value_window *w, int64_t now_us,
                            struct wire_quantiles *ret);
double value_window_per_s(const struct value_window *w, int64_t now_us);

struct telemetry {
    struct service_demand total;   /* the _total counters */
    struct value_window arrivals;  /* prompt tokens of each */
    struct value_window predicted; /* predicted output tokens of each */
    struct value_window late; /* seconds to the first token of those that were refused for it */
    struct value_window ttft_s, tpot_s, e2e_s;
    struct length_window lengths; /* of what arrived lately, and of what waits */
};

/* A request that ended well. */
struct telemetry_outcome {
    double ttft_s, tpot_s, e2e_s; /* tpot_s 0: the output was one token */
    double ttft_slo_s, tpot_slo_s;
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
};

void telemetry_arrived(struct telemetry *t, uint32_t prompt_tokens, double predicted_tokens,
                       int64_t now_us);

/* A request's place in the queue: what goes out is what went in. Zeroed bytes: not in it. */
struct telemetry_place {
    double prompt, output;
    bool queued;
};

/* `prompt`: tokens that no cache is believed to hold; `output`: as predicted. */
void telemetry_queued(struct telemetry *t, struct telemetry_place *place, double prompt,
                      double output, int64_t now_us);
/* At its first token or its end, whichever is first; again: nothing. */
void telemetry_unqueued(struct telemetry *t, struct telemetry_place *place);

void telemetry_refused(struct telemetry *t); /* as it arrived; telemetry_failed follows */
/* The same, by overload control: its first token was expected after ttft_s. */
void telemetry_refused_late(struct telemetry *t, double ttft_s, int64_t now_us);
void telemetry_failed(struct telemetry *t); /* every request that ended otherwise than well */
void telemetry_finished(struct telemetry *t, const struct telemetry_outcome *o, int64_t now_us);

/* The service's part of a sync message; its name is the caller's, held and in-flight figures are the
 * dispatch's. */
void telemetry_report(const struct telemetry *t, int64_t now_us, struct service_demand *ret);
