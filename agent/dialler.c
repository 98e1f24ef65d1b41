/* dialler.c - dials routers, and dials them again. */
#include "agent/dialler.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "fleet/controllers.h"

#include <stdlib.h>
#include <string.h>

#define DIAL_US 10000000   /* deadline of the call that becomes the tunnel */
#define STEADY_US 10000000 /* a tunnel that lasted so long was no failure */
#define LOG_US 30000000    /* between two lines about one router that cannot be reached */

struct dialled { /* one router; port 0: a free place */
    struct dialler *owner;
    struct controller_address at;
    bool fixed, listed;
    struct signed_call *call; /* under way; NULL: none */
    struct tunnel *tunnel;    /* NULL: none */
    struct loop_timer again;
    uint32_t failures;
    int status;
    int64_t up_us;
    struct log_limit log;
};

struct dialler {
    struct dialler_config config;
    struct rng rng;
    struct dialled router[DIALLER_ROUTERS_MAX];
};

static void log_down(struct dialled *d, const char *why)
{
    uint64_t skipped;
    const struct dialler *t = d->owner;
    if (!log_pass(&d->log, loop_now_us(t->config.loop), LOG_US, &skipped)) return;
    log_event(LOG_WARN, "tunnel_down", "instance=%.*s router=%s:%u status=%d why=%s skipped=%llu",
              STR_ARG(t->config.instance), d->at.host, d->at.port, d->status, why,
              (unsigned long long)skipped);
}

/* Waits a random part of a time that doubles (full jitter): agents that lost one router at one moment do not come
 * back at one moment. */
static void again(struct dialled *d)
{
    struct dialler *t = d->owner;
    if (!d->listed) {
        d->at.port = 0;
        return;
    }
    int64_t most_us = DIALLER_AGAIN_US_MAX;
    if (d->failures < 6) most_us = min_i64(most_us, DIALLER_AGAIN_US_MIN << d->failures);
    d->failures++;
    int64_t wait_us = (int64_t)rng_below(&t->rng, (uint64_t)most_us);
    if (loop_timer_set(t->config.loop, &d->again, loop_now_us(t->config.loop) + wait_us) < 0)
        log_down(d, "its timer cannot be set");
}

static void on_lost(void *arg, const char *why)
{
    struct dialled *d = arg;
    if (loop_now_us(d->owner->config.loop) - d->up_us >= STEADY_US) d->failures = 0;
    log_down(d, why);
    tunnel_free(d->tunnel);
    d->tunnel = NULL;
    again(d);
}

static bool on_dial(void *arg, uint16_t port, struct tunnel_target *ret)
{
    const struct dialler_config *c = &((struct dialled *)arg)->owner->config;
    return c->on_dial(c->arg, port, ret);
}

static void on_head(void *arg, const struct http_response *head)
{
    ((struct dialled *)arg)->status = head->status;
}

static void on_upgrade(void *arg, struct conn *conn)
{
    struct dialled *d = arg;
    const struct dialler *t = d->owner;
    const struct tunnel_config config = { .loop = t->config.loop,
                                          .streams_max = DIALLER_STREAMS_MAX,
                                          .on_dial = on_dial,
                                          .on_lost = on_lost,
                                          .arg = d };
    if (tunnel_new(&config, conn, &d->tunnel, NULL) < 0) return;
    d->up_us = loop_now_us(t->config.loop);
    log_event(LOG_INFO, "tunnel_up", "instance=%.*s router=%s:%u", STR_ARG(t->config.instance),
              d->at.host, d->at.port);
}

static void on_end(void *arg, enum http_end end)
{
    struct dialled *d = arg;
    const char *problem = signed_call_problem(d->call);
    if (!d->tunnel)
        log_down(d, problem[0]           ? problem
                    : end != HTTP_END_OK ? http_end_text(end)
                                         : "the router takes no tunnel");
    d->call = NULL;
    if (!d->tunnel) again(d);
}

static void dial(void *arg)
{
    struct dialled *d = arg;
    struct dialler *t = d->owner;
    if (d->call || d->tunnel) return;
    if (!d->listed) { /* not any more */
        d->at.port = 0;
        return;
    }
    d->status = 0;
    const struct http_call_request req = {
        .host = str_from(d->at.host),
        .port = d->at.port,
        .tls = d->at.tls,
        .path = STR(DIALLER_PATH),
        .upgrade = STR(TUNNEL_PROTOCOL),
        .on_upgrade = on_upgrade,
        .deadline_us = loop_now_us(t->config.loop) + DIAL_US,
        .on_head = on_head,
        .on_end = on_end,
        .arg = d,
    };
    d->call = signed_call_start(t->config.signer, &req, &t->config.as, true, NULL);
    if (!d->call) again(d);
}

/* ---- which routers ---- */

static bool is_same(const struct controller_address *a, const struct controller_address *b)
{
    return a->port == b->port && a->tls == b->tls && strcmp(a->host, b->host) == 0;
}

static struct dialled *place_of(struct dialler *t, const struct controller_address *at)
{
    struct dialled *free_place = NULL;
    for (uint32_t i = 0; i < DIALLER_ROUTERS_MAX; i++) {
        if (is_same(&t->router[i].at, at)) return &t->router[i];
        if (!free_place && t->router[i].at.port == 0) free_place = &t->router[i];
    }
    return free_place;
}

/* Lists a router, which is dialled in the next turn if it is new. */
static void list_router(struct dialler *t, const struct controller_address *at, bool fixed)
{
    struct dialled *d = place_of(t, at);
    if (!d) return; /* DIALLER_ROUTERS_MAX: the first ones do */
    if (d->at.port == 0) {
        *d = (struct dialled){ .owner = t, .at = *at };
        d->again = (struct loop_timer){ .fn = dial, .arg = d };
        (void)loop_timer_set(t->config.loop, &d->again, loop_now_us(t->config.loop));
    }
    d->fixed |= fixed;
    d->listed = true;
}

void dialler_set(struct dialler *t, const struct str *routers, uint32_t count)
{
    for (uint32_t i = 0; i < DIALLER_ROUTERS_MAX; i++)
        t->router[i].listed = t->router[i].fixed;
    for (uint32_t i = 0; i < count; i++) {
        struct controller_address at;
        if (controller_address_parse(routers[i], &at, NULL) == 0) list_router(t, &at, false);
    }
}

/* ---- life ---- */

int dialler_new(const struct dialler_config *config, struct dialler **ret, struct err *err)
{
    struct dialler *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for the tunnels");
    t->config = *config;
    rng_seed(&t->rng, (uint64_t)clock_wall_us() ^ (uint64_t)(uintptr_t)t);
    for (uint32_t i = 0; i < config->fixed_count; i++) {
        struct controller_address at;
        int rc = controller_address_parse(config->fixed[i], &at, err);
        if (rc < 0) {
            dialler_free(t);
            return err_prefix(err, rc, "agent.routers[%u]", i);
        }
        list_router(t, &at, true);
    }
    *ret = t;
    return 0;
}

void dialler_free(struct dialler *t)
{
    if (!t) return;
    for (uint32_t i = 0; i < DIALLER_ROUTERS_MAX; i++) {
        struct dialled *d = &t->router[i];
        if (d->at.port == 0) continue;
        loop_timer_clear(t->config.loop, &d->again);
        if (d->call) signed_call_cancel(d->call);
        tunnel_free(d->tunnel);
    }
    free(t);
}
