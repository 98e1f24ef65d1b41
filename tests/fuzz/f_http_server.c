/* f_http_server.c - drives the HTTP server as a state machine: a few clients send, tear, pause, leave
 * and read as the input says, and a handler replies now, later, in parts or not at all.
 *
 * It must hold that each whole request of a client reaches the handler once, in order; a client reads
 * whole replies in the order of its requests, each with the bytes that the handler wrote, and nothing
 * behind the last; every exchange ends once; and when all clients have left and time has passed, no
 * bytes are held and no connection is open. */
#include "base/core/bits.h"
#include "base/io/http/http_server.h"
#include "base/io/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_net.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 4
#define EXCHANGES_MAX 48
#define RECEIVED_BYTES_MAX ((size_t)1 << 20)
#define SECOND ((int64_t)1000000)
#define REFUSED_SCRIPT 4
#define BIG_BYTES 9000
#define BIG_SCRIPT "PUT /later HTTP/1.1\r\nhost: a\r\nx-n: %u\r\ncontent-length: 9000\r\n\r\n"

/* The requests that clients send; %u is the number on the connection, which the reply repeats. */
static const char *const scripts[] = {
    "GET /now HTTP/1.1\r\nhost: a\r\nx-n: %u\r\n\r\n",
    "GET /later HTTP/1.1\r\nhost: a\r\nx-n: %u\r\n\r\n",
    "HEAD /later HTTP/1.1\r\nhost: a\r\nx-n: %u\r\n\r\n",
    "POST /later HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\nx-n: %u\r\n\r\nhello world",
    [REFUSED_SCRIPT] = /* a chunk extension, which ends the connection */
    "POST /now HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nx-n: %u\r\n\r\n"
    "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "POST /now HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nx-n: %u\r\n\r\n"
    "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "POST /later HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 11\r\n"
    "x-n: %u\r\n\r\nhello world",
    "GET /later HTTP/1.0\r\nx-n: %u\r\n\r\n",
    "GET /later HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-n: %u\r\n\r\n",
    BIG_SCRIPT,
    "GET /deny HTTP/1.1\r\nhost: a\r\nx-n: %u\r\n\r\n",
    "POST /deny HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\nx-n: %u\r\n\r\nhello world",
};

/* Returns a body so large that its buffer grows while the request is read. */
static struct str big_body(void)
{
    static char body[BIG_BYTES];
    memset(body, 'w', sizeof body);
    return str_of(body, sizeof body);
}

struct client {
    int fd;         /* -1: not there */
    bool pure;      /* sent only the scripts, whole or torn */
    bool refusable; /* one of them is to be refused */
    bool closed;    /* the last reply was read */
    struct buf unsent, got;
    uint32_t asked, handled, answered;
};

struct reply {               /* one exchange that the handler has met */
    struct http_exchange *x; /* NULL: over */
    struct scene *scene;
    uint32_t client, body_len;
    bool streaming, ended, aborted;
    char letter;
};

struct scene {
    struct loop *loop;
    struct http_server *server;
    struct fuzz_choices *c;
    struct client client[CLIENTS];
    struct reply reply[EXCHANGES_MAX];
    uint32_t reply_count, denied;
    bool drained, empty;
};

/* ---- the handler ---------------------------------------------------------------------------- */

static void on_abort(void *arg, enum http_abort why)
{
    struct reply *r = arg;
    must(r->x && why < HTTP_ABORT_COUNT);
    r->x = NULL;
    r->aborted = true;
}

static void on_drain(void *arg)
{
    struct reply *r = arg;
    must(r->x && r->streaming);
}

/* Returns the client that a script's request came from. Raw bytes of the input may claim any. */
static struct client *client_of(struct scene *s, const struct http_request *req)
{
    uint64_t who;
    if (str_to_u64(http_request_header(req, "x-c"), &who) < 0 || who >= CLIENTS) return NULL;
    return &s->client[who];
}

