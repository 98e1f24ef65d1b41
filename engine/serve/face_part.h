/* face_part.h - what the parts of the HTTP face share. Nobody else includes this.
 *
 *     face.c        listener, routes, guard, health, drain
 *     face_call.c   one generating request: its job, its stream, its end
 *     face_openai.c /v1/chat/completions, /v1/completions, /v1/models
 *     face_text.c   bodies to ids, on text workers where they are large; /tokenize, /detokenize
 *     face_fleet.c  /internal/...
 *     face_blocks.c streams of block events
 *     face_kv.c     pages of the prefix cache for peers
 *     face_pulse.c  whether the device makes progress, told to streams and to who asks
 */
#pragma once
#include "base/io/text_pool.h"
#include "base/text/bundle.h"
#include "base/text/encode.h"
#include "base/wire/generate.h"
#include "base/wire/openai_reply.h"
#include "engine/serve/face.h"
#include "engine/serve/kv_pull.h"

#define FACE_ID_BYTES_MAX 128
#define FACE_ARENA_BYTES_MAX ((size_t)32 << 20) /* of one parsed request */
#define RETRY_AFTER_S "1"
#define STALLED_TEXT "the engine has work and has made no step for %.0f s"

enum face_state { FACE_LOADING, FACE_READY, FACE_DRAINING };

struct face {
    struct face_config config;
    struct loop *loop;
    struct http_server *server;
    struct auth_gate gate;
    struct meters *meters;
    struct device *device;
    const struct device_info *info; /* NULL while the model is loaded */
    enum face_state state;
    bool leaving; /* face_drain: there is no way back */
    void (*on_failed)(void *arg, const char *sentence);
    void *on_failed_arg;

    struct chat_template *chat_template; /* NULL: none */
    struct buf bundle;
    char digest[SHA256_HEX + 1]; /* of weights and tokenizer */
    uint64_t boot, key_seed;
    int64_t created_s;
    uint64_t numbered; /* requests so far */

    struct loop_timer pulse_turn;
    int64_t pulse_due_us, pulse_excused_us;
    int64_t stalled_us; /* of the device, at the last turn; 0: it is well */
    bool stalled;       /* and what follows from it was done */

    struct text_pool *texts;
    struct text_desk desk;
    struct list prompts; /* at a text worker */
    struct list calls;
    uint32_t call_count;
    struct list watchers; /* of block events */
    struct list kv_reads; /* peers that read pages */
    struct list kv_asks;  /* those who asked for a pull, and wait */
    uint32_t kv_read_count;
    struct kv_pulls *pulls;
    struct arena arena;   /* of the request at hand; reset before each */
    struct job_mail mail; /* of the job at hand */
    struct buf out;       /* of the reply at hand */
};

/* ---- replies (face.c) ---- */

/* Answers and counts; the exchange is gone. */
void face_reply(struct face *f, struct http_exchange *x, int status, struct str body);
void face_reply_error(struct face *f, struct http_exchange *x, const struct openai_error *e);
void face_refuse(struct face *f, struct http_exchange *x, enum openai_problem problem,
                 const char *param, const char *format, ...) __attribute__((format(printf, 5, 6)));
void face_count(struct face *f, const struct http_exchange *x, int status);

/* The client's id when it is one, or a new one. */
struct face_id {
    char text[FACE_ID_BYTES_MAX + 1];
};
void face_request_id(struct face *f, const struct http_exchange *x, struct face_id *ret);

/* The root of the names of a tenant's blocks. */
struct block_key face_salt(const struct face *f, struct str tenant);

/* ---- calls (face_call.c) ---- */

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
struct face_note {
    const struct route *route;
    struct auth_note auth;
};

struct call {
    struct list link;
    struct face *face;
    struct http_exchange *x; /* NULL: the client has left */
    const struct call_form *form;
    struct job *job;
    struct kv_pull *pull; /* before the job is submitted; NULL: it is */
    struct face_id id;
    struct openai_reply reply; /* ids and names point into the call and the face */
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
    struct openai_reply reply;
    const struct face_id *id;
};

/* True when no call can begin now, and that was answered: the device has stalled, the engine drains
 * and it did not enter before, or too many are in it. */
bool call_refused(struct face *f, struct http_exchange *x, bool entered);

/* Answers in any case, at once or later. */
void call_start(struct face *f, struct http_exchange *x, const struct call_ask *ask);
void call_mail(void *face, struct job *job); /* device_events.on_mail */
void calls_free(struct face *f);             /* after the device has gone */
void call_beat(struct call *c);              /* the device is well; may free the call */
void call_let_go(struct call *c);            /* it is not: the client is answered or cut */

/* ---- the device's progress (face_pulse.c) ---- */

int face_pulse_start(struct face *f);

/* ---- handlers ---- */

void face_chat(struct face *f, struct http_exchange *x);
void face_completions(struct face *f, struct http_exchange *x);
void face_models(struct face *f, struct http_exchange *x);
void face_tokenize(struct face *f, struct http_exchange *x);
void face_detokenize(struct face *f, struct http_exchange *x);
void face_generate(struct face *f, struct http_exchange *x);
void face_info(struct face *f, struct http_exchange *x);
void face_tokenizer(struct face *f, struct http_exchange *x);
void face_internal_drain(struct face *f, struct http_exchange *x);
void face_internal_undrain(struct face *f, struct http_exchange *x);
void face_clock(struct face *f, struct http_exchange *x);
void face_events(struct face *f, struct http_exchange *x);
void face_reset_cache(struct face *f, struct http_exchange *x);
void face_kv_read(struct face *f, struct http_exchange *x);
void face_kv_pull(struct face *f, struct http_exchange *x);

void blocks_changed(void *face); /* device_events.on_blocks */
void blocks_end_all(struct face *f);
void blocks_free(struct face *f); /* after the device has gone */
void kv_free(struct face *f);     /* likewise */
