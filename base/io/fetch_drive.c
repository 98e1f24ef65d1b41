/* fetch_drive.c - drives libcurl's multi interface from a loop: one watch a socket, one timer.
 *
 * libcurl says which events it waits for and when it wants to be called again, and is called with events and with the
 * passing of time. While it is on the stack it must not be entered (`inside`).
 */
#include "base/core/fault.h"
#include "base/io/fetch_call.h"

#include <stdlib.h>

struct watched { /* a socket of libcurl */
    struct list node;
    struct fetch *fetch;
    struct loop_watch watch;
};

/* Hands libcurl an event, or the passing of time, and ends the calls that are done. */
static void drive(struct fetch *f, curl_socket_t fd, int events);

static void on_socket_event(void *arg, uint32_t events)
{
    struct watched *w = arg; /* may be freed by drive */
    int what = 0;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) what |= CURL_CSELECT_IN;
    if (events & EPOLLOUT) what |= CURL_CSELECT_OUT;
    if (events & EPOLLERR) what |= CURL_CSELECT_ERR;
    drive(w->fetch, w->watch.fd, what);
}

static void watched_free(struct watched *w)
{
    loop_watch_del(w->fetch->loop, &w->watch);
    list_remove(&w->node);
    free(w);
}

static struct watched *watched_new(struct fetch *f, curl_socket_t fd)
{
    struct watched *w = FAULT("fetch.socket") ? NULL : calloc(1, sizeof *w);
    if (!w) return NULL;
    w->fetch = f;
    w->watch = (struct loop_watch){ .fd = fd, .fn = on_socket_event, .arg = w };
    list_push_back(&f->sockets, &w->node);
    curl_multi_assign(f->multi, fd, w);
    return w;
}

/* libcurl tells which events of a socket it waits for. It would give up all calls if this failed, so a
 * socket that cannot be watched ends only the call that uses it. */
static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct fetch *f = arg;
    struct watched *w = socket_arg;
    if (what == CURL_POLL_REMOVE) {
        if (w) watched_free(w);
        return 0;
    }
    if (!w) w = watched_new(f, fd);
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    int rc = !w ? -ENOMEM : 0;
    if (w && events == 0) loop_watch_del(f->loop, &w->watch);
    if (w && events != 0)
        rc = w->watch.added ? loop_watch_mod(f->loop, &w->watch, events)
                            : loop_watch_add(f->loop, &w->watch, events);
    struct fetch_call *call = NULL;
    if (rc < 0 && curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call) == CURLE_OK && call) {
        call->no_watch = true;
        loop_defer(f->loop, &f->reap);
    }
    return 0;
}

static void on_timer(void *arg)
{
    drive(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long wait_ms, void *arg)
{
    (void)multi;
    struct fetch *f = arg;
    loop_timer_clear(f->loop, &f->timer);
    if (wait_ms < 0) return 0;
    int64_t at_us = loop_now_us(f->loop) + (int64_t)wait_ms * 1000;
    /* Too early is allowed: libcurl looks at its own clock. */
    if (loop_timer_set(f->loop, &f->timer, at_us) < 0) loop_defer(f->loop, &f->poke);
    return 0;
}

static void drive(struct fetch *f, curl_socket_t fd, int events)
{
    int running;
    f->inside = true;
    curl_multi_socket_action(f->multi, fd, events, &running);
    f->inside = false;
    for (CURLMsg *m; (m = curl_multi_info_read(f->multi, &running));) {
        struct fetch_call *call = NULL;
        CURLcode code = m->data.result; /* m is gone once its handle is removed */
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (call && call->state == FETCH_RUNNING) fetch_call_done(call, code);
    }
}

int fetch_drive_init(struct fetch *f)
{
    list_init(&f->sockets);
    f->timer = (struct loop_timer){ .fn = on_timer, .arg = f };
    f->poke = (struct loop_task){ .fn = on_timer, .arg = f };
    f->multi = curl_multi_init();
    if (!f->multi) return -ENOMEM;
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_MAXCONNECTS, (long)f->config.running_max);
    return 0;
}

void fetch_drive_fini(struct fetch *f)
{
    loop_defer_clear(f->loop, &f->poke);
    if (f->multi) curl_multi_cleanup(f->multi); /* closes the pooled connections */
    loop_timer_clear(f->loop, &f->timer);
    while (!list_empty(&f->sockets))
        watched_free(CONTAINER_OF(f->sockets.next, struct watched, node));
}
