/* device.h - runs the device thread, which loads the model, runs steps and publishes tokens;
 * defines a job, one request between the HTTP thread, which owns it, and the device thread.
 *
 * Layer:    engine/serve
 * Threads:  device_* are called by the loop's thread; events come on the loop's thread. In a job
 *           `ask` is written by the HTTP thread before device_submit and constant then; `device` is
 *           the device thread's; `mail` and `link` are guarded by the device's lock
 * Lifetime: device_free stops the thread and waits for it; free the jobs after that. A job lives from
 *           job_new over device_submit until mail with `ended` was taken, then job_free
 * Crossing: jobs go over in two intrusive lists under one lock, each job at most once in each, so
 *           their bound is the number of jobs. Tokens wait in the job's own mail, at most
 *           JOB_MAIL_TOKENS: a session whose mail is not read is paused, not buffered.
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/hash.h"
#include "base/core/list.h"
#include "base/io/loop/loop.h"
#include "base/wire/report.h"
#include "base/wire/sampling.h"
#include "engine/core/kv_index.h"
#include "engine/core/session.h"
#include "engine/model/model.h"
#include "engine/serve/adapters.h"
#include "engine/serve/executor.h"
#include "engine/serve/metrics.h"
#include "engine/serve/output.h"
#include "engine/serve/pace.h"

#define JOB_MAIL_TOKENS 64      /* tokens that may lie unread */
#define JOB_PAUSE_TOKENS 32     /* from here on the session takes no step */
#define JOB_RESUME_TOKENS 8     /* and from here on down it does again */
#define JOB_SCORES_BYTES 262144 /* of scores that lie unread: from here on it pauses, too */
#define JOB_STOP_BYTES_MAX 4096 /* all stop strings together */

/* When a session came how far, on the monotonic clock; 0: it did not. */
struct job_times {
    int64_t admitted_us, first_us, last_us; /* the first admission, the first and last token */
    uint32_t preemptions;
};

/* News of a job from the device since the last look. { 0 } is none. */
struct job_mail {
    struct buf text;
    uint32_t ids[JOB_MAIL_TOKENS];
    uint32_t id_count;
    struct buf values; /* struct token_value of the ids, as in a generate_frame; or empty */
    struct buf scores; /* likewise: of the prompt's tokens that were scored since the last look */
    bool accepted;     /* waits or runs */
    bool ended;        /* nothing comes after this */
    enum session_end end;
    int refused; /* with ended: why it never ran: an error of sched_submit, or -EAGAIN when displaced */
    uint32_t cached_tokens;   /* known with the first token */
    uint32_t generated;       /* with ended */
    struct str stopped;       /* with ended: the stop string that did it, the job's; or empty */
    struct job_times times;   /* with ended */
    char error[ERR_TEXT_MAX]; /* with `refused` and SESSION_END_ERROR */
};

struct job_ask {
    uint64_t number;
    uint32_t *ids; /* owned */
    uint32_t id_count;
    struct output_spec spec; /* its stop strings lie in stop_store */
    uint32_t score_from;     /* the first of the prompt's tokens to score, at least 1; 0: none */
    uint32_t output_max;
    bool goes_on; /* elsewhere, when output_max tokens are there */
    struct block_key salt;
    uint64_t tenant, group; /* 0: none is named */
    int64_t arrival_us, deadline_us;
    uint32_t predicted_p50, predicted_p90, predicted_mean;
    bool has_rank;
    double rank;                       /* with has_rank */
    double weight;                     /* of the tenant; 0: 1 */
    bool marks;                        /* control tokens that are marks are written (masks.h) */
    struct grammar *grammar;           /* owned until the device takes it; NULL: none */
    uint8_t grammar_key[SHA256_BYTES]; /* of its description: equal ones share their masks */
    void *owner;                       /* the HTTP side's */
    struct token_value *bias;          /* owned; of the spec */
    struct str stop_store[OUTPUT_STOP_MAX];
    char stop_bytes[JOB_STOP_BYTES_MAX];
};

struct job {
    struct job_ask ask;
    struct {
        struct output output;
        struct session *session;
        struct automaton *automaton; /* of its grammar; NULL: none */
        struct list active;
        int64_t last_token_us;
    } device;
    struct job_mail mail;
    struct {
        struct list to_device, to_http;
        bool submit, abort;
    } link;
};

struct job *job_new(void); /* NULL without memory */
void job_free(struct job *job);

/* Copies the stop strings into the job. -E2BIG beyond the bounds. */
int job_set_stop(struct job *job, const struct str *stop, uint32_t count);
/* Copies the biases, whose ids were checked, into the job. -ENOMEM. */
int job_set_bias(struct job *job, const struct token_value *bias, uint32_t count);
void job_mail_fini(struct job_mail *mail);

#define DEVICE_EVENTS_MAX 4096 /* block events that wait for readers; beyond: a snapshot */

struct device_config {
    struct str model_path, model_sha256, model_stamps; /* model_check.h; the latter may be empty */
    struct model_load_options load;
    struct sched_config sched; /* context_max 0: the model's; pages 0: from kv_bytes */
    uint64_t swap_bytes;       /* 0: what the preset asks for, at most a quarter */
    uint64_t kv_bytes;         /* 0: for seqs_max contexts, at most a quarter of the memory */
    uint32_t threads;
    double cpu_share;
    const struct perf_policy *perf;       /* as in executor.h */
    const struct hardware *hardware;      /* as in executor.h */
    const struct predict_policy *predict; /* as in executor.h */
    struct str predict_file;              /* as in executor.h, and so the two below */
    uint32_t predict_layer, predict_every;
    struct str draft_model;         /* path, with a draft policy that asks for one; empty: none */
    struct str step_log;            /* path; empty: none */
    struct adapters *adapters;      /* borrowed; takes the modules when the model is there */
    const struct str *lora_modules; /* NAME=PATH */
    size_t lora_module_count;
};

/* Constant from on_ready on. */
struct device_info {
    const struct model_info *model;
    const struct model *loaded; /* it: for adapters, on any thread */
    uint32_t context_max, page_tokens, pages;
    uint32_t step_tokens; /* computed in one step at most */
    uint64_t kv_bytes;
    uint64_t draft_kv_bytes; /* of the draft model's pages, beside those; 0: there is none */
    struct kv_layout kv;     /* of a page */
    bool prefix_cache;       /* false: nothing is kept for others */
    double cores;            /* that it may use */
    const struct hardware *hardware; /* NULL: not known */
    double load_s;
};

/* Figures of the last step. */
struct device_stats {
    struct sched_counts counts;
    uint32_t pages_free, pages_held, pages_cached;
    struct perf_coef perf;
    uint64_t event_seq;
    uint32_t head_pages;   /* of the queue (sched_head_pages) */
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

/* Moves the job's mail into *mail, after clearing its text for reuse. Returns false if there is
 * nothing new. With mail->ended the job is the caller's alone again. */
bool device_take_mail(struct device *d, struct job *job, struct job_mail *mail);
void device_stats_get(struct device *d, struct device_stats *ret);

/* Returns the pulse of the device thread, which any thread may read. */
const struct pulse *device_pulse(const struct device *d);

/* Sets the share of full speed, (0, 1], from the next step on. */
void device_clock_set(struct device *d, double clock);

/* Copies block events after `after`, as kv_index_events, over the last DEVICE_EVENTS_MAX. */
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
