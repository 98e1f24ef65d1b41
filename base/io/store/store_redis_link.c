/* store_redis_link.c - connects to Redis by TCP or a Unix socket, finds the master through Sentinel, logs in,
 * and exchanges commands and replies.
 *
 * The socket does not block: each wait is a poll with what is left of the call's deadline. hiredis writes and
 * reads the protocol. A name is resolved by the system in a thread of its own, which may take longer than a
 * call; its last good address is used meanwhile.
 *
 * hiredis before 1.0, as in Debian 12, has no TLS; a build with it has MUSTER_REDIS_TLS. */
#include "base/io/store/store_redis_link.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/io/net/tls.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef MUSTER_REDIS_TLS
#    include <hiredis/hiredis_ssl.h>
#endif

#define PASSWORD_BYTES_MAX 4096
#define PORT_TEXT 8
#define SENTINEL_PORT 26379
#define REDIS_PORT 6379
#define DB_MAX 1000000

#if HIREDIS_MAJOR < 1
typedef int array_length;
#else
typedef size_t array_length;
#endif

struct host {
    char name[REDIS_HOST_BYTES];
    uint16_t port;
    struct addr known; /* last good address; family 0: none */
};

struct redis_link {
    /* from the configuration */
    bool unix_socket, sentinel, is_tls;
    struct host host[REDIS_HOSTS_MAX]; /* of servers, or of sentinels */
    uint32_t host_count;
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    char master[REDIS_HOST_BYTES], user[REDIS_HOST_BYTES], password_file[PATH_MAX];
    uint64_t db;
    int64_t timeout_us;
    struct tls *tls;

    uint32_t host_at;   /* the one to try next */
    struct host moved;  /* the server that another one named; port 0: none */
    struct host *asked; /* whose name is being resolved; NULL: none */
    struct gaicb question;

    redisContext *ctx;            /* NULL: no connection */
    redisReply *reply;            /* taken last */
    redisReplyObjectFunctions fn; /* hiredis's own, but for arrays, which make_array makes */
    void *(*make_array)(const redisReadTask *task, array_length elements);
    uint64_t line;
    bool replicas;
    int64_t deadline_us;
    uint32_t pending; /* replies that were asked for and not taken */

    uint32_t failures; /* in a row */
    int64_t again_us;
    bool failed;  /* in this call */
    bool refused; /* the last failure was an error that the server replied */
    bool ever;    /* a connection was made once */
    struct rng rng;
};

/* ---- replies ---- */

static void reply_drop(struct redis_link *l)
{
    if (l->reply) freeReplyObject(l->reply);
    l->reply = NULL;
}

static void hang_up(struct redis_link *l)
{
    reply_drop(l);
    if (l->ctx) redisFree(l->ctx);
    l->ctx = NULL;
    l->pending = 0;
}

static struct str text_of(const redisReply *r)
{
    bool text = r && (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS ||
                      r->type == REDIS_REPLY_ERROR);
    return text ? str_of(r->str, (size_t)r->len) : (struct str){ 0 };
}

bool redis_is_nil(const struct redis_link *l)
{
    return !l->reply || l->reply->type == REDIS_REPLY_NIL;
}

size_t redis_count(const struct redis_link *l)
{
    return l->reply && l->reply->type == REDIS_REPLY_ARRAY ? l->reply->elements : 0;
}

struct str redis_text(const struct redis_link *l, size_t at)
{
    return at < redis_count(l) ? text_of(l->reply->element[at]) : (struct str){ 0 };
}

bool redis_has(const struct redis_link *l, size_t at)
{
    return at < redis_count(l) && l->reply->element[at]->type != REDIS_REPLY_NIL;
}

struct str redis_whole(const struct redis_link *l)
{
    return text_of(l->reply);
}

int64_t redis_number(const struct redis_link *l)
{
    return l->reply && l->reply->type == REDIS_REPLY_INTEGER ? l->reply->integer : 0;
}

/* Refuses an array whose announced length is over the bound, before memory is taken for it. */
static void *array_bounded(const redisReadTask *task, array_length elements)
{
    const struct redis_link *l = task->privdata;
    return elements > REDIS_REPLY_ELEMENTS_MAX ? NULL : l->make_array(task, elements);
}

