/* load_report.h - what a load run showed: percentiles, goodput, failures by kind.
 *
 * Layer:   cli (simulator/stats, base/core)
 * Rules:   (1) a request that failed is a miss: it counts as offered and never meets the SLO
 *          (2) percentiles are exact, over requests that were answered whole
 *          (3) TPOT of a request is (end - first token) / (tokens - 1), for two tokens or more
 */
#pragma once
#include "base/core/json.h"
#include "cli/load/load_run.h"
#include "simulator/stats.h"

struct load_slo {
    double ttft_s, tpot_s;
};

struct load_report {
    uint32_t sent, ok, failed;
    uint32_t failed_by[LOAD_OUTCOME_COUNT];
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    struct stats_quantiles ttft_s, tpot_s, itl_s, e2e_s;
    double duration_s; /* from the start to the last end */
    struct load_slo slo;
    double attainment;  /* share of sent requests within the SLO */
    double goodput_rps; /* those, by the second */
    double concordance; /* of predicted P50 with true lengths; < 0: no predictions */
    double p90_coverage;
};

/* `include` selects samples (NULL: all). 0, or -ENOMEM. */
int load_report_make(const struct load_sample *sample, uint32_t count,
                     bool (*include)(void *arg, uint32_t index), void *arg, const float *itl_s,
                     size_t itl_count, struct load_slo slo, struct load_report *ret);

void load_report_json(const struct load_report *r, struct json_writer *w); /* one object */
int load_report_table(const struct load_report *r, struct buf *out);

/* Members of that object: {"sent", "ok", "failed"}, {"prompt", "cached", "generated"}, {"ttft_s",
 * "tpot_s", "attainment"}. */
void load_requests_json(struct json_writer *w, const struct load_report *r);
void load_tokens_json(struct json_writer *w, const struct load_report *r);
void load_slo_json(struct json_writer *w, const struct load_report *r);
