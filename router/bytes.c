/* bytes.c - set up a byte loop and run its thread. */
#include "router/bytes.h"

#include "base/core/own.h"
#include "base/io/addr.h"
#include "base/io/clock.h"
#include "base/io/log.h"
#include "router/byte_loop.h"
#include "router/decide.h"

#include <stdlib.h>

CLEANUP_FREEP(bytes, struct byte_loop)

uint16_t bytes_port(const struct byte_loop *b)
{
    return http_server_port(b->server);
}

int bytes_new(const struct bytes_config *config, struct byte_loop **ret, struct err *err)
{
    CLEANUP(bytes_freep) struct byte_loop *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, -ENOMEM, "router: no memory");
    list_init(&b->live);
    const struct router_config *rc = config->router;
    struct addr listen;
    struct str host;
    uint16_t port;
    int r = addr_parse(&listen, rc->listen, err);
    if (r == 0) r = router_address(rc->listen, &host, &port, err);
    if (r < 0) return err_prefix(err, r, "router.listen");
    b->config = rc;
    b->secret = config->secret;
    b->board = config->board;
    b->metrics = config->metrics;
    b->loopback = addr_is_loopback(&listen);
    const struct predict_policy *predict = predict_find(rc->predict);
    b->asks_lengths = predict && predict->needs & PREDICT_REPORTED;
    rng_seed(&b->rng, (uint64_t)clock_wall_us() ^ (uint64_t)(uintptr_t)b);

    char host_text[64];
    if (host.len >= sizeof host_text) return err_set(err, -EINVAL, "router.listen: too long");
    memcpy(host_text, host.data, host.len);
    host_text[host.len] = '\0';
    struct http_server_config server = {
        .host = host_text,
        .port = config->port ? config->port : port,
        .reuse_port = rc->threads > 1,
        .on_request = front_on_request,
        .render_refusal = front_render_refusal,
        .ctx = b,
    };
    r = pool_init(&b->requests, sizeof(struct request), (uint32_t)rc->requests_max);
    if (r < 0) return err_set(err, r, "router: no memory for requests");
    r = loop_new(&b->loop, err);
    if (r == 0) r = http_client_new(b->loop, NULL, &b->client, err);
    if (r == 0) r = http_server_new(b->loop, &server, &b->server, err);
    if (r < 0) return r;
    const struct http_server_meters meters = { config->metrics, RM_HTTP_CONNECTIONS,
                                               RM_HTTP_REFUSED, RM_HTTP_CUT };
    http_server_meters_set(b->server, &meters);
    lane_init(&b->lane, b->loop, generate_on_mail, b);
    *ret = TAKE(b);
    return 0;
}

void bytes_free(struct byte_loop *b)
{
    if (!b) return;
    /* The decision thread has ended: nobody is asked or told any more. */
    LIST_EACH_SAFE (&b->live, node) {
        struct request *r = CONTAINER_OF(node, struct request, link);
        if (r->x) http_exchange_abort(r->x);
        if (r->call) http_call_cancel(r->call);
        r->x = NULL;
        r->call = NULL;
        r->question = r->asker = NULL;
        request_release(r);
    }
    http_server_free(b->server);
    http_client_free(b->client);
    if (b->lane.loop) lane_fini(&b->lane);
    loop_free(b->loop);
    pool_fini(&b->requests);
    free(b);
}

void bytes_attach(struct byte_loop *b, struct decide *d)
{
    b->decide = d;
    b->asks = decide_lane(d);
}

static void *run(void *arg)
{
    struct byte_loop *b = arg;
    int rc = loop_run(b->loop);
    if (rc < 0) log_event(LOG_ERROR, "byte_loop_failed", "error=%s", err_text(NULL, rc));
    return NULL;
}

int bytes_start(struct byte_loop *b, struct err *err)
{
    int rc = pthread_create(&b->thread, NULL, run, b);
    if (rc != 0) return err_set(err, -rc, "router: cannot start a thread");
    b->running = true;
    return 0;
}

static void on_empty(void *arg)
{
    struct byte_loop *b = arg;
    loop_stop(b->loop);
}

static void drain_now(void *arg)
{
    struct byte_loop *b = arg;
    http_server_drain(b->server, on_empty, b);
}

void bytes_drain(struct byte_loop *b)
{
    if (loop_post(b->loop, drain_now, b) < 0) loop_stop(b->loop);
}

void bytes_stop(struct byte_loop *b)
{
    loop_stop(b->loop);
}

void bytes_join(struct byte_loop *b)
{
    if (b->running) pthread_join(b->thread, NULL);
    b->running = false;
}
