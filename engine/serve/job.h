/* job.h - one request between the HTTP thread, which owns it, and the device thread.
 *
 * Layer:    engine/serve
 * Threads:  `ask` is written by the HTTP thread before device_submit and constant then; `device`
 *           is the device thread's; `mail` and `link` are guarded by the device's lock
 * Lifetime: job_new ... device_submit ... until mail with `ended` was taken, then job_free
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/list.h"
#include "engine/core/session.h"
#include "engine/serve/output.h"

#define JOB_MAIL_TOKENS 64      /* tokens that may lie unread */
#define JOB_PAUSE_TOKENS 32     /* from here on the session takes no step */
#define JOB_RESUME_TOKENS 8     /* and from here on down it does again */
#define JOB_STOP_BYTES_MAX 4096 /* all stop strings together */

/* What the device has to say since the last look. { 0 } is nothing. */
struct job_mail {
    struct buf text;
    uint32_t ids[JOB_MAIL_TOKENS];
    uint32_t id_count;
    bool accepted; /* waits or runs */
    bool ended;    /* nothing comes after this */
    enum session_end end;
    int refused; /* with ended: why it never ran: an error of sched_submit, or -EAGAIN when displaced */
    uint32_t cached_tokens;   /* known with the first token */
    uint32_t generated;       /* with ended */
    char error[ERR_TEXT_MAX]; /* with `refused` and SESSION_END_ERROR */
};

struct job_ask {
    uint64_t number;
    uint32_t *ids; /* owned */
    uint32_t id_count;
    struct output_spec spec; /* its stop strings lie in stop_store */
    uint32_t output_max;
    bool goes_on; /* elsewhere, when output_max tokens are there */
    struct block_key salt;
    uint64_t tenant; /* 0: none is named */
    int64_t arrival_us, deadline_us;
    uint32_t predicted_p50, predicted_p90, predicted_mean;
    bool has_rank;
    double rank;    /* with has_rank */
    uint64_t group; /* 0: none is named */
    double weight;  /* of the tenant; 0: 1 */
    void *owner;    /* the HTTP side's */
    struct str stop_store[OUTPUT_STOP_MAX];
    char stop_bytes[JOB_STOP_BYTES_MAX];
};

struct job {
    struct job_ask ask;
    struct {
        struct output output;
        struct session *session;
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

void job_mail_fini(struct job_mail *mail);
