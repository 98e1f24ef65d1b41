/* kv_publisher.c - the sending side of ZMTP 3.0, without authentication, on Unix sockets.
 *
 *     greeting, READY ──►   ◄── greeting, READY, \1TOPIC (PUB) or [empty, number] (ROUTER)
 *
 * It shares no code with the agent's client. What a peer sends is read only as far as it must be: frames are
 * cut, and of each message its first byte or its last part counts.
 */
#include "tests/proc/rig/kv_publisher.h"

#include "base/core/own.h"
#include "base/io/net/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define GREETING 64
#define IN_BYTES_MAX 65536
#define OUT_BYTES_MAX ((size_t)16 << 20) /* a subscriber that falls further behind is cut */

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4 };

struct socket_of_peers {
    struct kv_publisher *p;
    const char *type;
    char path[108];
    struct loop_watch watch;
    int fd;
};

struct peer {
    struct socket_of_peers *of; /* NULL: free */
    struct conn conn;
    struct loop_watch watch;
    bool greeted, subscribed;
};

struct kv_publisher {
    struct loop *loop;
    struct socket_of_peers events, replay;
    struct peer peer[KV_PEERS_MAX];
    struct buf kept[KV_REPLAY];
    uint64_t next;
};

static void number(char out[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        out[i] = (char)(n >> (56 - 8 * i));
}

static void put_frame(struct buf *out, int flags, struct str bytes)
{
    char length[8];
    number(length, bytes.len);
    buf_byte(out, (char)(flags | (bytes.len > 255 ? FLAG_LONG : 0)));
    if (bytes.len > 255)
        buf_append(out, length, sizeof length);
    else
        buf_byte(out, (char)bytes.len);
    buf_str(out, bytes);
}

static void drop(struct peer *d)
{
    loop_watch_del(d->of->p->loop, &d->watch);
    conn_close(&d->conn);
    d->of = NULL;
}

static void flush(struct peer *d)
{
    int rc = conn_flush(&d->conn);
    if (rc < 0 && rc != -EAGAIN) {
        drop(d);
        return;
    }
    loop_watch_mod(d->of->p->loop, &d->watch, rc == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void put_message(struct peer *d, struct str head, uint64_t seq, struct str batch)
{
    char text[8];
    number(text, seq);
    put_frame(&d->conn.out, FLAG_MORE, head);
    put_frame(&d->conn.out, FLAG_MORE, str_of(text, sizeof text));
    put_frame(&d->conn.out, 0, batch);
}

static void replay_from(struct peer *d, struct str start)
{
    struct kv_publisher *p = d->of->p;
    uint64_t from = 0;
    for (size_t i = 0; i < start.len; i++)
        from = from << 8 | (unsigned char)start.data[i];
    if (p->next > KV_REPLAY && from < p->next - KV_REPLAY) from = p->next - KV_REPLAY;
    for (; from < p->next; from++)
        put_message(d, (struct str){ 0 }, from, buf_view(&p->kept[from % KV_REPLAY]));
    put_message(d, (struct str){ 0 }, UINT64_MAX, (struct str){ 0 });
}

/* Takes one frame; returns its bytes, or 0: more must come. */
static size_t take_frame(struct peer *d, struct str in)
{
    if (in.len < 2) return 0;
    int flags = in.data[0];
    size_t head = flags & FLAG_LONG ? 9 : 2, len = (unsigned char)in.data[1];
    if (in.len < head) return 0;
    for (size_t i = 2; i < head; i++)
        len = len << 8 | (unsigned char)in.data[i];
    if (in.len - head < len) return 0;
    struct str bytes = str_of(in.data + head, len);
    if (flags & FLAG_COMMAND)
        d->subscribed = d->subscribed || str_starts(bytes, STR("\x09SUBSCRIBE"));
    else if (d->of == &d->of->p->replay && !(flags & FLAG_MORE))
        replay_from(d, bytes);
    else if (len > 0 && bytes.data[0] == 1)
        d->subscribed = true;
    return head + len;
}

static void on_peer(void *arg, uint32_t events)
{
    struct peer *d = arg;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t got = conn_read(&d->conn, IN_BYTES_MAX);
        if (got == 0 || (got < 0 && got != -EAGAIN)) {
            drop(d);
            return;
        }
    }
    for (;;) {
        struct str in = buf_view(&d->conn.in);
        size_t used = d->greeted ? take_frame(d, in) : in.len >= GREETING ? GREETING : 0;
        if (used == 0) break;
        d->greeted = true;
        buf_consume(&d->conn.in, used);
    }
    flush(d);
}

static void greet(struct peer *d)
{
    CLEANUP(buf_fini) struct buf ready = { 0 };
    char greeting[GREETING] = "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL";
    greeting[32] = 1; /* as-server */
    buf_append(&d->conn.out, greeting, sizeof greeting);
    buf_printf(&ready, "%cREADY%cSocket-Type%c%c%c%c%s", 5, 11, 0, 0, 0, (int)strlen(d->of->type),
               d->of->type);
    put_frame(&d->conn.out, FLAG_COMMAND, buf_view(&ready));
}

static void on_connection(void *arg, uint32_t events)
{
    (void)events;
    struct socket_of_peers *s = arg;
    int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    for (size_t i = 0; i < KV_PEERS_MAX; i++) {
        struct peer *d = &s->p->peer[i];
        if (d->of) continue;
        *d = (struct peer){ .of = s, .watch = { .fd = fd, .fn = on_peer, .arg = d } };
        conn_init(&d->conn, fd, IN_BYTES_MAX, OUT_BYTES_MAX);
        greet(d);
        loop_watch_add(s->p->loop, &d->watch, EPOLLIN);
        flush(d);
        return;
    }
    close(fd);
}

static int open_socket(struct socket_of_peers *s, struct kv_publisher *p, const char *type,
                       struct str path, struct err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    *s = (struct socket_of_peers){ .p = p, .type = type, .fd = -1 };
    if (path.len == 0) return 0;
    if (path.len >= sizeof at.sun_path) return err_set(err, -ENAMETOOLONG, "a path too long");
    memcpy(s->path, path.data, path.len);
    memcpy(at.sun_path, path.data, path.len);
    unlink(s->path);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || bind(s->fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
        listen(s->fd, KV_PEERS_MAX) < 0)
        return err_set(err, -errno, "%s: %s", s->path, strerror(errno));
    s->watch = (struct loop_watch){ .fd = s->fd, .fn = on_connection, .arg = s };
    return loop_watch_add(p->loop, &s->watch, EPOLLIN);
}

static void close_socket(struct socket_of_peers *s)
{
    if (!s->p || s->fd < 0) return;
    loop_watch_del(s->p->loop, &s->watch);
    close(s->fd);
    unlink(s->path);
}

int kv_publisher_new(struct loop *l, struct str events, struct str replay,
                     struct kv_publisher **ret, struct err *err)
{
    struct kv_publisher *p = calloc(1, sizeof *p);
    must(p);
    p->loop = l;
    int rc = open_socket(&p->events, p, "PUB", events, err);
    if (rc == 0) rc = open_socket(&p->replay, p, "ROUTER", replay, err);
    if (rc < 0)
        kv_publisher_free(p);
    else
        *ret = p;
    return rc;
}

void kv_publisher_free(struct kv_publisher *p)
{
    if (!p) return;
    for (size_t i = 0; i < KV_PEERS_MAX; i++)
        if (p->peer[i].of) drop(&p->peer[i]);
    close_socket(&p->events);
    close_socket(&p->replay);
    for (size_t i = 0; i < KV_REPLAY; i++)
        buf_fini(&p->kept[i]);
    free(p);
}

void kv_publisher_send(struct kv_publisher *p, struct str batch, bool lost)
{
    struct buf *kept = &p->kept[p->next % KV_REPLAY];
    buf_clear(kept);
    must(buf_str(kept, batch) == 0);
    for (size_t i = 0; i < KV_PEERS_MAX && !lost; i++) {
        struct peer *d = &p->peer[i];
        if (!d->of || !d->subscribed) continue;
        put_message(d, STR("kv-events"), p->next, batch);
        flush(d);
    }
    p->next++;
}

uint32_t kv_publisher_subscribers(const struct kv_publisher *p)
{
    uint32_t count = 0;
    for (size_t i = 0; i < KV_PEERS_MAX; i++)
        count += p->peer[i].of && p->peer[i].subscribed;
    return count;
}
