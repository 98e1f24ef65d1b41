/* dialler.h - keeps a tunnel from this agent to each router, for an engine that routers cannot reach.
 *
 * Layer:   agent (base/io, fleet)
 * Threads: the agent's loop
 * Use:     the routers come from the configuration and from the controller's replies (dialler_set). Each is dialled
 *          by a signed call that turns into a tunnel, again after a random time that grows with each failure, for as
 *          long as it is listed
 * Rules:   (1) the agent signs as agent/INSTANCE, and a router proves by the signature of its 101 that it holds the
 *              fleet's secret
 *          (2) a router reaches two ports through it: the engine's, and the agent's own API
 * Bound:   DIALLER_ROUTERS_MAX routers, DIALLER_STREAMS_MAX streams of each
 */
#pragma once
#include "base/io/auth/signed_call.h"
#include "base/io/tunnel/tunnel.h"

#define DIALLER_ROUTERS_MAX 16
#define DIALLER_STREAMS_MAX 4096
#define DIALLER_AGAIN_US_MIN 250000 /* the first wait is up to this, and doubles */
#define DIALLER_AGAIN_US_MAX 15000000
#define DIALLER_PATH "/internal/tunnel"

struct dialler;

struct dialler_config {
    struct loop *loop;
    struct signer *signer;
    struct signed_as as; /* points to strings that outlive the dialler */
    struct str instance; /* for the log */
    /* [https://]HOST:PORT of routers that stay, whatever the controller says. */
    const struct str *fixed;
    uint32_t fixed_count;
    /* Says where a stream to `port` leads; false: not here. */
    bool (*on_dial)(void *arg, uint16_t port, struct tunnel_target *ret);
    void *arg;
};

/* Begins to dial the fixed routers. -EINVAL names the address that is none. */
int dialler_new(const struct dialler_config *config, struct dialler **ret, struct err *err);
void dialler_free(struct dialler *t);

/* Replaces the routers that the controller names; an address that is none is skipped. One that is not named any more
 * keeps its tunnel, and is not dialled again: a controller that has just started knows no router yet. */
void dialler_set(struct dialler *t, const struct str *routers, uint32_t count);
