/* http_api_call.h - defines a call: one generating request from its form to its last byte.
 *
 * Layer:   engine/serve, private to http_api*.c
 * Threads: the loop's
 */
#pragma once
#include "base/text/encode.h"
#include "base/wire/generate.h"
#include "base/wire/openai_logprobs.h"
#include "base/wire/openai_reply.h"
#include "engine/serve/call_trace.h"
#include "engine/serve/http_api_state.h"
#include "engine/serve/turn_output.h"

struct call;
struct call_fan;

/* The form of a call's response. Its functions append to api->out. */
struct call_form {
    const char *content_type;
    bool stream;
    bool pings; /* comments are allowed in the stream */
    bool beats; /* empty lines are; and its reader goes on elsewhere if it is cut */
    void (*begin)(struct call *c);
    void (*tokens)(struct call *c, const struct job_mail *mail);
    void (*end)(struct call *c, const struct job_mail *mail);
};

extern const struct call_form call_form_stream, call_form_whole; /* http_api_form.c */

/* Note of an exchange: what on_head has found. */
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
    bool begun, told_usage, submitted;
    struct call_fan *fan; /* with other calls for the same exchange; NULL: it is alone */
    uint32_t index;       /* there */
    double logprob_sum;   /* of its tokens, where they are asked for */
    uint32_t prompt_tokens;
    uint32_t begun_tokens, max_tokens;
    int64_t arrival_us;
    struct call_trace *trace; /* NULL: none */
    struct buf text;          /* of a whole reply */
    struct openai_logprobs logprobs;
    struct adapter_entry *adapter; /* held; NULL: none */
    struct turn_output *turn;      /* NULL: the output is not parsed */
    struct openai_message plain;   /* then: of a stream in another form than that of chunks */
    struct buf repeated;           /* reply.repeated */
    struct loop_timer ping;
    int64_t written_us;
};

/* A prompt, ready to be computed. */
struct prompt_made {
    struct ids ids;
    struct str echo;      /* text that its output begins with */
    uint32_t second_from; /* of a pair for a cross-encoder; 0: it is none */
};

/* The parameters of a call, before it is a job. */
struct call_ask {
    const struct call_form *form;
    struct ids *ids; /* taken, left empty */
    uint32_t prompt_tokens;
    const struct sampling *sampling;
    const struct token_value *bias; /* its ids were checked */
    uint32_t bias_count;
    bool logprobs;
    uint32_t top_logprobs;
    bool scores_prompt, echoes; /* as in openai_request */
    uint32_t prompt_top;
    uint32_t score_from;           /* as in job_ask; with logprobs or scores_prompt */
    bool prompt_only;              /* no token is generated */
    struct str echo;               /* text that the output begins with */
    struct adapter_entry *adapter; /* the call holds it once more; NULL: none */
    uint32_t max_tokens;           /* 0: as far as the context reaches */
    uint32_t min_tokens;
    const struct str *stop;
    uint32_t stop_count;
    bool ignore_eos;
    struct grammar **grammar; /* taken where not NULL; *grammar NULL: none */
    const struct grammar_spec *grammar_spec;
    bool marks; /* as in generate_request */
    struct reasoning_limit limit;
    struct turn_output *turn; /* taken, or NULL: the output is not parsed */
    struct str tenant;
    bool goes_on;
    bool entered;       /* before a drain began, which then waits for it */
    struct str kv_host; /* empty: no peer is asked for K and V */
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

/* Returns true if so many calls cannot begin now, after replying so: the device has stalled, the engine
 * drains and the request did not enter before that, or too many requests are in the engine. */
bool call_refused(struct http_api *api, struct http_exchange *x, uint32_t calls, bool entered);

/* Starts a call; it replies in any case, at once or later. */
void call_start(struct http_api *api, struct http_exchange *x, const struct call_ask *ask);

/* The steps of call_start, for a call of a fan: makes it (NULL without memory), and gives it to the device. */
struct call *call_new(struct http_api *api, struct http_exchange *x, const struct call_ask *ask);
void call_submit(struct call *c);
void call_cancel(struct call *c);                    /* nobody waits for it; may free it */
void call_left(struct call *c, enum http_abort why); /* the client did; may free it */
void call_pump(struct call *c); /* takes its mail as long as the client takes bytes; may free it */
void call_mail(void *http_api, struct job *job); /* device_events.on_mail */
void calls_free(struct http_api *api);           /* after the device has gone */
void call_beat(struct call *c);                  /* the device is well; may free the call */
void call_let_go(struct call *c);                /* it has stalled: ends or cuts the response */

/* Returns the usage that the reply tells at its end. */
struct usage call_usage(const struct call *c, const struct job_mail *mail);