static void reader_bound(struct redis_link *l)
{
    redisReader *r = l->ctx->reader;
    l->fn = *r->fn;
    l->make_array = l->fn.createArray;
    l->fn.createArray = array_bounded;
    r->fn = &l->fn;
    r->privdata = l;
}

/* ---- waiting ---- */

static int fail(struct redis_link *l, int rc, struct err *err, const char *what, const char *why)
{
    l->failed = true;
    l->refused = false;
    err_set(err, rc, "store: Redis: %s: %s", what, why);
    hang_up(l);
    return rc;
}

/* Waits until the socket can be read or written, or the deadline has passed. */
static int await(struct redis_link *l, int fd, short events, const char *what, struct err *err)
{
    for (;;) {
        int64_t left_us = l->deadline_us - clock_mono_us();
        struct pollfd p = { .fd = fd, .events = events };
        int n = left_us > 0 ? poll(&p, 1, (int)((left_us + 999) / 1000)) : 0;
        if (n > 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(l, -errno, err, what, strerror(errno));
        return fail(l, -ETIMEDOUT, err, what, "no reply in time");
    }
}

/* ---- names ---- */

/* Takes the answer of the system's resolver, if it has come. */
static void take_answer(struct redis_link *l)
{
    if (!l->asked || gai_error(&l->question) == EAI_INPROGRESS) return;
    if (gai_error(&l->question) == 0 && l->question.ar_result) {
        struct sockaddr_storage from = { 0 };
        memcpy(&from, l->question.ar_result->ai_addr, l->question.ar_result->ai_addrlen);
        addr_from_sock(&l->asked->known, &from);
        freeaddrinfo(l->question.ar_result);
    }
    l->asked = NULL;
}

static void ask_name(struct redis_link *l, struct host *h)
{
    static const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct gaicb *list[] = { &l->question };
    if (l->asked) return;
    l->question = (struct gaicb){ .ar_name = h->name, .ar_request = &hints };
    if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0) l->asked = h;
}

/* Waits for the address of a host that is not known yet. A known one is asked again beside its use. */
static int find_address(struct redis_link *l, struct host *h, struct addr *ret, struct err *err)
{
    if (addr_from_literal(ret, str_from(h->name), h->port) == 0) return 0;
    take_answer(l);
    ask_name(l, h);
    while (h->known.family == 0 && l->asked) {
        int64_t left_us = l->deadline_us - clock_mono_us();
        const struct gaicb *const list[] = { &l->question };
        const struct timespec wait = { left_us / 1000000, left_us % 1000000 * 1000 };
        bool other = l->asked != h;
        if (left_us <= 0 || gai_suspend(list, 1, &wait) == EAI_AGAIN)
            return fail(l, -ETIMEDOUT, err, h->name, "the name was not resolved in time");
        take_answer(l);
        if (other) ask_name(l, h);
    }
    if (h->known.family == 0) return fail(l, -ENOENT, err, h->name, "there is no such host");
    *ret = h->known;
    ret->port = h->port;
    return 0;
}

/* ---- one connection ---- */

static int socket_open(struct redis_link *l, const struct sockaddr *to, socklen_t bytes,
                       const char *what, int *ret, struct err *err)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail(l, -errno, err, what, strerror(errno));
    int one = 1, problem = 0;
    socklen_t size = sizeof problem;
    if (to->sa_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    int rc = connect(fd, to, bytes) == 0 ? 0 : -errno;
    /* -EAGAIN: the listener's queue of a Unix socket is full, as that of a stopped server may be. */
    if (rc == -EINPROGRESS) {
        rc = await(l, fd, POLLOUT, what, err);
        if (rc < 0) {
            close(fd);
            return rc;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0) problem = errno;
        rc = -problem;
    }
    if (rc < 0) {
        close(fd);
        return fail(l, rc == -EAGAIN ? -EBUSY : rc, err, what, strerror(-rc));
    }
    *ret = fd;
    return 0;
}

#ifdef MUSTER_REDIS_TLS
static void stream_freep(struct tls_stream **s)
{
    tls_stream_free(*s);
}

/* The stream is ours, because hiredis would check no name in the server's certificate; and so is the
 * handshake, because hiredis does not say what it waits for. */
