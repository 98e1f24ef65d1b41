/* loop_metrics.c - sums the counters of all threads once a second: no request pays for a metric. */
#include "router/loop_metrics.h"

#include "base/core/bits.h"

#define TELL_US 1000000

void loop_metrics_add(struct loop_metrics *w, const struct loop_metrics_source *wire)
{
    must(w->count < LOOP_METRICS_MAX);
    w->wire[w->count++] = *wire;
}

static void add_served(const struct loop_metrics_source *wire, struct http_server_counts *ret)
{
    struct http_server_counts s;
    if (!wire->server) return;
    http_server_counts_get(wire->server, &s);
    ret->requests += s.requests;
    ret->bytes_in += s.bytes_in;
    ret->bytes_out += s.bytes_out;
    ret->held_bytes += s.held_bytes;
}

static void sum_up(const struct loop_metrics *w, struct loop_counts *loops,
                   struct http_client_counts *calls, struct http_server_counts *served)
{
    *loops = (struct loop_counts){ 0 };
    *calls = (struct http_client_counts){ 0 };
    *served = (struct http_server_counts){ 0 };
    for (uint32_t i = 0; i < w->count; i++) {
        struct loop_counts l;
        struct http_client_counts c;
        loop_counts_get(w->wire[i].loop, &l);
        http_client_counts_get(w->wire[i].client, &c);
        loops->turns += l.turns;
        loops->posts_refused += l.posts_refused;
        calls->connections += c.connections;
        calls->idle += c.idle;
        calls->connects += c.connects;
        calls->reused += c.reused;
        calls->stale_retried += c.stale_retried;
        calls->refused += c.refused;
        calls->ended[HTTP_END_LOCAL] += c.ended[HTTP_END_LOCAL];
        calls->names.failed += c.names.failed;
        calls->names.stale += c.names.stale;
        add_served(&w->wire[i], served);
    }
}

/* The threads run on while they are read: idle may be of a later moment than all. */
static void tell_connections(struct loop_metrics *w, const struct http_client_counts *c)
{
    uint64_t idle = c->idle < c->connections ? c->idle : c->connections;
    const struct str states[] = { STR("busy"), STR("idle") };
    metric_set(metric_series(w->metrics, RM_UPSTREAM_CONNECTIONS, &states[0]),
               (double)(c->connections - idle));
    metric_set(metric_series(w->metrics, RM_UPSTREAM_CONNECTIONS, &states[1]), (double)idle);
}

void loop_metrics_tell(struct loop_metrics *w)
{
    struct loop_counts loops;
    struct http_client_counts calls;
    struct http_server_counts served;
    sum_up(w, &loops, &calls, &served);
    const struct {
        enum router_metric metric;
        uint64_t before, now;
    } rows[] = {
        { RM_UPSTREAM_CONNECTS, w->calls.connects, calls.connects },
        { RM_UPSTREAM_REUSED, w->calls.reused, calls.reused },
        { RM_UPSTREAM_STALE, w->calls.stale_retried, calls.stale_retried },
        { RM_UPSTREAM_REFUSED, w->calls.refused, calls.refused },
        { RM_UPSTREAM_LOCAL, w->calls.ended[HTTP_END_LOCAL], calls.ended[HTTP_END_LOCAL] },
        { RM_NAMES_FAILED, w->calls.names.failed, calls.names.failed },
        { RM_NAMES_STALE, w->calls.names.stale, calls.names.stale },
        { RM_HTTP_REQUESTS, w->served.requests, served.requests },
        { RM_HTTP_RECEIVED, w->served.bytes_in, served.bytes_in },
        { RM_HTTP_SENT, w->served.bytes_out, served.bytes_out },
        { RM_LOOP_TURNS, w->loops.turns, loops.turns },
        { RM_LOOP_POSTS_REFUSED, w->loops.posts_refused, loops.posts_refused },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        metric_add(metric_of(w->metrics, rows[i].metric), (double)(rows[i].now - rows[i].before));
    tell_connections(w, &calls);
    metric_set(metric_of(w->metrics, RM_HTTP_HELD), (double)served.held_bytes);
    w->loops = loops;
    w->calls = calls;
    w->served = served;
}

static void on_timer(void *arg)
{
    struct loop_metrics *w = arg;
    loop_metrics_tell(w);
    (void)loop_timer_set(w->own, &w->timer, loop_now_us(w->own) + TELL_US);
}

int loop_metrics_start(struct loop_metrics *w, struct loop *own)
{
    w->own = own;
    w->timer = (struct loop_timer){ .fn = on_timer, .arg = w };
    return loop_timer_set(own, &w->timer, loop_now_us(own) + TELL_US);
}
