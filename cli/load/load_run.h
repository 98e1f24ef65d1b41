/* load_run.h - sends requests at given times, however late replies are, and reports the outcome of each.
 *
 * Layer:    cli (simulator/stats, base/core, base/io)
 * Threads:  one loop, the caller's
 * Method:   open loop: a request is timed from the moment it was due, so a slow server cannot slow
 *           the load down and hide its own delay (coordinated omission)
 * Lifetime: samples belong to the run; bodies are made when due and dropped when sent
 * Report:   (1) a request that failed is a miss: it counts as offered and never meets the SLO
 *           (2) percentiles are exact, over requests with a whole reply
 *           (3) TPOT of a request is (end - first token) / (tokens - 1), for two tokens or more
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/loop.h"
#include "simulator/stats.h"

#define LOAD_REQUESTS_MAX 1000000
#define LOAD_ITL_MAX 4000000 /* gaps kept for quantiles; later ones are counted only */
#define LOAD_INSTANCE_MAX 64

enum load_outcome {
    LOAD_PENDING,
    LOAD_OK,
    LOAD_REFUSED,     /* status 4xx or 5xx */
    LOAD_UNREACHABLE, /* no connection */
    LOAD_CUT,         /* the stream ended without its end */
    LOAD_TIMED_OUT,
    LOAD_BAD_REPLY, /* not what an OpenAI server sends */
    LOAD_OUTCOME_COUNT
};

const char *load_outcome_name(enum load_outcome outcome);

struct load_sample {
    int64_t due_us; /* since the start of the run */
    enum load_outcome outcome;
    int status;
    int64_t ttft_us, e2e_us; /* from due_us; 0 until known */
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    double predicted_p50, predicted_p90; /* by the router; 0: no prediction */
    bool cut_by_limit;                   /* finish_reason was length */
    char instance[LOAD_INSTANCE_MAX];
};

struct load_config {
    struct str host;
    bool tls;
    struct str ca; /* file; empty: the system's */
    uint16_t port;
    struct str model;
    struct str api_key; /* may be empty */
    uint32_t max_tokens;
    double temperature;
    int64_t timeout_us; /* for one request */

    /* due_us gives the time of request `index` in us since the start of the run; message appends its
     * user message. */
    uint32_t count;
    int64_t (*due_us)(void *arg, uint32_t index);
    int (*message)(void *arg, uint32_t index, struct buf *out);
    void (*on_end)(void *arg, uint32_t index, const struct load_sample *sample); /* optional */
    void *arg;
};

struct load_run;

int load_run_new(struct loop *l, const struct load_config *config, struct load_run **ret,
                 struct err *err);

void load_run_free(struct load_run *run); /* cancels open requests */

CLEANUP_FREEP(load_run, struct load_run)

/* Starts the run; requests go out from the loop. */
int load_run_start(struct load_run *run, struct err *err);

bool load_run_done(const struct load_run *run);
uint32_t load_run_sent(const struct load_run *run);
uint32_t load_run_ended(const struct load_run *run);
int64_t load_run_started_us(const struct load_run *run); /* loop time */
const struct load_sample *load_run_samples(const struct load_run *run, uint32_t *ret_count);
const float *load_run_itl_s(const struct load_run *run, size_t *ret_count);

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
    double goodput_rps; /* requests a second within the SLO */
    double concordance; /* of predicted P50 with true lengths; < 0: no predictions */
    double p90_coverage;
};

/* Makes the report of the samples that `include` selects (NULL: all). Returns 0 or -ENOMEM. */
int load_report_make(const struct load_sample *sample, uint32_t count,
                     bool (*include)(void *arg, uint32_t index), void *arg, const float *itl_s,
                     size_t itl_count, struct load_slo slo, struct load_report *ret);

void load_report_json(const struct load_report *r, struct json_writer *w); /* one object */
int load_report_table(const struct load_report *r, struct buf *out);

/* Write members of that object: {"sent", "ok", "failed"}, {"prompt", "cached", "generated"}, {"ttft_s",
 * "tpot_s", "attainment"}. */
void load_requests_json(struct json_writer *w, const struct load_report *r);
void load_tokens_json(struct json_writer *w, const struct load_report *r);
void load_slo_json(struct json_writer *w, const struct load_report *r);