static int tls_begin(struct redis_link *l, const char *name, struct err *err)
{
    CLEANUP(stream_freep) struct tls_stream *s = NULL;
    if (!l->is_tls) return 0;
    int rc = tls_connect(l->tls, l->ctx->fd, str_from(name), &s);
    if (rc < 0) return fail(l, rc, err, name, "no memory for TLS");
    struct ssl_st *ssl = tls_stream_share(s);
    if (redisInitiateSSL(l->ctx, ssl) != REDIS_OK) {
        tls_share_drop(ssl);
        return fail(l, -EPROTO, err, name, l->ctx->errstr);
    }
    while ((rc = tls_handshake(s)) == -EAGAIN) {
        short events = tls_wants_write(s) ? POLLOUT : POLLIN;
        rc = await(l, l->ctx->fd, events, "TLS handshake", err);
        if (rc < 0) return rc;
    }
    return rc < 0 ? fail(l, rc, err, name, tls_problem(s)) : 0;
}
#else
static int tls_begin(struct redis_link *l, const char *name, struct err *err)
{
    (void)l, (void)name, (void)err;
    return 0; /* redis_link_new refuses TLS */
}
#endif

static int join(struct redis_link *l, int fd, const char *name, struct err *err)
{
    l->ctx = redisConnectFd(fd);
    if (!l->ctx || l->ctx->err) {
        if (!l->ctx) close(fd);
        return fail(l, -ENOMEM, err, name, "no memory for the connection");
    }
    l->ctx->flags &= ~REDIS_BLOCK;
    reader_bound(l);
    return tls_begin(l, name, err);
}

static int connect_host(struct redis_link *l, struct host *h, struct err *err)
{
    struct addr at;
    struct sockaddr_storage to;
    char what[REDIS_HOST_BYTES + PORT_TEXT];
    int fd, rc = find_address(l, h, &at, err);
    if (rc < 0) return rc;
    snprintf(what, sizeof what, "%s:%u", h->name, h->port);
    socklen_t bytes = addr_to_sock(&at, &to);
    rc = socket_open(l, (const struct sockaddr *)&to, bytes, what, &fd, err);
    return rc < 0 ? rc : join(l, fd, h->name, err);
}

static int connect_path(struct redis_link *l, struct err *err)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd;
    memcpy(to.sun_path, l->path, sizeof to.sun_path);
    int rc = socket_open(l, (const struct sockaddr *)&to, sizeof to, l->path, &fd, err);
    return rc < 0 ? rc : join(l, fd, l->path, err);
}

/* ---- commands ---- */

void redis_send(struct redis_link *l, const struct str *word, size_t count)
{
    const char *text[16];
    size_t bytes[16];
    must(count <= COUNT_OF(text));
    if (!l->ctx) return; /* redis_take says so */
    for (size_t i = 0; i < count; i++) {
        text[i] = word[i].data ? word[i].data : "";
        bytes[i] = word[i].len;
    }
    /* Without memory the context has an error, which redis_take finds. */
    (void)redisAppendCommandArgv(l->ctx, (int)count, text, bytes);
    l->pending++;
}