static void check_request(struct scene *s, const struct http_request *req)
{
    static const struct str body = STR("hello world");
    must(req->body.len == 0 || req->body.data);
    uint64_t n;
    struct client *k = client_of(s, req);
    if (!k || !k->pure) return;
    must(str_to_u64(http_request_header(req, "x-n"), &n) == 0);
    must(n == k->handled && n < k->asked);
    k->handled++;
    must(str_eq(req->body, str_eq(req->method, STR("POST"))  ? body
                           : str_eq(req->method, STR("PUT")) ? big_body()
                                                             : (struct str){ 0 }));
}

/* Adds headers that the client checks: its request's number and the letter of the body. */
static void mark(struct http_exchange *x, char letter)
{
    const struct http_request *req = http_exchange_request(x);
    must(http_reply_header(x, "x-letter", str_of(&letter, 1)) == 0);
    must(http_reply_header(x, "x-n", http_request_header(req, "x-n")) == 0);
    if (str_eq(req->method, STR("HEAD"))) must(http_reply_header(x, "x-head", STR("yes")) == 0);
}

static void answer(struct reply *r, uint32_t bytes)
{
    static char body[1 << 16];
    memset(body, r->letter, bytes);
    struct http_exchange *x = TAKE(r->x);
    mark(x, r->letter);
    r->body_len = bytes;
    r->ended = true;
    must(http_reply(x, 200, STR("text/plain"), str_of(body, bytes)) == 0);
}

static void on_head(void *ctx, struct http_exchange *x)
{
    struct scene *s = ctx;
    const struct http_request *req = http_exchange_request(x);
    *(uint64_t *)http_exchange_note(x) = 77;
    if (!str_eq(req->path, STR("/deny"))) return;
    struct client *k = client_of(s, req);
    if (k && k->pure) k->handled++;
    s->denied++;
    mark(x, 'n');
    must(http_reply(x, 401, STR("text/plain"), STR("nnn")) == 0);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct scene *s = ctx;
    const struct http_request *req = http_exchange_request(x);
    must(*(uint64_t *)http_exchange_note(x) == 77);
    check_request(s, req);
    if (s->reply_count == EXCHANGES_MAX) {
        http_exchange_abort(x);
        return;
    }
    struct reply *r = &s->reply[s->reply_count];
    *r = (struct reply){ .x = x, .scene = s, .letter = (char)('a' + s->reply_count % 26) };
    s->reply_count++;
    http_exchange_watch(x, on_abort, on_drain, r);
    if (str_eq(req->path, STR("/now"))) answer(r, 5);
}

/* ---- what a client reads -------------------------------------------------------------------- */

static const struct http1_limits limits = { 8192, 32768, HTTP_HEADERS_MAX };

/* Checks a reply's place: replies come in the order of the requests; one without a number is a
 * refusal and the last. Good requests are refused only when late, or where there is no room. */
static void check_answer(const struct client *k, const struct http_response *resp)
{
    uint64_t n;
    struct str number = http_response_header(resp, "x-n");
    if (number.data) {
        must(str_to_u64(number, &n) == 0 && n == k->answered && n < k->asked);
        must(resp->status == 200 || resp->status == 401);
        return;
    }
    must(!resp->keep_alive && resp->status >= 400);
    must(k->refusable || resp->status == 408 || resp->status == 429 || resp->status == 503);
}

