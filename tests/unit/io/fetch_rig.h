/* fetch_rig.h - sets up a client of fetch.h and a listening socket that the test serves, and records each call. */
#pragma once
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/fetch.h"
#include "tests/unit/io/raw_peer.h"

#define REPLY "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Note:  hi \r\n\r\nok"

struct world {
    struct loop *loop;
    struct fetch *fetch;
    int listener;
    uint16_t port;
};

struct seen { /* the record of one call */
    struct fetch_call *call;
    struct buf body;
    int heads, ends, head_status;
    size_t data_calls;
    struct fetch_reply reply;
    char problem[FETCH_PROBLEM_BYTES], note[32];
    bool cancel_on_head, cancel_on_data, cancel_on_end, start_on_end;
    struct world *world;
    struct seen *other; /* started or cancelled from a callback */
};

static inline struct world begin(struct fetch_config config)
{
    struct world w = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&w.loop, &err), 0);
    if (fetch_new(w.loop, &config, &w.fetch, &err) < 0) fail_msg("%s", err.text);
    w.listener = peer_listen(&w.port);
    return w;
}

static inline void end(struct world *w)
{
    fetch_free(w->fetch);
    if (w->listener >= 0) close(w->listener);
    loop_free(w->loop);
}

static inline void seen_fini(struct seen *s)
{
    buf_fini(&s->body);
    *s = (struct seen){ 0 };
}

static inline void start(struct world *w, struct seen *s, struct fetch_request req);

static inline void on_head(void *arg, int status)
{
    struct seen *s = arg;
    s->heads++;
    s->head_status = status;
    snprintf(s->note, sizeof s->note, STR_FMT, STR_ARG(fetch_header(s->call, "x-note")));
    if (s->cancel_on_head) fetch_cancel(TAKE(s->call));
}

static inline void on_data(void *arg, struct str data)
{
    struct seen *s = arg;
    assert_true(data.len > 0);
    assert_int_equal(s->ends, 0);
    s->data_calls++;
    buf_str(&s->body, data);
    if (s->cancel_on_data) fetch_cancel(TAKE(s->call));
    if (s->other && s->other->call) fetch_cancel(TAKE(s->other->call));
}

static inline void on_end(void *arg, const struct fetch_reply *reply)
{
    struct seen *s = arg;
    s->ends++;
    s->reply = *reply;
    snprintf(s->problem, sizeof s->problem, "%s", reply->problem);
    if (reply->body.len) buf_str(&s->body, reply->body);
    if (s->cancel_on_end) fetch_cancel(s->call);
    if (s->start_on_end) start(s->world, s->other, (struct fetch_request){ 0 });
    s->call = NULL;
}

/* The URL of the world's listener, unless the request has one. */
static inline struct str url_of(const struct world *w, const char *path, char ret[128])
{
    snprintf(ret, 128, "http://127.0.0.1:%u%s", w->port, path);
    return str_from(ret);
}

static inline int try_start(struct world *w, struct seen *s, struct fetch_request req,
                            struct err *err)
{
    char url[128];
    if (req.url.len == 0) req.url = url_of(w, "/x", url);
    req.on_head = on_head;
    req.on_end = on_end;
    req.arg = s;
    s->world = w;
    return fetch_start(w->fetch, &req, &s->call, err);
}

static inline void start(struct world *w, struct seen *s, struct fetch_request req)
{
    struct err err = { 0 };
    if (try_start(w, s, req, &err) < 0) fail_msg("%s", err.text);
}

static inline struct fetch_counts counts(const struct world *w)
{
    struct fetch_counts c;
    fetch_counts_get(w->fetch, &c);
    return c;
}

/* Accepts a connection and waits for the head of a request. */
static inline struct peer take(struct world *w)
{
    struct peer p;
    PEER_ACCEPT(w->loop, w->listener, &p);
    PEER_UNTIL(w->loop, &p, peer_has(&p, "\r\n\r\n"));
    return p;
}

static inline void assert_end(const struct seen *s, enum fetch_end expected)
{
    if (s->ends != 1 || s->reply.end != expected)
        fail_msg("%d ends, %s: %s; expected %s", s->ends, fetch_end_name(s->reply.end), s->problem,
                 fetch_end_name(expected));
    assert_true((expected == FETCH_OK) == (s->problem[0] == 0));
}

static inline void assert_says(const struct seen *s, const char *words)
{
    if (!strstr(s->problem, words)) fail_msg("\"%s\" does not say \"%s\"", s->problem, words);
}