static int flush(struct redis_link *l, struct err *err)
{
    int done = 0;
    while (!done) {
        if (redisBufferWrite(l->ctx, &done) != REDIS_OK)
            return fail(l, -ECONNRESET, err, "the connection was cut", l->ctx->errstr);
        int rc = done ? 0 : await(l, l->ctx->fd, POLLOUT, "sending", err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_some(struct redis_link *l, size_t *bytes, struct err *err)
{
    int rc = await(l, l->ctx->fd, POLLIN, "waiting", err);
    if (rc < 0) return rc;
    size_t before = l->ctx->reader->len;
    if (redisBufferRead(l->ctx) != REDIS_OK)
        return fail(l, -ECONNRESET, err, "the connection was cut", l->ctx->errstr);
    *bytes += l->ctx->reader->len - min_size(before, l->ctx->reader->len);
    if (*bytes > REDIS_REPLY_BYTES_MAX)
        return fail(l, -EMSGSIZE, err, "a reply", "it is larger than any that was asked for");
    return 0;
}

/* Points to the server that "MOVED SLOT HOST:PORT" names. An empty host is the one that answered. */
static bool follow(struct redis_link *l, struct str text)
{
    uint16_t port;
    struct str rest = text, name;
    (void)str_cut(&rest, ' ');
    (void)str_cut(&rest, ' ');
    if (str_host_port(rest, &name, &port) < 0 || port == 0 || name.len >= REDIS_HOST_BYTES)
        return false;
    if (l->asked == &l->moved) return false; /* its name is under way; the next call comes again */
    l->moved = (struct host){ .port = port };
    memcpy(l->moved.name, name.data, name.len);
    return true;
}

/* The server's refusals by their first word. */
static const struct {
    const char *word;
    int rc;
    bool away; /* it cannot serve: calls wait before they try it again */
    const char *next;
} refusals[] = {
    { "MOVED", -EXDEV, false, "" },
    { "READONLY", -EXDEV, false, "" },
    { "ASK", -EBUSY, true, "; the cluster is moving the fleet's keys" },
    { "TRYAGAIN", -EBUSY, true, "" },
    { "LOADING", -EBUSY, true, "" },
    { "BUSY", -EBUSY, true, "" },
    { "CLUSTERDOWN", -EBUSY, true, "" },
    { "MASTERDOWN", -EBUSY, true, "" },
    { "NOREPLICAS", -EBUSY, true, "" },
    { "NOAUTH", -EACCES, true, "; name controller.store_password_file" },
    { "WRONGPASS", -EACCES, true, "; see the user in controller.store and the password file" },
    { "NOPERM", -EACCES, true, "; the user needs the commands and keys of docs/security.md" },
    { "OOM", -ENOSPC, false, "" },
    { "MISCONF", -ENOSPC, false, "" },
    { "WRONGTYPE", -EILSEQ, false, "; the keys belong to another program" },
};

static int take_refusal(struct redis_link *l, struct str text, struct err *err)
{
    struct str rest = text, word = str_cut(&rest, ' ');
    int rc = -EIO;
    const char *next = "";
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        if (!str_eq(word, str_from(refusals[i].word))) continue;
        rc = refusals[i].rc;
        next = refusals[i].next;
        l->failed |= refusals[i].away;
    }
    if (str_eq(word, STR("MOVED")) && !follow(l, text)) rc = -EBUSY;
    if (str_eq(word, STR("READONLY"))) l->moved.port = 0; /* a replica by now: found anew */
    l->refused = true;
    err_set(err, rc, "store: Redis: %.*s%s", (int)min_size(text.len, 200), text.data, next);
    hang_up(l);
    return rc;
}

/* Returns the error in a reply, which may be in the list of a transaction's replies; NULL: none. */
static const redisReply *error_in(const redisReply *r)
{
    if (r->type == REDIS_REPLY_ERROR) return r;
    for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_ERROR) return r->element[i];
    return NULL;
}

int redis_take(struct redis_link *l, struct err *err)
{
    void *reply = NULL;
    size_t bytes = 0;
    reply_drop(l);
    if (!l->ctx) return err_set(err, -ENOTCONN, "store: Redis: the connection is gone");
    if (l->ctx->err) return fail(l, -ENOMEM, err, "a command", l->ctx->errstr);
    int rc = flush(l, err);
    while (rc == 0 && !reply) {
        if (redisGetReplyFromReader(l->ctx, &reply) != REDIS_OK)
            return fail(l, -EPROTO, err, "a reply is not understood", l->ctx->errstr);
        if (!reply) rc = read_some(l, &bytes, err);
    }
    if (rc < 0) return rc;
    l->reply = reply;
    l->pending--;
    const redisReply *error = error_in(reply);
    return error ? take_refusal(l, text_of(error), err) : 0;
}

bool redis_was_refused(const struct redis_link *l)
{
    return l->refused;
}

/* ---- log-in ---- */

static int authenticate(struct redis_link *l, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (!l->password_file[0]) return 0;
    /* Read at each log-in, so that a password may change. */
    int rc = file_read(l->password_file, PASSWORD_BYTES_MAX, &text, err);
    if (rc < 0) {
        l->failed = true;
        hang_up(l);
        return rc;
    }
    struct str rest = buf_view(&text), password = str_trim(str_cut(&rest, '\n'));
    if (l->user[0])
        REDIS_SEND(l, STR("AUTH"), str_from(l->user), password);
    else
        REDIS_SEND(l, STR("AUTH"), password);
    rc = redis_take(l, err);
    explicit_bzero(text.data, text.len);
    return rc;
}

static int select_db(struct redis_link *l, struct err *err)
{
    char text[24];
    if (l->db == 0) return 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)l->db);
    REDIS_SEND(l, STR("SELECT"), str_from(text));
    return redis_take(l, err);
}

