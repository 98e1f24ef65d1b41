/* http_api_call.h - one generating request of the HTTP API, from its form to its last byte.
 *
 * Layer:   engine/serve, private to http_api*.c
 * Threads: the loop's
 */
#pragma once
#include "engine/serve/http_api_state.h"

struct call;

/* How a call's answer is written. Writers append to f->out. */
struct call_form {
    const char *content_type;
    bool stream;
    bool pings; /* comments are allowed in the stream */
    bool beats; /* empty lines are; and its reader goes on elsewhere when it is cut */
    void (*begin)(struct call *c);
    void (*tokens)(struct call *c, const struct job_mail *mail);
    void (*end)(struct call *c, const struct job_mail *mail);
};

/* The exchange's note: what on_head has found. */
struct http_api_note {
    const struct route *route;
    struct auth_note auth;
};

struct call {
    struct list link;
    struct http_api *api;
    struct http_exchange *x; /* NULL: the client has left */
    const struct call_form *form;
    struct job *job;
    struct kv_fetch *fetch; /* before the job is submitted; NULL: it is */
    struct request_id id;
    struct openai_reply reply; /* ids and names point into the call and the API */
    bool begun, told_usage;
    uint32_t prompt_tokens;
    struct buf text; /* of a whole reply */
    struct loop_timer ping;
    int64_t written_us;
};

/* What a request asks for, before it is a job. ids are taken over. */
struct call_ask {
    const struct call_form *form;
    struct ids *ids; /* taken, left empty */
    uint32_t prompt_tokens;
    const struct sampling *sampling;
    uint32_t max_tokens; /* 0: as far as the context reaches */
    uint32_t min_tokens;
    const struct str *stop;
    uint32_t stop_count;
    bool ignore_eos;
    struct str tenant;
    bool goes_on;
    bool entered;       /* before a drain began, which then waits for it */
    struct str kv_host; /* empty: nobody is asked for K and V */
    uint16_t kv_port;
    struct str kv_ticket, kv_key;
    bool kv_tls;
    int64_t deadline_us; /* 0: the longest allowed */
    uint32_t predicted_p50, predicted_p90, predicted_mean;
    bool has_rank;
    double rank;
    uint64_t group;
    double weight;
    struct openai_reply reply;
    const struct request_id *id;
};

/* True when no call can begin now, and that was answered: the device has stalled, the engine drains
 * and it did not enter before, or too many are in it. */
bool call_refused(struct http_api *api, struct http_exchange *x, bool entered);

/* Answers in any case, at once or later. */
void call_start(struct http_api *api, struct http_exchange *x, const struct call_ask *ask);
void call_mail(void *http_api, struct job *job); /* device_events.on_mail */
void calls_free(struct http_api *api);           /* after the device has gone */
void call_beat(struct call *c);                  /* the device is well; may free the call */
void call_let_go(struct call *c);                /* it is not: the client is answered or cut */
