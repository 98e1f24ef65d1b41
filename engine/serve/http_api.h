/* http_api.h - serves the engine's HTTP API to clients, routers and agents.
 *
 * Layer:    engine/serve (base/io, base/wire, base/text)
 * Threads:  the loop's
 * Lifetime: listens from http_api_new on, before the model is loaded. To end: http_api_close, which
 *           cuts open connections, then device_free, then http_api_free
 * Guard:    with a secret or API keys, everything but /health needs one of them; with neither, the
 *           Host, the Origin and the content type must not be those of a page of another site.
 *           /internal/, /reset_prefix_cache, the paths of sleep and those of adapters take the fleet's secret, never
 *           an API key and never a request that a web page sent; with neither secret nor keys, they take requests
 *           from this machine. /metrics also takes a metrics key, and this machine's requests without a key
 *
 *     POST /v1/chat/completions /v1/completions     GET /v1/models
 *     POST /tokenize /detokenize /reset_prefix_cache /v1/load_lora_adapter /v1/unload_lora_adapter
 *     POST /sleep /wake_up     GET /is_sleeping
 *     GET  /health /metrics /version
 *     POST /internal/generate /internal/drain /internal/undrain /internal/clock
 *          /internal/kv/read /internal/kv/pull
 *     GET  /internal/info /internal/events /internal/tokenizer
 */
#pragma once
#include "base/io/auth/auth_gate.h"
#include "base/io/auth/key_file.h"
#include "base/io/trace/tracer.h"
#include "engine/serve/adapters.h"
#include "engine/serve/device.h"

struct http_api_config {
    const char *host;
    uint16_t port;
    struct str host_shown;    /* in /internal/info: where routers reach it */
    struct str model_name;    /* as requests name it */
    struct str chat_template; /* source instead of the model's; empty: the model's */
    struct str tool_call_parser, reasoning_parser; /* names of dialects; empty: auto */
    const struct credentials *held;                /* of the fleet */
    const struct key_file *keys;                   /* API keys */
    const struct key_file *metrics_keys;           /* open /metrics and nothing else */
    const struct str *hosts;                       /* further Host values that requests may name */
    size_t host_count;
    struct tls *serve, *call;  /* by its clients (NULL: plain HTTP), and to its peers */
    struct tracer *tracer;     /* NULL: no traces */
    enum pooling pooling;      /* of embeddings; POOLING_MODEL: the model's */
    bool sleep_mode;           /* /sleep and /wake_up are served */
    struct adapters *adapters; /* borrowed; one that takes none if adapters are off */
    bool lora_updates;         /* adapters are loaded and unloaded while it runs */
    uint64_t seed;             /* of requests that name none */
    uint32_t requests_max;     /* in the engine at once: 429 beyond */
    uint32_t waiting_max;      /* that wait for the device */
    uint32_t seqs_max;
    uint32_t text_threads;                             /* as text_pool_config */
    size_t text_queue_bytes;                           /* likewise */
    uint32_t connections_max, connections_address_max; /* as http_limits */
    int64_t request_us_max, ping_us;
};

struct http_api;

/* Starts to listen. Strings of the config are borrowed for the life of the API. The device, made
 * with http_api_device_events, is set by http_api_set_device. */
int http_api_new(struct loop *loop, const struct http_api_config *config,
                 struct engine_metrics *metrics, struct http_api **ret, struct err *err);
void http_api_close(struct http_api *api);
void http_api_free(struct http_api *api);
CLEANUP_FREEP(http_api, struct http_api)

uint16_t http_api_port(const struct http_api *api);
struct device_events http_api_device_events(struct http_api *api);
void http_api_set_device(struct http_api *api, struct device *device);

/* Calls fn when the model cannot be served: it does not load, or its template does not compile. */
void http_api_on_failed(struct http_api *api, void (*fn)(void *arg, const char *sentence),
                        void *arg);

/* Takes no new work and no new connections; calls on_empty(arg) when the last connection has
 * gone. */
void http_api_drain(struct http_api *api, void (*on_empty)(void *arg), void *arg);
uint32_t http_api_in_flight(const struct http_api *api);

bool http_api_is_stalled(const struct http_api *api); /* the device holds work and makes no step */