/* Asks if the server is a master, and if it has replicas. */
static int check_role(struct redis_link *l, struct err *err)
{
    if (!l->sentinel) return 0;
    REDIS_SEND(l, STR("ROLE"));
    int rc = redis_take(l, err);
    if (rc < 0) return rc;
    if (!str_eq(redis_text(l, 0), STR("master")))
        return fail(l, -EBUSY, err, l->master, "the server that Sentinel names is no master");
    l->replicas = redis_count(l) > 2 && l->reply->element[2]->type == REDIS_REPLY_ARRAY &&
                  l->reply->element[2]->elements > 0;
    return 0;
}

/* Asks the sentinel that is connected for the master, and hangs up. */
static int ask_sentinel(struct redis_link *l, struct host *ret, struct err *err)
{
    uint64_t port;
    REDIS_SEND(l, STR("SENTINEL"), STR("get-master-addr-by-name"), str_from(l->master));
    int rc = redis_take(l, err);
    if (rc == -EACCES && l->password_file[0]) { /* it wants a password too */
        rc = connect_host(l, &l->host[l->host_at], err);
        if (rc == 0) rc = authenticate(l, err);
        if (rc < 0) return rc;
        REDIS_SEND(l, STR("SENTINEL"), STR("get-master-addr-by-name"), str_from(l->master));
        rc = redis_take(l, err);
    }
    if (rc < 0) return rc;
    struct str name = redis_text(l, 0);
    if (redis_is_nil(l) || name.len == 0 || name.len >= sizeof ret->name ||
        str_to_u64(redis_text(l, 1), &port) < 0 || port < 1 || port > 65535)
        return fail(l, -ENOENT, err, l->master, "the sentinel knows no master of this name");
    struct host h = { .port = (uint16_t)port };
    memcpy(h.name, name.data, name.len);
    hang_up(l);
    *ret = h;
    return 0;
}

/* Asks the sentinels one after the other, each for its share of the time that is left. */
static int connect_by_sentinel(struct redis_link *l, struct err *err)
{
    struct host master;
    int64_t whole_us = l->deadline_us;
    int rc = -ENOENT;
    for (uint32_t i = 0; i < l->host_count; i++) {
        int64_t left_us = whole_us - clock_mono_us();
        l->deadline_us = whole_us - left_us + left_us / (l->host_count - i + 1);
        rc = connect_host(l, &l->host[l->host_at], err);
        if (rc == 0) rc = ask_sentinel(l, &master, err);
        l->deadline_us = whole_us;
        if (rc == 0) break;
        l->host_at = (l->host_at + 1) % l->host_count;
    }
    if (rc < 0) return rc;
    if (l->asked == &l->moved) take_answer(l);
    if (l->asked == &l->moved)
        return fail(l, -EBUSY, err, master.name, "its name is not resolved yet");
    bool same = strcmp(master.name, l->moved.name) == 0 && master.port == l->moved.port;
    if (!same) l->moved = master;
    return connect_host(l, &l->moved, err);
}

static int connect_any(struct redis_link *l, struct err *err)
{
    if (l->unix_socket) return connect_path(l, err);
    if (l->sentinel) return connect_by_sentinel(l, err);
    if (l->moved.port) return connect_host(l, &l->moved, err);
    int rc = connect_host(l, &l->host[l->host_at], err);
    if (rc < 0) l->host_at = (l->host_at + 1) % l->host_count;
    return rc;
}

/* Returns true if an idle connection was closed by the server meanwhile, or has bytes that nobody asked
 * for. TLS has messages of its own, which are left alone. */
static bool was_cut(const struct redis_link *l)
{
    char byte;
    ssize_t n = recv(l->ctx->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n > 0 && !l->is_tls) || (n < 0 && errno != EAGAIN);
}

/* Keeps a failure to connect apart from what calls return about their keys: a socket that is not there is
 * no entry that is not there. */
static int plain(int rc)
{
    static const int of_keys[] = { -ENOENT,    -EEXIST, -ESTALE, -EKEYREVOKED,
                                   -EREMOTEIO, -EXDEV,  -EAGAIN };
    for (size_t i = 0; i < COUNT_OF(of_keys); i++)
        if (rc == of_keys[i]) return -EHOSTUNREACH;
    return rc;
}

