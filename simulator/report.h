/* report.h - sums a run up on a page: quantiles, goodput, cost, and how fast the simulator was.
 *
 * Layer:   simulator (base/core)
 * Threads: pure
 * Rules:   (1) quantiles of TTFT, TPOT and JCT are over all offered requests, a miss being infinite;
 *              means are over the completed ones
 *          (2) ITL is over the gaps between generated tokens
 *          (3) the SLO is met by a completed request whose TTFT and TPOT are within it; one token
 *              has no TPOT to miss
 *          (4) an infinite value is null in JSON and "inf" in tables; an unknown one, such as a cost
 *              without prices or an energy without hardware, is null and "-"
 */
#pragma once
#include "base/core/json.h"
#include "simulator/result.h"
#include "simulator/stats.h"

/* The figures of one service. */
struct report_service {
    uint32_t number;
    uint32_t offered, completed;
    struct sim_slo slo;
    double attainment;
    double instances_mean, instances_max;
};

struct report {
    uint32_t offered, completed, rejected, unfinished, too_long, failed;
    uint64_t refused_429, refused_503; /* rejected requests by their status */
    struct stats_quantiles ttft_s, tpot_s, itl_s, jct_s;
    struct sim_slo slo; /* NAN where services have different ones */
    struct report_service service[SIM_SERVICES_MAX];
    uint32_t service_count;
    double attainment, goodput_rps;
    double token_hit_ratio, hotspot;
    uint64_t preemptions, swaps, handoffs, migrations, migrations_dropped, fetches, fetched_tokens;
    uint64_t resumed, resumed_tokens;
    uint64_t role_changes, breaker_trips;
    const char *role_reason; /* of the last look at roles; NULL: no look */
    /* Foreseen by it, of its choice and of the next best; or NAN. */
    double role_rps, role_runner_up_rps;
    double link_gb, stall_s; /* KV copied; time for which transferred sessions stood still */
    double instances_mean, instances_max;
    double instances_floor_mean; /* until the fleet was back at its floor; NAN: it does not scale */
    double gpu_hours, cost_usd, energy_kwh;
    uint64_t scale_actions, launches, launches_failed, lost;
    double phase_s[SIM_PHASE_COUNT]; /* of a launch, mean; NAN without one */
    uint64_t events, steps, seed, digest;
    double cpu_s;
    bool extrapolated;
};

/* 0, or -ENOMEM. */
int report_make(const struct sim_config *config, const struct sim_result *result,
                struct report *ret);

void report_json(const struct report *r, struct json_writer *w); /* one object */
int report_table(const struct report *r, struct buf *out);

/* A metric by which arms are compared. */
struct report_metric {
    const char *name; /* as its path in the JSON form */
    const char *title;
    double factor; /* from the value to the one in tables */
    int digits;
    bool shown; /* in tables; JSON has all */
    bool share; /* differences are points, not per cent */
    double (*value)(const struct report *r);
};
extern const struct report_metric report_metrics[];
extern const uint32_t report_metric_count;
