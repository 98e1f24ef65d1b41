/* f_http_client.c - drives the HTTP client as a state machine: calls start, pause, resume and cancel,
 * inside callbacks too, over pooled connections to peers that reply whole, torn, early, late, twice or
 * not at all, and close at any byte.
 *
 * It must hold that a call ends once and has no callback afterwards; its head comes before its data,
 * and no data comes while it is paused; it gets the reply to its own request, whole when it ends well;
 * and the client's counts agree. Once a peer has sent raw bytes of the input, the contents of replies
 * are not checked; all else still is. */
#include "base/core/bits.h"
#include "base/io/http/http_client.h"
#include "base/io/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_net.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS_MAX 40
#define PEERS 6
#define SECOND ((int64_t)1000000)

struct scene;

struct ask { /* one call and what it has reported */
    struct scene *scene;
    struct http_call *call; /* NULL: over, or cancelled */
    bool started, cancelled, paused, framed;
    uint8_t on_head, on_data, on_end; /* the callback's action, see act */
    uint32_t heads, ends;
    size_t got, want; /* bytes of body: received, written by the peer */
    char letter;
};

struct peer {
    int fd; /* -1: not there */
    struct buf got, unsent;
    int serves; /* the call that waits for a reply here; -1: none */
    bool to_head;
};

struct scene {
    struct loop *loop;
    struct http_client *client;
    struct fuzz_choices *c;
    struct ask ask[CALLS_MAX];
    uint32_t ask_count;
    struct peer peer[PEERS];
    bool raw;      /* some peer sent raw bytes of the input */
    bool starting; /* inside http_call_start, pause, resume or cancel: no callback may come */
    bool freeing;
};

static void start(struct scene *s, uint8_t how);

/* ---- calls ----------------------------------------------------------------------------------- */

static void cancel(struct ask *a)
{
    struct scene *s = a->scene;
    struct http_call *call = TAKE(a->call);
    if (!call) return;
    s->starting = true;
    http_call_cancel(call);
    s->starting = false;
    a->cancelled = true;
}

static void pause_call(struct ask *a, bool paused)
{
    struct scene *s = a->scene;
    if (!a->call) return;
    s->starting = true;
    if (paused)
        http_call_pause(a->call);
    else
        http_call_resume(a->call);
    s->starting = false;
    a->paused = paused;
}

/* Performs a callback's action: cancel, pause, start another call, or pause and resume. */
static void act(struct ask *a, uint8_t how)
{
    if (how % 8 == 1) cancel(a);
    if (how % 8 == 2) pause_call(a, true);
    if (how % 8 == 3 && !a->scene->freeing) start(a->scene, how / 8);
    if (how % 8 == 4) {
        pause_call(a, true);
        pause_call(a, false);
    }
}

static void check_callback(const struct ask *a)
{
    must(!a->scene->starting && a->started && !a->cancelled && a->ends == 0);
}

static void on_head(void *arg, const struct http_response *head)
{
    struct ask *a = arg;
    check_callback(a);
    must(a->heads++ == 0 && !a->paused && head->status >= 200);
    struct str letter = http_response_header(head, "x-letter");
    if (!a->scene->raw) must(letter.len == 1 && letter.data[0] == a->letter);
    a->framed = head->body_kind != HTTP_BODY_UNTIL_END;
    act(a, a->on_head);
}

/* Returns true if all bytes are the letter: the first is, and each equals the one before. */
static bool is_all(struct str data, char letter)
{
    return data.data[0] == letter && memcmp(data.data, data.data + 1, data.len - 1) == 0;
}

static void on_data(void *arg, struct str data)
{
    struct ask *a = arg;
    check_callback(a);
    must(a->heads == 1 && data.len > 0 && !a->paused);
    must(a->scene->raw || is_all(data, a->letter));
    a->got += data.len;
    act(a, a->on_data);
}

static void on_end(void *arg, enum http_end end)
{
    struct ask *a = arg;
    check_callback(a);
    must(end < HTTP_END_COUNT && (end != HTTP_END_CANCELLED || a->scene->freeing));
    a->ends++;
    a->call = NULL;
    if (end == HTTP_END_OK) must(a->heads == 1);
    if (end == HTTP_END_OK && a->framed && !a->scene->raw) must(a->got == a->want);
    act(a, a->on_end == 1 ? 0 : a->on_end);
}

