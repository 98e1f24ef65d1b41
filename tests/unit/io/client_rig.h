/* client_rig.h - sets up a client and a listening socket that the test serves, and records each
 * call. */
#pragma once
#include "base/core/bits.h"
#include "base/io/http/http_client.h"
#include "tests/unit/io/raw_peer.h"

struct fixture {
    struct loop *loop;
    struct http_client *client;
    int listener;
    uint16_t port;
};

struct seen { /* the record of one call */
    struct http_call *call;
    struct buf body;
    int status;
    int heads, ends;
    size_t data_calls;
    enum http_end end;
    char type[64];
    bool pause_on_data, cancel_on_head, cancel_on_data;
};

static inline void on_head(void *arg, const struct http_response *head)
{
    struct seen *s = arg;
    s->heads++;
    s->status = head->status;
    struct str type = http_response_header(head, "content-type");
    snprintf(s->type, sizeof s->type, STR_FMT, STR_ARG(type));
    if (s->cancel_on_head) http_call_cancel(TAKE(s->call));
}

static inline void on_data(void *arg, struct str data)
{
    struct seen *s = arg;
    assert_true(data.len > 0);
    assert_int_equal(s->ends, 0);
    s->data_calls++;
    buf_str(&s->body, data);
    if (s->pause_on_data) http_call_pause(s->call);
    if (s->cancel_on_data) http_call_cancel(TAKE(s->call));
}

static inline void on_end(void *arg, enum http_end end)
{
    struct seen *s = arg;
    s->ends++;
    s->end = end;
    s->call = NULL;
}

static inline struct fixture begin(struct http_client_config config)
{
    struct fixture f = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&f.loop, &err), 0);
    assert_int_equal(http_client_new(f.loop, &config, &f.client, &err), 0);
    f.listener = peer_listen(&f.port);
    return f;
}

static inline void end(struct fixture *f)
{
    http_client_free(f->client);
    close(f->listener);
    loop_free(f->loop);
}

static inline struct http_client_counts counts(const struct fixture *f)
{
    struct http_client_counts c;
    http_client_counts_get(f->client, &c);
    return c;
}

static inline struct http_call_request request_for(const struct fixture *f, struct seen *s)
{
    return (struct http_call_request){ .host = STR("127.0.0.1"),
                                       .port = f->port,
                                       .path = STR("/x"),
                                       .on_head = on_head,
                                       .on_data = on_data,
                                       .on_end = on_end,
                                       .arg = s };
}

static inline void call(struct fixture *f, struct seen *s)
{
    struct err err = { 0 };
    struct http_call_request req = request_for(f, s);
    s->call = http_call_start(f->client, &req, &err);
    if (!s->call) fail_msg("%s", err.text);
}

static inline void seen_fini(struct seen *s)
{
    buf_fini(&s->body);
}

static inline void assert_body(const struct seen *s, const char *expected)
{
    if (!str_eq(buf_view(&s->body), str_from(expected)))
        fail_msg("body \"" STR_FMT "\", expected \"%s\"", STR_ARG(buf_view(&s->body)), expected);
}

/* Accepts the connection and waits for the head of the request. */
static inline struct peer take_request(struct fixture *f)
{
    struct peer p;
    PEER_ACCEPT(f->loop, f->listener, &p);
    PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\n\r\n"));
    return p;
}

static const struct str ok_reply = { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 40 };

static inline void send_reply(struct fixture *f, struct peer *p, struct str reply, size_t step)
{
    for (size_t at = 0; at < reply.len; at += step) {
        peer_send(f->loop, p, str_of(reply.data + at, min_size(step, reply.len - at)));
        loop_turn(f->loop, 0);
    }
    /* Lets the client read what was sent before it sees the end of the connection. */
    for (int i = 0; i < 3; i++)
        loop_turn(f->loop, 500);
}