int redis_ready(struct redis_link *l, struct err *err)
{
    if (l->ctx && (l->pending > 0 || was_cut(l))) hang_up(l);
    if (l->ctx) return 0;
    l->replicas = false;
    int rc = connect_any(l, err);
    if (rc < 0) l->moved.port = l->sentinel ? l->moved.port : 0;
    if (rc == 0) rc = authenticate(l, err);
    if (rc == 0) rc = select_db(l, err);
    if (rc == 0) rc = check_role(l, err);
    if (rc < 0) return rc == -EXDEV ? rc : plain(rc);
    l->line++;
    l->ever = true;
    l->failed = false; /* another sentinel may have failed before */
    return 0;
}

/* ---- calls ---- */

int redis_begin(struct redis_link *l, struct err *err)
{
    int64_t now_us = clock_mono_us();
    l->failed = false;
    l->deadline_us = now_us + l->timeout_us;
    if (now_us >= l->again_us) return 0;
    return err_set(err, -ENETDOWN,
                   "store: Redis could not be reached %u times in a row; tried again in %lld ms",
                   l->failures, (long long)(l->again_us - now_us) / 1000);
}

void redis_end(struct redis_link *l, bool failed)
{
    reply_drop(l);
    if (!l->failed && !failed) {
        l->failures = 0;
        l->again_us = 0;
        return;
    }
    int64_t most_us = REDIS_BACK_OFF_MIN_US;
    for (uint32_t i = 0; i < l->failures && most_us < REDIS_BACK_OFF_MAX_US; i++)
        most_us *= 2;
    most_us = min_i64(most_us, REDIS_BACK_OFF_MAX_US);
    l->failures++;
    /* Half of it by chance, so that all processes do not come back in one moment. */
    l->again_us =
        clock_mono_us() + most_us / 2 + (int64_t)rng_below(&l->rng, (uint64_t)most_us / 2);
}

uint64_t redis_line(const struct redis_link *l)
{
    return l->line;
}

bool redis_is_up(const struct redis_link *l)
{
    return l->ever && l->failures == 0;
}

bool redis_has_replicas(const struct redis_link *l)
{
    return l->replicas;
}

/* ---- the URL ---- */

static int bad_url(struct str url, const char *what, struct err *err)
{
    return err_set(err, -EINVAL, "'" STR_FMT "': %s; want " STORE_REDIS_FORMS, STR_ARG(url), what);
}

static int take_text(char *to, size_t size, struct str from, struct str url, const char *what,
                     struct err *err)
{
    if (from.len == 0 || from.len >= size) return bad_url(url, what, err);
    memcpy(to, from.data, from.len);
    to[from.len] = 0;
    return 0;
}

static int take_host(struct redis_link *l, struct str text, struct str url, struct err *err)
{
    struct host *h = &l->host[l->host_count];
    uint64_t port = l->sentinel ? SENTINEL_PORT : REDIS_PORT;
    if (l->host_count == REDIS_HOSTS_MAX) return bad_url(url, "too many hosts", err);
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':' && text.data[colon - 1] != ']')
        colon--;
    bool has_port = colon > 0 && text.data[colon - 1] == ':';
    if (has_port) {
        struct str number = str_of(text.data + colon, text.len - colon);
        if (str_to_u64(number, &port) < 0 || port < 1 || port > 65535)
            return bad_url(url, "the port is no number of 1 to 65535", err);
        text.len = colon - 1;
    }
    if (text.len > 2 && text.data[0] == '[' && text.data[text.len - 1] == ']')
        text = str_of(text.data + 1, text.len - 2);
    *h = (struct host){ .port = (uint16_t)port };
    l->host_count++;
    return take_text(h->name, sizeof h->name, text, url, "a host is missing or too long", err);
}

static int take_db(struct redis_link *l, struct str text, struct str url, struct err *err)
{
    if (text.len == 0) return 0;
    if (str_to_u64(text, &l->db) == 0 && l->db <= DB_MAX) return 0;
    return bad_url(url, "the database is no number", err);
}