/* Takes one reply from the start of `in`. Returns its bytes; 0 when it is not whole yet. */
static size_t take_reply(struct client *k, struct str in, bool at_end)
{
    struct http1_scan scan = { 0 };
    struct http_response resp;
    enum http_fault fault;
    size_t len;
    int rc = http1_scan(&scan, in, &limits, &len, &fault);
    if (rc == -EAGAIN) return 0;
    must(rc == 0);
    bool to_head = str_find(str_of(in.data, len), STR("x-head: yes")) != SIZE_MAX;
    must(http1_response_parse(str_of(in.data, len), &limits, to_head, &resp, &fault) == 0);
    struct http1_body body;
    http1_body_init(&body, resp.body_kind, resp.body_length, true);
    struct str letter = http_response_header(&resp, "x-letter");
    while (!body.done && len < in.len) {
        struct str data;
        size_t used;
        must(http1_body_next(&body, str_of(in.data + len, in.len - len), &used, &data, &fault) ==
             0);
        must(used > 0);
        for (size_t i = 0; letter.len && i < data.len; i++)
            must(data.data[i] == letter.data[0]);
        len += used;
    }
    if (!body.done && !(body.kind == HTTP_BODY_UNTIL_END && at_end)) return 0;
    if (resp.status >= 200) {
        if (k->pure) check_answer(k, &resp);
        k->answered++;
        k->closed = !resp.keep_alive;
    }
    return len;
}

