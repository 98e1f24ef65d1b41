/* router.c - starts the threads, waits for a signal, drains and ends.
 *
 * The calling thread starts the others and then waits on its own small loop for signals only, so that
 * draining never competes with traffic.
 */
#include "router/router.h"

#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/io/notify.h"
#include "router/byte_loop.h"
#include "router/decide.h"
#include "router/metrics.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTE_LOOPS_MAX 64
_Static_assert(BYTE_LOOPS_MAX + 1 <= LOOP_METRICS_MAX, "each loop has its wire");

struct router {
    const struct router_config *config;
    struct fleet_link link;
    struct snapshot_board board;
    struct metrics *metrics;
    struct text_pool *texts;
    struct tunnels *tunnels;
    struct decide *decide;
    struct byte_loop *byte[BYTE_LOOPS_MAX];
    uint32_t byte_count;
    struct name_book *names;
    struct tls *serve, *call; /* for clients; for calls to engines and the controller */
    struct loop *signals;
    struct loop_metrics loop_metrics;
    struct tracer *tracer;     /* NULL: no traces; its calls are made on `signals` */
    struct notify_watch watch; /* of all loops, for a service manager */
    pthread_t decide_thread, reaper;
    bool draining, deciding;
};

static void *run_decide(void *arg)
{
    struct router *r = arg;
    decide_run(r->decide);
    return NULL;
}

static void *wait_for_byte_loops(void *arg)
{
    struct router *r = arg;
    for (uint32_t i = 0; i < r->byte_count; i++)
        byte_loop_join(r->byte[i]);
    loop_stop(r->signals);
    return NULL;
}

static void on_signal(void *arg, int signo)
{
    struct router *r = arg;
    log_event(LOG_INFO, r->draining ? "stopping" : "draining", "signal=%d", signo);
    notify_watch_release(&r->watch); /* byte loops end one by one from now on */
    notify_stopping(r->draining ? "ends at once" : "drains: running requests may finish");
    for (uint32_t i = 0; i < r->byte_count; i++) {
        if (r->draining) {
            byte_loop_stop(r->byte[i]);
        } else {
            byte_loop_drain(r->byte[i]);
        }
    }
    r->draining = true;
}

static int open_tracer(struct router *r, struct err *err)
{
    const struct router_config *c = r->config;
    const struct tracer_config config = {
        .section = &c->trace,
        .role = "muster-router",
        .instance = c->name,
        .loop = r->signals,
        .names = r->names,
        .environ = (const char *const *)environ,
        .meters = { r->metrics, RM_TRACE_SPANS, RM_TRACE_EXPORTS, RM_TRACE_REQUESTS },
    };
    int rc = tracer_open(&config, &r->tracer, err);
    return rc < 0 ? err_prefix(err, rc, "router") : 0;
}

static int build(struct router *r, struct err *err)
{
    const struct router_config *c = r->config;
    struct addr listen;
    int rc = addr_parse(&listen, c->listen, err);
    if (rc < 0) return err_prefix(err, rc, "router.listen");
    if (!addr_is_loopback(&listen) && !router_has_controller(c)) {
        return err_set(err, -EPERM,
                       "router.listen: " STR_FMT " is public and without a controller there are no "
                       "API keys; listen on 127.0.0.1 or name router.controller",
                       STR_ARG(c->listen));
    }
    rc = fleet_link_init(&r->link, c->secret_file, c->send_secret, clock_mono_us(), err);
    if (rc == 0) {
        rc = key_file_load(c->metrics_key_file, &r->link.scrapers, err);
        if (rc < 0) return err_prefix(err, rc, "router.metrics_key_file");
    }
    if (rc == 0) rc = snapshot_board_init(&r->board);
    if (rc == 0) {
        struct metric_target slo[] = { { RM_TTFT, (double)c->slo_ttft_us * 1e-6 },
                                       { RM_TPOT, (double)c->slo_tpot_us * 1e-6 } };
        rc = metrics_new(router_metric_table, RM_COUNT, slo, COUNT_OF(slo), &r->metrics, err);
        if (rc == 0) auth_gate_meters(&r->link.gate, r->metrics, RM_SIGNED);
    }
    /* Before any thread starts: all inherit the mask. */
    if (rc == 0) rc = loop_new(&r->signals, err);
    if (rc == 0) rc = loop_signal(r->signals, SIGTERM, on_signal, r, err);
    if (rc == 0) rc = loop_signal(r->signals, SIGINT, on_signal, r, err);
    if (rc == 0) rc = name_book_new(&r->names, err);
    if (rc == 0) {
        rc = tls_section_open(&c->tls, &r->serve, &r->call, err);
        if (rc < 0) return err_prefix(err, rc, "router.tls");
    }
    if (rc == 0) rc = open_tracer(r, err);
    const struct text_pool_config texts = {
        .threads = (uint32_t)c->text_threads,
        .queue_bytes = (size_t)c->text_queue,
        .meters = { r->metrics, RM_TEXT_BYTES, RM_TEXT_REFUSED, RM_TEXT_SECONDS },
    };
    if (rc == 0) rc = text_pool_new(&texts, &r->texts, err);
    if (rc == 0)
        rc = tunnels_new((uint32_t)c->tunnels_max, c->tunnel_silence_us, r->metrics, &r->tunnels,
                         err);
    struct byte_loop_config bytes = { .router = c,
                                      .tunnels = r->tunnels,
                                      .link = &r->link,
                                      .board = &r->board,
                                      .metrics = r->metrics,
                                      .names = r->names,
                                      .texts = r->texts,
                                      .tracer = r->tracer,
                                      .serve = r->serve,
                                      .call = r->call };
    for (int64_t i = 0; rc == 0 && i < c->threads; i++) {
        rc = byte_loop_new(&bytes, &r->byte[i], err);
        if (rc == 0) r->byte_count++;
        if (rc == 0) bytes.port = byte_loop_port(r->byte[0]);
    }
    struct decide_config decide = { .router = c,
                                    .tunnels = r->tunnels,
                                    .link = &r->link,
                                    .port = bytes.port,
                                    .board = &r->board,
                                    .metrics = r->metrics,
                                    .names = r->names,
                                    .call = r->call };
    if (rc == 0) rc = decide_new(&decide, &r->decide, err);
    return rc;
}