static void start(struct scene *s, uint8_t how)
{
    static const char body[3000] = "body";
    if (s->ask_count == CALLS_MAX) return;
    struct ask *a = &s->ask[s->ask_count];
    char number[12];
    int digits = snprintf(number, sizeof number, "%u", s->ask_count++);
    *a = (struct ask){ .scene = s, .letter = (char)('a' + s->ask_count % 26) };
    a->on_head = how & 1 ? fuzz_u8(s->c) : 0;
    a->on_data = how & 2 ? fuzz_u8(s->c) : 0;
    a->on_end = how & 4 ? fuzz_u8(s->c) : 0;
    const struct http_header headers[] = { { STR("x-n"), str_of(number, (size_t)digits) } };
    const struct http_call_request req = {
        .host = STR("127.0.0.1"),
        .port = (uint16_t)(1 + (how >> 3) % 3),
        .method = how & 8 ? STR("HEAD") : (struct str){ 0 },
        .path = STR("/path"),
        .headers = headers,
        .header_count = 1,
        .body = str_of(body, how & 16 ? sizeof body : 0),
        .deadline_us = how & 32 ? net.now_us + 5 * SECOND : 0,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = a,
    };
    bool outer = s->starting;
    s->starting = true;
    a->call = http_call_start(s->client, &req, NULL);
    s->starting = outer;
    a->started = a->call != NULL;
    must(a->started);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void leave(struct peer *p)
{
    if (p->fd >= 0) close(p->fd);
    buf_fini(&p->got);
    buf_fini(&p->unsent);
    *p = (struct peer){ .fd = -1, .serves = -1 };
}

/* Takes the next whole request; it is well-formed, because our own client wrote it. */
static void take_request(struct peer *p)
{
    static const struct http1_limits limits = { 8192, 32768, HTTP_HEADERS_MAX };
    struct http1_scan scan = { 0 };
    struct http_request req;
    enum http_fault fault;
    size_t len;
    uint64_t n;
    int rc = http1_scan(&scan, buf_view(&p->got), &limits, &len, &fault);
    if (rc == -EAGAIN) return;
    must(rc == 0);
    must(http1_request_parse(str_of(p->got.data, len), &limits, &req, &fault) == 0);
    if (p->got.len < len + req.body_length) return;
    must(str_to_u64(http_request_header(&req, "x-n"), &n) == 0 && n < CALLS_MAX);
    p->serves = (int)n;
    p->to_head = str_eq(req.method, STR("HEAD"));
    buf_consume(&p->got, len + (size_t)req.body_length);
}

static void peer_read(struct peer *p)
{
    static char bytes[1 << 14];
    bool ended;
    size_t got = net_take(p->fd, bytes, sizeof bytes, &ended);
    buf_append(&p->got, bytes, got);
    if (p->serves < 0 && p->got.len > 0) take_request(p);
    if (ended) leave(p);
}

static void put_body(struct peer *p, char letter, size_t len)
{
    static char body[1 << 16];
    memset(body, letter, len);
    buf_append(&p->unsent, body, len);
}

/* Writes a reply to the request that has arrived, in one of the framings. */
static void peer_answer(struct scene *s, struct peer *p)
{
    uint32_t kind = fuzz_below(s->c, 8), bytes = fuzz_u16(s->c) >> fuzz_below(s->c, 12);
    if (p->serves < 0) return;
    struct ask *a = &s->ask[p->serves];
    if (kind & 4) buf_text(&p->unsent, "HTTP/1.1 100 Continue\r\n\r\n");
    buf_printf(&p->unsent, "HTTP/1.1 200 OK\r\nx-letter: %c\r\n%s", a->letter,
               fuzz_below(s->c, 4) == 0 ? "connection: close\r\n" : "");
    bool chunked = kind % 4 == 1, until_end = kind % 4 == 2;
    if (chunked)
        buf_text(&p->unsent, "transfer-encoding: chunked\r\n\r\n");
    else if (until_end)
        buf_text(&p->unsent, "\r\n");
    else
        buf_printf(&p->unsent, "content-length: %u\r\n\r\n", bytes);
    a->want = p->to_head ? 0 : bytes;
    if (!p->to_head && chunked && bytes > 0) buf_printf(&p->unsent, "%x\r\n", bytes);
    if (!p->to_head) put_body(p, a->letter, bytes);
    if (!p->to_head && chunked) buf_text(&p->unsent, bytes ? "\r\n0\r\n\r\n" : "0\r\n\r\n");
    p->serves = -1;
}

static void peer_send(struct scene *s, struct peer *p)
{
    size_t most = fuzz_below(s->c, 4) ? p->unsent.len : fuzz_u8(s->c);
    size_t sent = net_give(p->fd, str_of(p->unsent.data, min_size(most, p->unsent.len)));
    buf_consume(&p->unsent, sent);
}

static void peer_babble(struct scene *s, struct peer *p)
{
    s->raw = true;
    buf_str(&p->unsent, fuzz_bytes(s->c, fuzz_u8(s->c)));
}

static void peer_acts(struct scene *s)
{
    struct peer *p = &s->peer[fuzz_below(s->c, PEERS)];
    uint32_t op = fuzz_below(s->c, 16);
    if (p->fd < 0) {
        p->fd = net_accept();
    } else if (op < 5) {
        peer_read(p);
    } else if (op < 9) {
        peer_answer(s, p);
    } else if (op < 13) {
        peer_send(s, p);
    } else if (op == 13) {
        shutdown(p->fd, SHUT_WR);
    } else if (op == 14) {
        leave(p);
    } else if (fuzz_below(s->c, 4) == 0) {
        peer_babble(s, p);
    }
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void step(struct scene *s)
{
    uint32_t op = fuzz_below(s->c, 32);
    struct ask *a = &s->ask[fuzz_below(s->c, CALLS_MAX)];
    if (op < 4) {
        start(s, fuzz_u8(s->c));
    } else if (op == 4 && a->started) {
        cancel(a);
    } else if (op <= 6 && a->started) {
        pause_call(a, op == 5);
    } else if (op == 7) {
        net_sleep((int64_t)fuzz_u8(s->c) * SECOND / 4);
    } else if (op == 8) {
        net.refuses = fuzz_below(s->c, 4) == 0;
    } else if (op < 16) {
        size_t send_room = (size_t)fuzz_u8(s->c) << fuzz_below(s->c, 9);
        net_turn(s->loop, send_room, (size_t)1 << fuzz_below(s->c, 17));
    } else {
        peer_acts(s);
    }
}

static void check_counts(const struct scene *s)
{
    struct http_client_counts n;
    uint64_t ended = 0, open = 0;
    http_client_counts_get(s->client, &n);
    for (int i = 0; i < HTTP_END_COUNT; i++)
        ended += n.ended[i];
    for (uint32_t i = 0; i < s->ask_count; i++)
        open += s->ask[i].call != NULL;
    must(n.calls == s->ask_count && ended + open == n.calls);
    must(n.idle <= n.connections && n.connections <= 2 * PEERS);
}

static void finish(struct scene *s)
{
    for (uint32_t i = 0; i < 3; i++) {
        net_turn(s->loop, SIZE_MAX, SIZE_MAX);
        net_sleep(100 * SECOND); /* pooled connections are closed */
    }
    check_counts(s);
    s->freeing = true;
    http_client_free(s->client);
    for (uint32_t i = 0; i < s->ask_count; i++)
        must(!s->ask[i].call && s->ask[i].ends + s->ask[i].cancelled == 1);
    for (uint32_t i = 0; i < PEERS; i++)
        leave(&s->peer[i]);
    net_end();
}

const struct fuzz_cost fuzz_cost = { 200000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    static struct scene s;
    log_set_level(LOG_LEVEL_COUNT - 1);
    net_begin();
    must(loop_new(&loop, NULL) == 0);
    s = (struct scene){ .loop = loop, .c = &c };
    for (uint32_t i = 0; i < PEERS; i++)
        s.peer[i] = (struct peer){ .fd = -1, .serves = -1 };
    const struct http_client_config config = { .idle_per_host_max = 2,
                                               .connections_max = 1 + fuzz_below(&c, PEERS) };
    must(http_client_new(loop, &config, &s.client, NULL) == 0);
    while (c.len > 0) {
        step(&s);
        check_counts(&s);
    }
    finish(&s);
}
