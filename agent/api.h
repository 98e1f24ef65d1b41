/* api.h - serves what an engine of another kind does not: its state, load, cache and tokenizer, to routers.
 *
 * Layer:   agent (base/io, base/wire, base/text, agent/core)
 * Threads: the agent's loop
 * Paths:   /internal/info, /internal/events, /internal/tokenizer as `muster engine` has them; /metrics,
 *          /health
 * Access:  /health is open. The others are for the fleet's parts; without a secret, for peers on this
 *          machine. Routers sign as they do for an engine of ours, with the instance's key. /metrics is also
 *          for scrapers: on this machine without a key, from elsewhere with one of theirs
 * Bounds:  AGENT_FOLLOWERS_MAX streams (503 beyond); nothing is buffered for one that does not read
 */
#pragma once
#include "agent/core/kv_view.h"
#include "agent/tokenizer.h"
#include "base/io/auth/credentials.h"
#include "base/io/auth/key_file.h"
#include "base/io/metrics.h"
#include "base/wire/events.h"
#include "base/wire/report.h"

#define AGENT_FOLLOWERS_MAX 64
#define AGENT_PORT_FIRST 8100
#define AGENT_PORT_COUNT 100

struct agent_api;

struct agent_api_config {
    struct loop *loop;
    const char *host;
    uint16_t port; /* 0: the first free one from AGENT_PORT_FIRST on */
    const struct credentials *held;
    const struct key_file *scrapers; /* keys that open /metrics; NULL: none */
    struct tls *tls;                 /* NULL: plain */
    /* Fills the engine's report; false: there is none, or it is too old. Strings live for the call. */
    bool (*report)(void *arg, struct engine_report *ret);
    void (*meter)(void *arg, struct metrics *m); /* sets the metrics before they are rendered */
    void *arg;
};

/* Listens at once. -EADDRINUSE: no port is free. */
int agent_api_new(const struct agent_api_config *config, struct agent_api **ret, struct err *err);
void agent_api_free(struct agent_api *a);
uint16_t agent_api_port(const struct agent_api *a);
uint32_t agent_api_followers(const struct agent_api *a);

/* Sets the tokenizer and the view of the engine's cache (NULL: none); both outlive the API or are set
 * again. Streams that are open end: what they said first has changed. */
void agent_api_set(struct agent_api *a, const struct tokenizer_source *tokenizer,
                   const struct kv_view *view);

/* Tells followers that the view has changed. */
void agent_api_changed(struct agent_api *a);

/* Ends all streams: the engine is gone, or is another one. */
void agent_api_end_streams(struct agent_api *a);