static void read_replies(struct client *k, bool at_end)
{
    for (size_t len; k->got.len > 0 && (len = take_reply(k, buf_view(&k->got), at_end)) > 0;) {
        buf_consume(&k->got, len);
        must(!k->closed || k->got.len == 0);
    }
    /* Each request has one reply at most; bytes that are no request get one refusal. */
    if (k->pure) must(k->answered <= k->asked + 1);
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void leave(struct client *k)
{
    if (k->fd >= 0) close(k->fd);
    buf_fini(&k->unsent);
    buf_fini(&k->got);
    *k = (struct client){ .fd = -1 };
}

static void client_open(struct scene *s, struct client *k)
{
    uint32_t host = fuzz_below(s->c, 3);
    leave(k);
    k->fd = net_connect((uint8_t)host);
    k->pure = true;
}

static void client_ask(struct scene *s, struct client *k, uint32_t who)
{
    uint32_t which = fuzz_below(s->c, COUNT_OF(scripts) + 2);
    if (k->asked == EXCHANGES_MAX || k->closed) return;
    if (which >= COUNT_OF(scripts)) { /* bytes as they come */
        k->pure = false;
        buf_str(&k->unsent, fuzz_bytes(s->c, fuzz_u8(s->c)));
        return;
    }
    CLEANUP(buf_fini) struct buf text = { 0 };
    const char *number = strstr(scripts[which], "%u");
    buf_str(&text, str_of(scripts[which], (size_t)(number - scripts[which])));
    buf_printf(&text, "%u\r\nx-c: %u", k->asked, who);
    buf_text(&text, number + 2);
    buf_str(&k->unsent, buf_view(&text));
    if (str_eq(str_from(scripts[which]), STR(BIG_SCRIPT))) buf_str(&k->unsent, big_body());
    k->refusable |= which == REFUSED_SCRIPT;
    k->asked++;
}

static void client_send(struct scene *s, struct client *k)
{
    size_t most = fuzz_below(s->c, 4) ? k->unsent.len : fuzz_u8(s->c);
    size_t sent = net_give(k->fd, str_of(k->unsent.data, min_size(most, k->unsent.len)));
    buf_consume(&k->unsent, sent);
}

static void client_read(struct scene *s, struct client *k)
{
    static char bytes[1 << 16];
    bool ended;
    size_t most = fuzz_below(s->c, 2) ? sizeof bytes : 1u + fuzz_u8(s->c);
    size_t got = net_take(k->fd, bytes, most, &ended);
    if (k->got.len + got > RECEIVED_BYTES_MAX) ended = true;
    buf_append(&k->got, bytes, got);
    read_replies(k, ended);
    if (ended) leave(k);
}

static void handler_acts(struct scene *s)
{
    uint32_t at = fuzz_below(s->c, EXCHANGES_MAX), how = fuzz_below(s->c, 8);
    struct reply *r = &s->reply[at];
    uint32_t bytes = fuzz_u16(s->c) >> fuzz_below(s->c, 9);
    if (!r->x) return;
    if (how == 7 && !r->streaming) {
        http_exchange_abort(TAKE(r->x));
        r->aborted = true;
    } else if (!r->streaming && how < 4) {
        answer(r, bytes);
    } else if (!r->streaming) {
        mark(r->x, r->letter);
        r->streaming = http_stream_begin(r->x, 200, STR("text/plain")) == 0;
    } else if (how < 6) {
        static char part[1 << 16];
        memset(part, r->letter, bytes);
        if (http_stream_write(r->x, part, bytes) == 0) r->body_len += bytes;
    } else {
        struct http_exchange *x = TAKE(r->x);
        r->ended = true;
        must(http_stream_end(x) == 0);
    }
}

static void on_empty(void *arg)
{
    struct scene *s = arg;
    must(s->drained && !s->empty);
    s->empty = true;
}

static void step(struct scene *s)
{
    uint32_t op = fuzz_below(s->c, 32), who = fuzz_below(s->c, CLIENTS);
    struct client *k = &s->client[who];
    if (op == 0) {
        if (fuzz_below(s->c, 8) || s->drained) return;
        s->drained = true;
        http_server_drain(s->server, on_empty, s);
    } else if (op == 1) {
        net_sleep((int64_t)fuzz_u8(s->c) * SECOND / 2);
    } else if (op < 12) {
        handler_acts(s);
    } else if (op < 17) {
        size_t send_room = (size_t)fuzz_u8(s->c) << fuzz_below(s->c, 9);
        net_turn(s->loop, send_room, (size_t)1 << fuzz_below(s->c, 17));
    } else if (k->fd < 0) {
        client_open(s, k);
    } else if (op < 22) {
        client_ask(s, k, who);
    } else if (op < 26) {
        client_send(s, k);
    } else if (op < 30) {
        client_read(s, k);
    } else if (op == 30) {
        shutdown(k->fd, SHUT_WR);
    } else {
        leave(k);
    }
}

static void check_counts(const struct scene *s)
{
    struct http_server_counts n;
    http_server_counts_get(s->server, &n);
    must(n.requests >= s->reply_count && n.head_replies == s->denied);
    must(n.connections <= CLIENTS + NET_QUEUE_MAX + 64);
}

/* Closes all clients, lets every deadline pass and checks that nothing is left. */
static void finish(struct scene *s)
{
    struct http_server_counts n;
    for (uint32_t i = 0; i < CLIENTS; i++)
        leave(&s->client[i]);
    for (uint32_t i = 0; i < 8; i++) {
        net_turn(s->loop, SIZE_MAX, SIZE_MAX);
        net_sleep(100 * SECOND);
    }
    for (uint32_t i = 0; i < s->reply_count; i++)
        must(!s->reply[i].x && s->reply[i].ended + s->reply[i].aborted == 1);
    http_server_counts_get(s->server, &n);
    must(n.connections == 0 && n.held_bytes == 0 && s->empty == s->drained);
    http_server_free(s->server);
    net_end();
}

/* A step may copy a body of 64 KiB a few times. */
const struct fuzz_cost fuzz_cost = { 200000, 40000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    static struct scene s;
    log_set_level(LOG_LEVEL_COUNT - 1);
    net_begin();
    must(loop_new(&loop, NULL) == 0);
    s = (struct scene){ .loop = loop, .c = &c };
    for (uint32_t i = 0; i < CLIENTS; i++)
        s.client[i].fd = -1;
    struct http_server_config config = { .host = "127.0.0.1",
                                         .port = NET_PORT,
                                         .limits = { .body_bytes_max = 16384,
                                                     .held_bytes_max = 65536,
                                                     .unsent_bytes_max = 16384,
                                                     .connections_max = CLIENTS,
                                                     .connections_address_max = 2 },
                                         .on_head = on_head,
                                         .on_request = on_request,
                                         .ctx = &s };
    must(http_server_new(loop, &config, &s.server, NULL) == 0);
    while (c.len > 0) {
        step(&s);
        check_counts(&s);
    }
    finish(&s);
}
