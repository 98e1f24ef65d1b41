/* http_api_state.h - defines the members of the engine's HTTP API, its replies and its handlers.
 *
 *     http_api.c        listener, routes, guard, health, progress of the device, drain
 *     http_api_text.c   /v1/chat/completions, /v1/messages, /tokenize ...: text to token ids, on
 *                       text workers where it is large
 *     http_api_call.c   one generating request: its job, its stream, its end
 *     http_api_form.c   what a call brings, as chunks or events, or whole
 *     http_api_fan.c    several outputs of one request
 *     http_api_embed.c  requests for vectors of texts: embeddings, scores, rankings
 *     http_api_fleet.c  /internal/..., streams of block events
 *     http_api_kv.c     pages of the prefix cache for peers
 *     http_api_lora.c   adapters: load, unload, list
 * Layer:   engine/serve, private to http_api*.c
 * Threads: the loop's
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/rng.h"
#include "base/io/loop/text_pool.h"
#include "base/text/bundle.h"
#include "base/wire/openai.h"
#include "engine/serve/adapters.h"
#include "engine/serve/device.h"
#include "engine/serve/http_api.h"
#include "engine/serve/kv_fetch.h"

#define REQUEST_ID_BYTES_MAX 128
#define HTTP_API_ARENA_BYTES_MAX ((size_t)32 << 20) /* of one parsed request */
#define RETRY_AFTER_S "1"
#define STALLED_TEXT "the engine has work and has made no step for %.0f s"

#define SLEEPING_TEXT "the engine sleeps: its weights are out of memory until POST /wake_up"

enum http_api_state { HTTP_API_LOADING, HTTP_API_READY, HTTP_API_DRAINING };

/* How far the engine is asleep (http_api_sleep.c); beside its state. */
enum sleep_phase { SLEEP_AWAKE, SLEEP_SETTLING, SLEEP_FALLING, SLEEP_ASLEEP, SLEEP_WAKING };

struct http_api {
    struct http_api_config config;
    struct loop *loop;
    struct http_server *server;
    struct auth_gate gate;
    struct engine_metrics *metrics;
    struct device *device;
    const struct device_info *info; /* NULL while the model is loaded */
    enum http_api_state state;
    enum sleep_phase sleep;
    struct sleeper *sleeper; /* NULL: it was never asked to sleep */
    bool leaving;            /* http_api_drain was called: there is no way back */
    void (*on_failed)(void *arg, const char *sentence);
    void *on_failed_arg;

    struct chat_template *chat_template; /* NULL: none */
    struct dialogue dialogue;            /* how the model writes reasoning and calls */
    struct buf bundle;
    char digest[SHA256_HEX + 1]; /* of weights and tokenizer */
    uint64_t boot, key_seed;
    int64_t created_s;
    uint64_t numbered; /* requests so far */
    struct rng rng;    /* ids of traces and spans */

    struct loop_timer pulse_turn;
    int64_t pulse_due_us, pulse_excused_us;
    int64_t stalled_us; /* of the device, at the last turn; 0: it is well */
    bool stalled;       /* the consequences of a stall were drawn */

    struct text_pool *texts;
    struct text_desk desk;
    struct list prompts; /* at a text worker */
    struct list calls;
    struct list embeds;   /* requests for vectors */
    uint32_t call_count;  /* jobs that both may have at the device */
    struct list watchers; /* of block events */
    struct list kv_reads; /* peers that read pages */
    struct list kv_asks;  /* requests that asked for a fetch, and wait */
    uint32_t kv_read_count;
    struct list lora_loads; /* adapters that a text worker reads */
    struct kv_fetches *fetches;
    struct arena arena;   /* of the request at hand; reset before each */
    struct job_mail mail; /* of the job at hand */
    struct buf out;       /* of the reply at hand */
};

/* ---- replies (http_api.c) ---- */

/* Sends a reply and counts it; the exchange is gone. */
void http_api_reply(struct http_api *api, struct http_exchange *x, int status, struct str body);

void http_api_reply_error(struct http_api *api, struct http_exchange *x,
                          const struct openai_error *e);

void http_api_refuse(struct http_api *api, struct http_exchange *x, enum openai_problem problem,
                     const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void http_api_count(struct http_api *api, const struct http_exchange *x, int status);

/* The id of a request: the client's if it is valid, else a new one. */
struct request_id {
    char text[REQUEST_ID_BYTES_MAX + 1];
};

void http_api_request_id(struct http_api *api, const struct http_exchange *x,
                         struct request_id *ret);

/* Returns the salt of the block keys of a tenant, with an adapter or NULL. */
struct block_key http_api_salt(const struct http_api *api, const struct adapter *adapter,
                               struct str tenant);

/* ---- handlers ---- */

void handle_chat(struct http_api *api, struct http_exchange *x);
void handle_completions(struct http_api *api, struct http_exchange *x);
void handle_messages(struct http_api *api, struct http_exchange *x);
void handle_responses(struct http_api *api, struct http_exchange *x);
void handle_count_tokens(struct http_api *api, struct http_exchange *x);
void handle_vectors(struct http_api *api,
                    struct http_exchange *x); /* embeddings, scores, rankings */
void handle_models(struct http_api *api, struct http_exchange *x);
void handle_tokenize(struct http_api *api, struct http_exchange *x);
void handle_detokenize(struct http_api *api, struct http_exchange *x);
void handle_apply_template(struct http_api *api, struct http_exchange *x);
void handle_generate(struct http_api *api, struct http_exchange *x);
void handle_info(struct http_api *api, struct http_exchange *x);
void handle_tokenizer(struct http_api *api, struct http_exchange *x);
void handle_drain(struct http_api *api, struct http_exchange *x);
void handle_undrain(struct http_api *api, struct http_exchange *x);
void handle_clock(struct http_api *api, struct http_exchange *x);
void handle_events(struct http_api *api, struct http_exchange *x);
void handle_reset_cache(struct http_api *api, struct http_exchange *x);
void handle_sleep(struct http_api *api, struct http_exchange *x);
void handle_wake_up(struct http_api *api, struct http_exchange *x);
void handle_is_sleeping(struct http_api *api, struct http_exchange *x);
void sleep_free(struct http_api *api); /* after the device has gone */
void handle_kv_read(struct http_api *api, struct http_exchange *x);
void handle_kv_fetch(struct http_api *api, struct http_exchange *x);
void handle_lora_load(struct http_api *api, struct http_exchange *x);
void handle_lora_unload(struct http_api *api, struct http_exchange *x);
void lora_ready(struct http_api *api); /* the model is loaded */
void lora_free(struct http_api *api);  /* after the text workers have gone */
void blocks_changed(void *http_api);   /* device_events.on_blocks */
void blocks_end_all(struct http_api *api);
void blocks_free(struct http_api *api);                  /* after the device has gone */
void kv_free(struct http_api *api);                      /* likewise */
int prompts_init(struct http_api *api, struct err *err); /* starts the text workers */
void prompts_free(struct http_api *api);                 /* stops them */