static int take_hosts(struct redis_link *l, struct str rest, struct str url, struct err *err)
{
    struct str hosts = str_cut(&rest, '/');
    size_t at = str_find(hosts, STR("@"));
    int rc = 0;
    if (at != SIZE_MAX) {
        struct str user = str_of(hosts.data, at);
        hosts = str_of(hosts.data + at + 1, hosts.len - at - 1);
        if (str_find(user, STR(":")) != SIZE_MAX)
            return bad_url(url, "a password belongs into controller.store_password_file", err);
        rc = take_text(l->user, sizeof l->user, user, url, "the user is empty or too long", err);
    }
    do {
        if (rc == 0) rc = take_host(l, str_cut(&hosts, ','), url, err);
    } while (rc == 0 && hosts.data);
    if (rc == 0 && l->sentinel)
        rc = take_text(l->master, sizeof l->master, str_cut(&rest, '/'), url,
                       "the master's name is missing", err);
    return rc < 0 ? rc : take_db(l, rest, url, err);
}

static int take_path(struct redis_link *l, struct str rest, struct str url, struct err *err)
{
    struct str path = str_cut(&rest, '?');
    if (rest.len > 0 && !str_starts(rest, STR("db=")))
        return bad_url(url, "only ?db=N is known", err);
    int rc = take_text(l->path, sizeof l->path, path, url, "the path is missing or too long", err);
    return rc < 0 || rest.len == 0 ? rc : take_db(l, str_of(rest.data + 3, rest.len - 3), url, err);
}

static int take_url(struct redis_link *l, struct str url, struct err *err)
{
    static const struct {
        const char *scheme;
        bool path, sentinel, tls;
    } rows[] = {
        { "redis://", false, false, false },         { "rediss://", false, false, true },
        { "redis+unix://", true, false, false },     { "redis+sentinel://", false, true, false },
        { "rediss+sentinel://", false, true, true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str scheme = str_from(rows[i].scheme);
        if (!str_starts(url, scheme)) continue;
        struct str rest = str_of(url.data + scheme.len, url.len - scheme.len);
        l->unix_socket = rows[i].path;
        l->sentinel = rows[i].sentinel;
        l->is_tls = rows[i].tls;
        return l->unix_socket ? take_path(l, rest, url, err) : take_hosts(l, rest, url, err);
    }
    return err_set(err, -EINVAL,
                   "'" STR_FMT "': this is no store; want " STORE_REDIS_FORMS
                   ", or " STORE_KUBE_FORMS,
                   STR_ARG(url));
}

static int open_tls(struct redis_link *l, const struct store_redis_config *config, struct err *err)
{
    if (!l->is_tls) return 0;
#ifdef MUSTER_REDIS_TLS
    const struct tls_files files = { config->certificate, config->key, config->ca };
    return tls_client_new(&files, &l->tls, err);
#else
    return err_set(err, -ENOTSUP,
                   "'" STR_FMT
                   "': this build cannot speak TLS to Redis, because its hiredis (%d.%d.%d) "
                   "has none; use a Unix socket or a TLS tunnel on this machine, or build with "
                   "hiredis 1.0 or later and its hiredis_ssl",
                   STR_ARG(config->url), HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
#endif
}

int redis_link_new(const struct store_redis_config *config, struct redis_link **ret,
                   struct err *err)
{
    struct redis_link *l = calloc(1, sizeof *l);
    uint64_t seed;
    if (!l) return err_set(err, -ENOMEM, "store: no memory");
    l->timeout_us = config->timeout_us;
    int rc = take_url(l, config->url, err);
    if (rc == 0 && config->password_file.len >= sizeof l->password_file)
        rc = err_set(err, -ENAMETOOLONG, "controller.store_password_file: the path is too long");
    if (rc == 0 && config->password_file.len)
        memcpy(l->password_file, config->password_file.data, config->password_file.len);
    if (rc == 0) rc = open_tls(l, config, err);
    if (rc == 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc < 0) {
        redis_link_free(l);
        return rc;
    }
    rng_seed(&l->rng, seed);
    *ret = l;
    return 0;
}

void redis_link_free(struct redis_link *l)
{
    if (!l) return;
    hang_up(l);
    tls_free(l->tls);
    take_answer(l);
    /* The system's resolver still writes to the question: it cannot be freed, and the process ends. */
    if (l->asked && gai_cancel(&l->question) == EAI_NOTCANCELED) return;
    free(l);
}