/* Watches every loop that a request may depend on. */
static int start_watch(struct router *r, struct err *err)
{
    struct loop *loops[BYTE_LOOPS_MAX + 2];
    uint32_t count = 0;
    for (; count < r->byte_count; count++)
        loops[count] = r->byte[count]->loop;
    loops[count++] = r->decide->loop;
    loops[count++] = tunnels_loop(r->tunnels);
    return notify_watch_start(&r->watch, r->signals, loops, count, err);
}

static void tell_ready(const struct router *r)
{
    char status[128];
    log_event(LOG_INFO, "router_ready", "listen=%.*s port=%u threads=%u",
              STR_ARG(r->config->listen), byte_loop_port(r->byte[0]), r->byte_count);
    snprintf(status, sizeof status, "takes requests at " STR_FMT, STR_ARG(r->config->listen));
    notify_ready(status);
}

static int start(struct router *r, struct err *err)
{
    r->loop_metrics.metrics = r->metrics;
    for (uint32_t i = 0; i < r->byte_count; i++)
        loop_metrics_add(&r->loop_metrics,
                         &(struct loop_metrics_source){ r->byte[i]->loop, r->byte[i]->client,
                                                        r->byte[i]->server });
    loop_metrics_add(&r->loop_metrics,
                     &(struct loop_metrics_source){ r->decide->loop, r->decide->client, NULL });
    int rc = loop_metrics_start(&r->loop_metrics, r->signals);
    if (rc < 0) return err_set(err, rc, "router: no memory for a timer");
    if (pthread_create(&r->decide_thread, NULL, run_decide, r) != 0) {
        return err_set(err, -EAGAIN, "router: cannot start a thread");
    }
    r->deciding = true;
    rc = tunnels_start(r->tunnels, decide_tunnels_changed, r->decide, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < r->byte_count; i++) {
        byte_loop_attach(r->byte[i], r->decide);
        rc = byte_loop_start(r->byte[i], err);
        if (rc < 0) return rc;
    }
    if (pthread_create(&r->reaper, NULL, wait_for_byte_loops, r) != 0) {
        return err_set(err, -EAGAIN, "router: cannot start a thread");
    }
    return 0;
}

static void teardown(struct router *r)
{
    for (uint32_t i = 0; i < r->byte_count; i++) {
        if (r->byte[i]->running) byte_loop_stop(r->byte[i]);
        byte_loop_join(r->byte[i]);
    }
    if (r->texts) text_pool_stop(r->texts);
    tunnels_stop(r->tunnels); /* it tells the decision thread of changes */
    if (r->deciding) {
        decide_stop(r->decide);
        pthread_join(r->decide_thread, NULL);
    }
    decide_free(r->decide);
    for (uint32_t i = 0; i < r->byte_count; i++)
        byte_loop_free(r->byte[i]);
    tunnels_free(r->tunnels);
    tracer_close(r->tracer);
    name_book_free(r->names);
    tls_free(r->serve);
    tls_free(r->call);
    text_pool_free(r->texts);
    fleet_link_fini(&r->link);
    metrics_free(r->metrics);
    snapshot_board_fini(&r->board);
    notify_watch_stop(&r->watch);
    notify_watch_fini(&r->watch);
    loop_free(r->signals);
}

int router_main(const struct router_config *config, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_max((uint64_t)config->log_max);
    struct router *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "router: no memory");
    r->config = config;
    int rc = build(r, err);
    if (rc == 0) rc = start(r, err);
    if (rc == 0) rc = start_watch(r, err);
    if (rc == 0) {
        tell_ready(r);
        rc = loop_run(r->signals);
        pthread_join(r->reaper, NULL);
        tracer_flush(r->tracer);
    }
    teardown(r);
    free(r);
    return rc;
}
