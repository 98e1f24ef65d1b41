/* device.h - the device thread: loads the model, runs steps, publishes tokens.
 *
 * Layer:    engine/serve
 * Threads:  device_* are called by the loop's thread; events come on the loop's thread
 * Lifetime: device_free stops the thread and waits for it; free the jobs after that
 * Crossing: jobs go over in two intrusive lists under one lock, each job at most once in each, so
 *           their bound is the number of jobs. Tokens wait in the job's own mail, at most
 *           JOB_MAIL_TOKENS: a session whose mail is not read is paused, not buffered.
 */
#pragma once
#include "base/io/loop/loop.h"
#include "base/wire/report.h"
#include "engine/core/kv_index.h"
#include "engine/model/model.h"
#include "engine/serve/executor.h"
#include "engine/serve/job.h"
#include "engine/serve/metrics.h"
#include "engine/serve/pace.h"

#define DEVICE_EVENTS_MAX 4096 /* block events that wait for readers; beyond: a snapshot */

struct device_config {
    struct str model_path;
    struct model_load_options load;
    struct sched_config sched; /* context_max 0: the model's; pages 0: from kv_bytes */
    uint64_t swap_bytes;       /* 0: what the preset asks for, within that quarter */
    uint64_t kv_bytes;         /* 0: for seqs_max contexts, at most a quarter of the memory */
    uint32_t threads;
    double cpu_share;
    const struct perf_policy *perf;       /* as in executor.h */
    const struct hardware *hardware;      /* as in executor.h */
    const struct predict_policy *predict; /* as in executor.h */
    struct str predict_file;              /* as in executor.h, and so the two below */
    uint32_t predict_layer, predict_every;
    struct str step_log; /* path; empty: none */
};

/* Constant from on_ready on. */
struct device_info {
    const struct model_info *model;
    uint32_t context_max, page_tokens, pages;
    uint32_t step_tokens; /* computed in one step at most */
    uint64_t kv_bytes;
    struct kv_layout kv;             /* of a page */
    bool prefix_cache;               /* false: nothing is kept for others */
    double cores;                    /* that it may use */
    const struct hardware *hardware; /* NULL: not known */
    double load_s;
};

/* Of the last step. */
struct device_stats {
    struct sched_counts counts;
    uint32_t pages_free, pages_held, pages_cached;
    struct perf_coef perf;
    uint64_t event_seq;
    uint64_t prefill_owed; /* prompt tokens to compute (sched_prefill_owed) */
    double clock;          /* share of full speed that the next step keeps to */
    struct wire_work work; /* since the start */
};

struct device_events {
    void (*on_ready)(void *arg, const struct device_info *info);
    void (*on_failed)(void *arg, const char *sentence); /* the model could not be loaded */
    void (*on_mail)(void *arg, struct job *job);        /* device_take_mail has something */
    void (*on_blocks)(void *arg);                       /* device_blocks has something */
    void *arg;
};

struct device;

int device_new(struct loop *loop, const struct device_config *config,
               struct engine_metrics *metrics, const struct device_events *events,
               struct device **ret, struct err *err);
void device_free(struct device *d);
CLEANUP_FREEP(device, struct device)

void device_submit(struct device *d, struct job *job);
void device_abort(struct device *d, struct job *job); /* its end still comes by mail */

/* Moves what the job's mail holds into *mail, whose text is cleared and reused. False when there
 * is nothing new. With mail->ended the job is the caller's alone again. */
bool device_take_mail(struct device *d, struct job *job, struct job_mail *mail);

void device_stats_get(struct device *d, struct device_stats *ret);

/* Whether the device thread makes progress, for any thread. */
const struct pulse *device_pulse(const struct device *d);

/* The share of full speed, (0, 1], from the next step on. */
void device_clock_set(struct device *d, double clock);

/* Block events after `after`; as kv_index_events, over the last DEVICE_EVENTS_MAX. */
int device_blocks(struct device *d, uint64_t after, struct kv_event *ret, uint32_t max);

/* Runs fn between two steps, then done on the loop's thread. At most one at a time waits for
 * each `call`; the struct is the caller's until done. */
struct device_call {
    struct list link;
    void (*fn)(struct device_call *call, struct executor *x);
    void (*done)(struct device_call *call);
    void *arg;
};
void device_call(struct device *d, struct device_call *call);
