/* signed_call.c - signs a request, checks the reply, and repeats the request when told the epoch; a peer_call
 * keeps the reply until its end. */
#include "base/io/auth/signed_call.h"

#include "base/core/bits.h"
#include "base/io/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define HEADERS_MAX 8
#define OLD_US 30000000 /* how long a receiver counts as one of an older release */

struct signer {
    struct signer_config config;
    struct auth_peers own; /* when no other are named */
    struct auth_peers *peers;
    struct auth_sender sender;
    struct log_limit log;
    bool has_own;
};

struct peer {
    struct auth_peer now;
    int64_t old_until_us; /* until then it counts as one without signatures */
};

struct signed_call {
    struct signer *signer;
    struct http_call *http;
    const char *problem;          /* of its end; NULL before */
    bool ended;                   /* on_end runs */
    struct http_call_request req; /* strings are in `copy` */
    struct http_header header[HEADERS_MAX + 1];
    struct buf copy;
    char id[AUTH_ID_BYTES_MAX + 1];
    struct auth_key key;
    struct auth_sent sent;
    struct auth_reply reply; /* of the head at hand */
    struct sha256_run *run;  /* of the body at hand; NULL: not checked */
    bool is_signed, sends_secret, streams, was_again;
};

/* ---- peers ---- */

void auth_peers_init(struct auth_peers *p)
{
    lock_init(&p->lock);
    map_init(&p->map, sizeof(struct hash128), sizeof(struct peer), AUTH_PEERS_MAX, MAP_OWN);
}

void auth_peers_fini(struct auth_peers *p)
{
    map_fini(&p->map);
    lock_fini(&p->lock);
}

static struct hash128 peer_key(struct str id, struct str host, uint16_t port)
{
    char text[AUTH_ID_BYTES_MAX + 300];
    int n =
        snprintf(text, sizeof text, STR_FMT " " STR_FMT " %u", STR_ARG(id), STR_ARG(host), port);
    return hash128(text, min_size((size_t)n, sizeof text - 1), 0);
}

static bool peer_read(struct auth_peers *p, struct hash128 key, struct peer *ret)
{
    lock_take(&p->lock);
    const struct peer *known = map_get(&p->map, &key);
    *ret = known ? *known : (struct peer){ 0 };
    lock_drop(&p->lock);
    return known != NULL;
}

static void peer_write(struct auth_peers *p, struct hash128 key, const struct peer *peer)
{
    lock_take(&p->lock);
    struct peer *place = map_put(&p->map, &key, NULL);
    if (!place) { /* AUTH_PEERS_MAX: all are forgotten; each costs one 401 more */
        map_fini(&p->map);
        map_init(&p->map, sizeof(struct hash128), sizeof(struct peer), AUTH_PEERS_MAX, MAP_OWN);
        place = map_put(&p->map, &key, NULL);
    }
    if (place) *place = *peer;
    lock_drop(&p->lock);
}

bool auth_peers_get(struct auth_peers *p, struct str id, struct str host, uint16_t port,
                    struct auth_peer *ret)
{
    struct peer peer;
    bool known = peer_read(p, peer_key(id, host, port), &peer) && peer.now.epoch;
    if (known) *ret = peer.now;
    return known;
}

/* ---- signers ---- */

int signer_new(const struct signer_config *config, struct signer **ret, struct err *err)
{
    struct signer *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "no memory");
    s->config = *config;
    if (getrandom(&s->sender.session, sizeof s->sender.session, 0) != sizeof s->sender.session) {
        free(s);
        return err_set(err, -EIO, "the system gives no random bytes");
    }
    s->has_own = !config->peers;
    if (s->has_own) auth_peers_init(&s->own);
    s->peers = s->has_own ? &s->own : config->peers;
    *ret = s;
    return 0;
}

void signer_free(struct signer *s)
{
    if (!s) return;
    if (s->has_own) auth_peers_fini(&s->own);
    free(s);
}

/* ---- one call ---- */

static int64_t now_us(const struct signed_call *c)
{
    return loop_now_us(c->signer->config.loop);
}

static void call_free(struct signed_call *c)
{
    sha256_drop(c->run);
    buf_fini(&c->copy);
    explicit_bzero(&c->key, sizeof c->key);
    explicit_bzero(&c->sent, sizeof c->sent);
    free(c);
}

static void finish(struct signed_call *c, enum http_end end)
{
    c->ended = true;
    c->req.on_end(c->req.arg, end);
    call_free(c);
}

static struct hash128 key_of(const struct signed_call *c)
{
    return peer_key(str_from(c->id), c->req.host, c->req.port);
}

