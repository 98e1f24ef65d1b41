/* api.h - serves the controller's HTTP API: agents and routers report, people and programs look and act.
 *
 * Layer:   controller (base/io, base/wire)
 * Threads: the loop's
 * Guard:   a request of a person or a browser must name one of our hosts in Host, and in Origin when it
 *          has one: foreign pages and rebound names reach nothing. Requests of agents and routers, and
 *          all that change something, need the fleet's secret always. The rest need it when
 *          require_secret is set, which a listener beyond loopback forces; /health never does.
 *
 * Standby: a controller that does not lead replies 503 with the leader's address to all but /health and /metrics,
 *          and leads browsers to the leader's console. It takes nothing that changes state
 *
 *     POST /api/v1/agents/report             POST /api/v1/routers/sync
 *     GET  /api/v1/status services pools instances intents offers cost history
 *     GET  /api/v1/decisions?from=N&limit=N  GET  /api/v1/decisions/ID
 *     GET  /api/v1/events?about=NAME&limit=N what happened of late, orders of people among it
 *     GET  /api/v1/whoami                    what the caller's credential may do
 *     GET  /api/v1/gc                        orphans; POST removes those that may go
 *     GET  /api/v1/config                    the configuration in force
 *     POST /api/v1/config                    {"name":..,"text":..,"dry_run":..,"generation":..}: applies one
 *     POST /api/v1/drain                     {"instance":ID}, {"service":..,"pool":..} or {"node":..}
 *     POST /api/v1/services/NAME/pause       POST /api/v1/services/NAME/resume
 *     POST /api/v1/services/NAME/scale       {"pool":"small","count":2}; null ends the override
 *     GET  /api/v1/tenants                   DELETE /api/v1/tenants/NAME
 *     POST /api/v1/tenants                   {"name":..,"requests_per_min":..}: the key, once
 *     GET POST /api/v1/tokens                {"name":..,"role":"read"|"admin"}: the token, once
 *     DELETE /api/v1/tokens/NAME
 *     POST /api/v1/keys/open                 serve requests without a key again
 *     GET  /api/v1/stream                    server-sent events: status, decision
 *     GET  /api/v1/targets                   what Prometheus scrapes (http_sd_configs)
 *     GET  / /health /metrics
 */
#pragma once
#include "base/core/str.h"
#include "base/io/auth/auth_gate.h"
#include "base/io/auth/key_file.h"
#include "controller/control.h"
#include "controller/fleet_clock.h"

#define API_STREAMS_MAX 32
#define API_DECISIONS_MAX 500 /* in one reply */
#define API_EVENTS_MAX 1000   /* likewise */
#define API_EVENTS_DEFAULT 50

/* A configuration that a person applies. */
struct config_order {
    struct str name, text;
    bool dry_run;
    uint64_t generation; /* it was compared with; 0: any */
};

struct api_config { /* borrowed for the api's life */
    const char *host;
    uint16_t port;
    bool require_secret;
    const struct credentials *held;  /* the fleet's secret */
    const struct key_file *scrapers; /* keys that open /metrics and the list of targets */
    struct tls *tls;                 /* NULL: plain HTTP */
    const struct str *hosts;         /* further host names that requests may use */
    size_t host_count;
    const struct fleet_clock *clock;
    uint32_t lease_ms;            /* of an instance, where no controller is known to lead */
    struct metrics *metrics;      /* NULL: those of the controller that is attached */
    void (*on_urgent)(void *arg); /* an event should not wait for the next tick */
    bool (*leads)(void *arg); /* asked at each request; NULL: whenever a controller is attached */
    struct str (*leader)(void *arg); /* [https://]HOST:PORT of the one that leads; empty: unknown */
    /* The configuration in force (live_config.h); both NULL: it cannot be seen or changed here. */
    int (*show_config)(void *arg, struct buf *out);
    int (*apply_config)(void *arg, const struct config_order *o, const char *by, struct buf *out,
                        struct err *err);
    void *arg;
};

struct api;

int api_new(struct loop *loop, const struct api_config *config, struct api **ret, struct err *err);
void api_free(struct api *a);

CLEANUP_FREEP(api, struct api)

uint16_t api_port(const struct api *a);

/* Connects the API to the controller for as long as that lives. NULL: none leads here any more; open event
 * streams end. Without one all but /health and /metrics answers 503. */
void api_attach(struct api *a, struct control *control);

/* Sets the access tokens that are valid while no controller is attached; copied. */
struct tokens;
void api_tokens(struct api *a, const struct tokens *tokens);

/* Sends open streams the status, and decisions that are new to them; called after each tick. */
void api_broadcast(struct api *a);
struct str console_page(void); /* HTML; lives as long as the program */
