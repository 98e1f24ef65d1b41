/* byte_loop.c - sets up a byte loop and runs its thread. */
#include "router/byte_loop.h"

#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/io/net/descriptors.h"
#include "router/decide.h"
#include "router/fan.h"

#include <stdlib.h>

#define UPSTREAM_MAX 10000 /* connections of a loop to engines */

CLEANUP_FREEP(byte_loop, struct byte_loop)

uint16_t byte_loop_port(const struct byte_loop *b)
{
    return http_server_port(b->server);
}

/* Returns the limits of client connections. Each request may need a connection to an engine as well:
 * the descriptors are divided, so that clients cannot take those of the engines. */
static struct http_limits client_limits(const struct router_config *c)
{
    uint32_t threads = (uint32_t)c->threads;
    return (struct http_limits){
        .connections_max =
            descriptors_share(ROUTER_CLIENTS_SHARE, threads, (uint32_t)c->connections_max),
        .connections_address_max = (uint32_t)c->connections_address_max,
    };
}

static int parse_proxies(const struct config_texts *from, struct http_net *ret, struct err *err)
{
    for (size_t i = 0; i < from->count; i++) {
        int rc = http_net_parse(&ret[i], from->items[i], err);
        if (rc < 0) return err_prefix(err, rc, "router.proxies");
    }
    return 0;
}

int byte_loop_new(const struct byte_loop_config *config, struct byte_loop **ret, struct err *err)
{
    CLEANUP(byte_loop_freep) struct byte_loop *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, -ENOMEM, "router: no memory");
    list_init(&b->live);
    list_init(&b->token_calls);
    arena_init(&b->frame, REQUEST_ARENA_BYTES_MAX);
    const struct router_config *rc = config->router;
    struct addr listen;
    struct str host;
    uint16_t port;
    int r = addr_parse(&listen, rc->listen, err);
    if (r == 0) r = router_address(rc->listen, &host, &port, err);
    if (r < 0) return err_prefix(err, r, "router.listen");
    b->config = rc;
    b->link = config->link;
    b->print_seed = config->link->held.block_seed;
    b->board = config->board;
    b->tunnels = config->tunnels;
    b->metrics = config->metrics;
    b->loopback = addr_is_loopback(&listen);
    const struct predict_policy *predict = predict_find(rc->predict);
    b->asks_lengths = predict && predict->needs & PREDICT_REPORTED;
    rng_seed(&b->rng, (uint64_t)clock_wall_us() ^ (uint64_t)(uintptr_t)b);

    if (host.len >= sizeof b->host) return err_set(err, -EINVAL, "router.listen: too long");
    memcpy(b->host, host.data, host.len);
    struct http_net proxies[HTTP_PROXIES_MAX];
    r = parse_proxies(&rc->proxies, proxies, err);
    if (r < 0) return r;
    struct http_server_config server = {
        .host = b->host,
        .port = config->port ? config->port : port,
        .reuse_port = rc->threads > 1,
        .limits = client_limits(rc),
        .proxies = proxies,
        .proxy_count = (uint32_t)rc->proxies.count,
        .on_head = http_routes_on_head,
        .tls = config->serve,
        .on_request = http_routes_on_request,
        .on_reply = http_routes_on_reply,
        .render_refusal = http_routes_render_refusal,
        .ctx = b,
    };
    r = pool_init(&b->requests, sizeof(struct request), (uint32_t)rc->requests_max);
    b->tracer = config->tracer;
    if (r == 0 && b->tracer)
        r = pool_init(&b->traces, sizeof(struct request_trace), (uint32_t)rc->requests_max);
    if (r < 0) return err_set(err, r, "router: no memory for requests");
    r = loop_new(&b->loop, err);
    struct http_client_config upstream = {
        .names = config->names,
        .tls = config->call,
        .dial = tunnels_dial,
        .dial_arg = config->tunnels,
        .connections_max =
            descriptors_share(ROUTER_UPSTREAM_SHARE, (uint32_t)rc->threads, UPSTREAM_MAX),
    };
    if (r == 0) r = http_client_new(b->loop, &upstream, &b->client, err);
    if (r == 0) r = fleet_link_signer(b->link, b->loop, b->client, &b->signer, err);
    if (r == 0) r = http_server_new(b->loop, &server, &b->server, err);
    if (r < 0) return r;
    const struct http_server_meters meters = { config->metrics, RM_HTTP_CONNECTIONS,
                                               RM_HTTP_REFUSED, RM_HTTP_CUT, RM_HTTP_CLOSED };
    http_server_meters_set(b->server, &meters);
    mailbox_init(&b->mailbox, b->loop, generate_on_mail, b);
    mailbox_init(&b->entered, b->loop, tokens_on_mail, b);
    text_desk_init(&b->text, config->texts, b->loop);
    *ret = TAKE(b);
    return 0;
}

void byte_loop_free(struct byte_loop *b)
{
    if (!b) return;
    /* The decision thread and the text workers have ended: no mail is sent any more. */
    tokens_free(b);
    LIST_EACH_SAFE (&b->live, node) {
        struct request *r = CONTAINER_OF(node, struct request, client.link);
        if (r->client.x) http_exchange_abort(r->client.x);
        if (r->client.fan) fan_dissolve(r);
        if (r->client.call) signed_call_cancel(r->client.call);
        r->client.x = NULL;
        r->client.call = NULL;
        r->client.question = r->client.asker = NULL;
        request_release(r);
    }
    http_server_free(b->server);
    http_client_free(b->client);
    signer_free(b->signer);
    if (b->mailbox.loop) mailbox_fini(&b->mailbox);
    if (b->entered.loop) mailbox_fini(&b->entered);
    text_desk_fini(&b->text);
    loop_free(b->loop);
    pool_fini(&b->requests);
    pool_fini(&b->traces);
    arena_fini(&b->render);
    arena_fini(&b->frame);
    buf_fini(&b->body);
    free(b);
}

void byte_loop_attach(struct byte_loop *b, struct decide *d)
{
    b->decide = d;
    b->asks = decide_mailbox(d);
    mailbox_sender_init(&b->asking, b->asks, b->loop);
    mailbox_sender_init(&b->telling, &b->mailbox, d->loop);
}

static void *run(void *arg)
{
    struct byte_loop *b = arg;
    int rc = loop_run(b->loop);
    if (rc < 0) log_event(LOG_ERROR, "byte_loop_failed", "error=%s", err_text(NULL, rc));
    return NULL;
}

int byte_loop_start(struct byte_loop *b, struct err *err)
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

void byte_loop_drain(struct byte_loop *b)
{
    if (loop_post(b->loop, drain_now, b) < 0) loop_stop(b->loop);
}

void byte_loop_stop(struct byte_loop *b)
{
    loop_stop(b->loop);
}

void byte_loop_join(struct byte_loop *b)
{
    if (b->running) pthread_join(b->thread, NULL);
    b->running = false;
}