static void distrust(struct signed_call *c, int status, const char *why)
{
    uint64_t skipped;
    if (log_pass(&c->signer->log, now_us(c), 5000000, &skipped))
        log_event(LOG_WARN, "reply_untrusted",
                  "peer=%.*s:%u path=%.*s status=%d why=%s skipped=%llu", STR_ARG(c->req.host),
                  c->req.port, STR_ARG(c->req.path), status, why, (unsigned long long)skipped);
    if (c->http) http_call_cancel(c->http);
    c->http = NULL;
    finish(c, HTTP_END_UNTRUSTED);
}

static int send_now(struct signed_call *c, struct err *err);

/* Repeats the request, from inside a callback of the HTTP call that this cancels. */
static void send_again(struct signed_call *c)
{
    http_call_cancel(c->http);
    c->http = NULL;
    c->was_again = true;
    if (send_now(c, NULL) < 0) finish(c, HTTP_END_LOCAL);
}

/* Repeats the request with the secret, if there is one, when the receiver seems to be of an older
 * release: that answers a signature with an unsigned 401. */
static bool try_the_secret(struct signed_call *c, int status)
{
    if (status != 401 || c->signer->config.secret.len == 0) return false;
    struct peer peer;
    peer_read(c->signer->peers, key_of(c), &peer);
    peer.old_until_us = now_us(c) + OLD_US;
    peer_write(c->signer->peers, key_of(c), &peer);
    send_again(c);
    return true;
}

static void learn(struct signed_call *c)
{
    struct peer peer = { .now = { c->reply.epoch, c->reply.time_us - now_us(c) } };
    peer_write(c->signer->peers, key_of(c), &peer);
}

static void on_head(void *arg, const struct http_response *head)
{
    struct signed_call *c = arg;
    if (c->is_signed) {
        struct str header = http_response_header(head, AUTH_REPLY_HEADER);
        int rc =
            header.data ? auth_reply_check(&c->sent, head->status, header, &c->reply) : -ENOENT;
        if (rc == -ENOENT && try_the_secret(c, head->status)) return;
        if (rc < 0 || (c->reply.is_stream && !c->streams)) {
            distrust(c, head->status, rc == -ENOENT ? "unsigned" : "signature");
            return;
        }
        learn(c);
        if (head->status == 401 && !c->was_again) {
            send_again(c);
            return;
        }
        if (!c->reply.is_stream) c->run = sha256_begin();
    }
    if (c->req.on_head) c->req.on_head(c->req.arg, head);
}

/* The head, which granted it, was found to be the receiver's. */
static void on_upgrade(void *arg, struct conn *conn)
{
    struct signed_call *c = arg;
    c->req.on_upgrade(c->req.arg, conn);
}

static void on_data(void *arg, struct str data)
{
    struct signed_call *c = arg;
    if (c->run) sha256_more(c->run, data.data, data.len);
    if (c->req.on_data) c->req.on_data(c->req.arg, data);
}

static bool body_is_signed(struct signed_call *c)
{
    uint8_t digest[SHA256_BYTES];
    if (!c->is_signed || c->reply.is_stream) return true;
    if (!c->run) return false;
    sha256_end(c->run, digest);
    c->run = NULL;
    return equal_constant_time(digest, c->reply.body, sizeof digest);
}

static void on_end(void *arg, enum http_end end)
{
    struct signed_call *c = arg;
    c->problem = http_call_problem(c->http); /* lives as long as this function */
    c->http = NULL;
    if (end == HTTP_END_OK && !body_is_signed(c))
        distrust(c, 0, "body");
    else
        finish(c, end);
}

/* Chooses the credential of this attempt, and writes a signature to `text`; 0 also without a signature. */
static int sign(struct signed_call *c, char text[AUTH_TEXT_BYTES_MAX])
{
    struct peer peer;
    c->is_signed = c->sends_secret = false;
    if (!c->id[0]) return 0;
    peer_read(c->signer->peers, key_of(c), &peer);
    if (c->signer->config.secret.len > 0 && now_us(c) < peer.old_until_us) {
        c->sends_secret = true;
        return 0;
    }
    c->is_signed = true;
    const struct auth_message m = { .method = c->req.method,
                                    .target = c->req.path,
                                    .body = c->req.body };
    return auth_sign(&c->signer->sender, &peer.now, str_from(c->id), &c->key, &m, now_us(c), text,
                     &c->sent);
}

static int send_now(struct signed_call *c, struct err *err)
{
    char text[AUTH_TEXT_BYTES_MAX];
    int rc = sign(c, text);
    if (rc < 0) return err_set(err, rc, "the call cannot be signed");
    struct http_call_request req = c->req;
    if (c->sends_secret) req.bearer = c->signer->config.secret;
    if (c->is_signed)
        c->header[req.header_count++] =
            (struct http_header){ STR("authorization"), str_from(text) };
    req.on_head = on_head;
    req.on_data = on_data;
    req.on_end = on_end;
    if (req.on_upgrade) req.on_upgrade = on_upgrade;
    req.arg = c;
    sha256_drop(c->run);
    c->run = NULL;
    c->http = http_call_start(c->signer->config.client, &req, err);
    return c->http ? 0 : -EINVAL;
}

