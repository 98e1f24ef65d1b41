/* result.h - holds the result of a run, and counts every request into it as it ends.
 *
 * Layer: simulator
 */
#pragma once
#include "simulator/config.h"
#include "simulator/flight.h"

#define SIM_HISTOGRAM_BINS 2048

enum sim_end {
    SIM_COMPLETED,
    SIM_REJECTED,
    SIM_UNFINISHED,
    SIM_TOO_LONG,
    SIM_FAILED,
    SIM_END_COUNT
};

/* The outcome of one request. */
struct sim_outcome {
    enum sim_end end;
    uint32_t service;
    uint32_t instance; /* of the first token */
    int64_t arrival_us, first_us, last_us;
    uint32_t generated, cached_tokens;
};

/* A histogram with log-spaced bins of one per cent (values in microseconds). */
struct sim_histogram {
    uint64_t count[SIM_HISTOGRAM_BINS];
    uint64_t total;
    double sum_us;
    double last_us; /* and its bin, as sessions of one step have the same gap: saves a logarithm */
    uint32_t last_bin;
};

struct sim_share {
    double instance_seconds;
    uint32_t instances_max;
};

struct sim_result {
    struct sim_outcome *outcome; /* one a request, in the trace's order */
    uint32_t offered, ended[SIM_END_COUNT];
    uint64_t refused_429, refused_503; /* refused at a bound, by status */
    struct sim_histogram itl;
    uint64_t prompt_tokens, hit_tokens, preemptions, steps, events, swaps;
    uint64_t handoffs, migrations, migrations_dropped, fetches, fetched_tokens, role_changes;
    uint64_t resumed, resumed_tokens; /* outputs that outlived their instance, and their tokens */
    const char *role_reason;          /* of the role policy's last look; NULL: no look */
    /* Foreseen by it, of its choice and of the next best; < 0: it does not estimate. */
    double role_rps, role_runner_up_rps;
    double link_bytes, stall_s; /* KV copied; time for which transferred sessions stood still */
    /* The busiest instance's prompt tokens a ready second, over the mean of all: in a fleet that does
     * not scale, its share of the tokens times the number of instances. */
    double hotspot;
    double span_s;  /* first arrival to last end */
    double stood_s; /* first arrival to end of billing; with `drain_s` if a request never ended */
    double instance_seconds, cost_usd, energy_j, gpu_seconds;
    uint32_t instances_max, scale_actions;
    struct sim_share service[SIM_SERVICES_MAX]; /* each service's share of the instances */
    uint32_t launches, launches_failed, lost;   /* instances, if the fleet scales */
    double phase_s[SIM_PHASE_COUNT];            /* drawn for all launches */
    uint32_t trips; /* looks of the power policy at which the breaker was overdrawn */
    /* Until the fleet was back at its floor for good; 0 if it does not scale. */
    double floor_s, floor_instance_seconds;
    uint64_t digest; /* over (id, instance, first, last) of every request */
    double cpu_s;
    bool extrapolated; /* beyond validated hardware or ranges */
};

void sim_result_fini(struct sim_result *r);

/* Returns true if the request completed within its service's SLO. */
bool sim_outcome_kept(const struct sim_outcome *o, const struct sim_config *c);

double sim_outcome_ttft_s(const struct sim_outcome *o);

/* Returns the mean time per token after the first; 0: there were none. */
double sim_outcome_tpot_s(const struct sim_outcome *o);

void sim_histogram_add(struct sim_histogram *h, double us, uint64_t count);

/* Returns the q-th quantile (0..1) of a histogram, in seconds. */
double sim_histogram_quantile_s(const struct sim_histogram *h, double q);

/* Count the outcome of every request as it happens. */

int tally_init(struct sim_result *r, const struct trace *trace, struct err *err);

/* Counts `count` tokens evenly spaced from first_us to last_us; the very first has no gap before it. */
void tally_tokens(struct sim_result *r, struct flight *f, uint32_t count, int64_t first_us,
                  int64_t last_us);
void tally_end(struct sim_result *r, const struct flight *f, enum sim_end end);

/* Counts requests that never arrived or never ended as unfinished, and computes the digest. */
void tally_close(struct sim_result *r);