static struct str keep(struct signed_call *c, struct str s)
{
    size_t at = c->copy.len;
    buf_append(&c->copy, s.data, s.len);
    return c->copy.rc < 0 ? (struct str){ 0 } : str_of(c->copy.data + at, s.len);
}

/* Copies the request, which is sent once more when the receiver's epoch was not known. */
static int keep_request(struct signed_call *c, const struct http_call_request *req)
{
    size_t bytes = req->host.len + req->path.len + req->bearer.len + req->body.len + 16;
    if (req->header_count > HEADERS_MAX) return -E2BIG;
    for (size_t i = 0; i < req->header_count; i++)
        bytes += req->headers[i].name.len + req->headers[i].value.len;
    int rc = buf_reserve(&c->copy, bytes); /* kept strings must not move */
    if (rc < 0) return rc;
    c->req = *req;
    c->req.host = keep(c, req->host);
    c->req.path = keep(c, req->path);
    c->req.bearer = keep(c, req->bearer);
    c->req.body = keep(c, req->body);
    c->req.method = req->method.len ? keep(c, req->method)
                    : req->body.len ? STR("POST")
                                    : STR("GET");
    for (size_t i = 0; i < req->header_count; i++)
        c->header[i] =
            (struct http_header){ keep(c, req->headers[i].name), keep(c, req->headers[i].value) };
    c->req.headers = c->header;
    return c->copy.rc;
}

struct signed_call *signed_call_start(struct signer *s, const struct http_call_request *req,
                                      const struct signed_as *as, bool streams, struct err *err)
{
    struct signed_call *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(err, -ENOMEM, "no memory for a call");
        return NULL;
    }
    c->signer = s;
    c->streams = streams;
    int rc = as && as->id.len >= sizeof c->id ? -E2BIG : 0;
    if (rc == 0 && as && as->id.len) {
        memcpy(c->id, as->id.data, as->id.len);
        c->key = as->key;
    }
    if (rc == 0) rc = keep_request(c, req);
    if (rc < 0)
        err_set(err, rc, "no memory for a call");
    else
        rc = send_now(c, err);
    if (rc == 0) return c;
    call_free(c);
    return NULL;
}

void signed_call_cancel(struct signed_call *c)
{
    if (c->ended) return;
    if (c->http) http_call_cancel(c->http);
    call_free(c);
}

const char *signed_call_problem(const struct signed_call *c)
{
    return c->problem ? c->problem : "";
}

void signed_call_pause(struct signed_call *c)
{
    if (c->http) http_call_pause(c->http);
}

void signed_call_resume(struct signed_call *c)
{
    if (c->http) http_call_resume(c->http);
}

/* ---- a whole reply ---- */

/* The owner may start its next call from on_reply: the call that ends is taken out first. */
static void keep_head(void *arg, const struct http_response *head)
{
    ((struct peer_call *)arg)->status = head->status;
}

static void keep_data(void *arg, struct str data)
{
    buf_str(&((struct peer_call *)arg)->body, data); /* beyond the bound: rc */
}

static void keep_end(void *arg, enum http_end end)
{
    struct peer_call *c = arg;
    c->problem = signed_call_problem(c->call); /* lives until on_end returns */
    c->call = NULL;
    c->on_reply(c, end);
}

int peer_call_start(struct peer_call *c, struct signer *s, const struct peer_question *q,
                    void (*on_reply)(struct peer_call *c, enum http_end end), struct err *err)
{
    must(!c->call);
    c->on_reply = on_reply;
    c->status = 0;
    c->problem = NULL;
    buf_clear(&c->body);
    c->body.max = q->reply_max;
    const struct http_call_request req = {
        .host = q->host,
        .port = q->port,
        .tls = q->tls,
        .path = q->path,
        .body = q->body,
        .json = q->body.len > 0,
        .deadline_us = q->deadline_us,
        .on_head = keep_head,
        .on_data = keep_data,
        .on_end = keep_end,
        .arg = c,
    };
    c->call = signed_call_start(s, &req, &q->as, false, err);
    return c->call ? 0 : -EINVAL;
}

void peer_call_cancel(struct peer_call *c)
{
    if (c->call) signed_call_cancel(c->call);
    c->call = NULL;
}

void peer_call_fini(struct peer_call *c)
{
    peer_call_cancel(c);
    buf_fini(&c->body);
}
