/* kv_feed.c - two ZMTP connections: one that subscribes, and one that asks for what was missed.
 *
 *     live message n:   n == next ──► apply            n < next ──► known already
 *                       n >  next ──► ask from `next`  (no socket for that: drop the view, go on at n)
 *
 * While a replay is under way live messages that are ahead of `next` are left out: the engine puts a
 * message into its replay buffer before it publishes the next one, so the replay has them, or a second
 * one will. `ahead` remembers that some were left out. At the start everything is asked for, so that an
 * agent that comes late, or again, sees the cache whole as far as the engine's buffer reaches.
 */
#include "agent/kv_feed.h"

#include "agent/core/zmtp.h"
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/net/conn.h"
#include "base/io/net/resolver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define IN_BYTES_MAX (2 * ZMTP_FRAME_BYTES_MAX)
#define OUT_BYTES_MAX 4096
#define READ_BYTES 65536
#define SEQ_BYTES 8
#define LOG_US 60000000

/* One connection, made again when it ends. */
struct link {
    struct kv_feed *feed;
    const char *name; /* for the log */
    enum zmtp_role role;
    bool unix_socket;
    char host[108]; /* or the path of a Unix socket; as long as one may be */
    uint16_t port;
    struct conn conn;
    struct loop_watch watch;
    struct loop_timer timer; /* until the handshake is over, or to connect again */
    struct resolver_use use;
    bool resolving;
    struct zmtp zmtp;
    int (*on_message)(struct kv_feed *f, const struct zmtp_message *m, struct err *err);
    void (*on_open)(struct kv_feed *f);
    void (*on_end)(struct kv_feed *f);
};

struct kv_feed {
    struct kv_feed_config config;
    struct resolver *resolver;
    struct link live, replay;
    bool has_replay;
    bool replaying;
    bool started;   /* `next` means something */
    uint64_t next;  /* number of the message that comes next */
    uint64_t ahead; /* the highest that was left out; valid if left_out */
    bool left_out;
    struct kv_feed_counts total;
    struct log_limit log;
};

static void connect_now(void *arg);

/* ---- one connection ---- */

static void complain(struct kv_feed *f, const struct link *l, const char *why)
{
    uint64_t skipped;
    if (!log_pass(&f->log, loop_now_us(f->config.loop), LOG_US, &skipped)) return;
    log_event(LOG_WARN, "kv_events_broken", "socket=%s at=%s why=%s skipped=%lu", l->name, l->host,
              why, (unsigned long)skipped);
}

static void hang_up(struct link *l)
{
    struct loop *loop = l->feed->config.loop;
    loop_watch_del(loop, &l->watch);
    loop_timer_clear(loop, &l->timer);
    if (l->resolving) resolver_leave(l->feed->resolver, &l->use);
    l->resolving = false;
    conn_close(&l->conn);
    l->conn.fd = -1;
}

static void again(struct link *l, const char *why)
{
    struct kv_feed *f = l->feed;
    hang_up(l);
    if (why) complain(f, l, why);
    l->on_end(f);
    l->timer.fn = connect_now;
    /* Without memory for a timer the feed stays down: the router then goes by load. */
    (void)loop_timer_set(f->config.loop, &l->timer, loop_now_us(f->config.loop) + KV_FEED_RETRY_US);
}

static void on_slow(void *arg)
{
    again(arg, "no handshake in time");
}

/* Sends what is due and waits for room where some is left. */
static int send_due(struct link *l)
{
    int rc = conn_flush(&l->conn);
    if (rc < 0 && rc != -EAGAIN) return rc;
    return loop_watch_mod(l->feed->config.loop, &l->watch,
                          rc == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Takes all whole messages that have come. */
static int take_all(struct link *l, struct err *err)
{
    for (;;) {
        struct zmtp_message m;
        size_t used;
        enum zmtp_state was = l->zmtp.state;
        int rc = zmtp_take(&l->zmtp, buf_view(&l->conn.in), (struct str){ 0 }, &used, &m,
                           &l->conn.out, err);
        if (rc >= 0 && was != ZMTP_OPEN && l->zmtp.state == ZMTP_OPEN) {
            loop_timer_clear(l->feed->config.loop, &l->timer);
            l->on_open(l->feed);
        }
        if (rc > 0) rc = l->on_message(l->feed, &m, err) < 0 ? -EPROTO : 1;
        if (rc < 0) return rc;
        buf_consume(&l->conn.in, used);
        if (rc == 0 && used == 0) break;
    }
    conn_trim(&l->conn);
    return 0;
}

static void on_event(void *arg, uint32_t events)
{
    struct link *l = arg;
    struct err err = { "" };
    ssize_t got = 0;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) got = conn_read(&l->conn, READ_BYTES);
    int rc = got == 0 && events & EPOLLIN ? -ECONNRESET : got < 0 && got != -EAGAIN ? (int)got : 0;
    if (rc == 0 && events & (EPOLLHUP | EPOLLERR) && got <= 0) rc = -ECONNRESET;
    if (rc == 0) rc = take_all(l, &err);
    if (rc == 0) rc = send_due(l);
    if (rc < 0) again(l, err_text(&err, rc));
}

/* Returns a socket that connects to the Unix socket at `path`, or -errno. */
static int connect_unix(const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof at.sun_path) return -ENAMETOOLONG;
    memcpy(at.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

static void talk(struct link *l, int fd)
{
    struct loop *loop = l->feed->config.loop;
    if (fd < 0) {
        again(l, NULL); /* the engine is not there yet: no news */
        return;
    }
    conn_init(&l->conn, fd, IN_BYTES_MAX, OUT_BYTES_MAX);
    zmtp_begin(&l->zmtp, l->role, &l->conn.out);
    l->watch = (struct loop_watch){ .fd = fd, .fn = on_event, .arg = l };
    l->timer.fn = on_slow;
    int rc = loop_watch_add(loop, &l->watch, EPOLLIN | EPOLLOUT);
    if (rc == 0) rc = loop_timer_set(loop, &l->timer, loop_now_us(loop) + KV_FEED_OPEN_US);
    if (rc < 0) again(l, "no memory");
}

static void on_name(void *arg, int rc, const struct addr *found)
{
    struct link *l = arg;
    struct addr to;
    l->resolving = false;
    if (rc == 0) {
        to = *found;
        to.port = l->port;
        resolver_leave(l->feed->resolver, &l->use);
    }
    talk(l, rc < 0 ? rc : conn_connect(&to));
}

static void connect_now(void *arg)
{
    struct link *l = arg;
    struct addr to;
    if (l->unix_socket) {
        talk(l, connect_unix(l->host));
        return;
    }
    if (addr_from_literal(&to, str_from(l->host), l->port) == 0) {
        talk(l, conn_connect(&to));
        return;
    }
    l->use = (struct resolver_use){ .fn = on_name, .arg = l };
    int rc = resolver_ask(l->feed->resolver, str_from(l->host), &l->use, &to);
    l->resolving = rc == -EINPROGRESS;
    if (rc == 0)
        on_name(l, 0, &to);
    else if (!l->resolving)
        again(l, "its host name is not known");
}

/* Reads ipc://PATH or tcp://HOST:PORT. */
static int link_init(struct link *l, struct kv_feed *f, const char *name, enum zmtp_role role,
                     struct str at, struct err *err)
{
    *l = (struct link){ .feed = f, .name = name, .role = role, .conn = { .fd = -1 } };
    l->timer = (struct loop_timer){ .fn = connect_now, .arg = l };
    l->unix_socket = str_starts(at, STR("ipc://"));
    bool tcp = str_starts(at, STR("tcp://"));
    struct str rest = at.len >= 6 ? str_of(at.data + 6, at.len - 6) : at;
    if (tcp && (str_host_port(rest, &rest, &l->port) < 0 || l->port == 0))
        return err_set(err, -EINVAL, "KV events at " STR_FMT ": want tcp://HOST:PORT", STR_ARG(at));
    if ((!tcp && !l->unix_socket) || rest.len == 0 || rest.len >= sizeof l->host)
        return err_set(err, -EINVAL, "KV events at " STR_FMT ": want ipc://PATH or tcp://HOST:PORT",
                       STR_ARG(at));
    memcpy(l->host, rest.data, rest.len);
    return 0;
}

/* ---- messages ---- */

static void news(struct kv_feed *f)
{
    if (f->config.on_change) f->config.on_change(f->config.arg);
}

/* Drops the view; the next message that is applied counts as `next`. */
static void drop_view(struct kv_feed *f, uint64_t next)
{
    kv_view_clear(f->config.view);
    f->next = next;
}

static int apply(struct kv_feed *f, struct str payload, struct err *err)
{
    struct engine_kv_batch batch;
    struct engine_kv_event ev;
    int rc = engine_kv_batch_begin(&batch, payload, err);
    while (rc == 0 && (rc = engine_kv_batch_next(&batch, &ev, err)) > 0) {
        rc = kv_view_apply(f->config.view, &ev);
        if (rc < 0)
            err_set(err, rc, rc == -ENOMEM ? "no memory" : "a list in a KV event is malformed");
    }
    return rc;
}

/* Applies message `seq`, whose turn it is. */
static void take_next(struct kv_feed *f, uint64_t seq, struct str payload)
{
    struct err err = { "" };
    f->next = seq + 1;
    f->total.messages++;
    if (apply(f, payload, &err) < 0) {
        f->total.malformed++;
        complain(f, &f->live, err.text);
        drop_view(f, seq + 1);
    }
}

/* Asks for everything from `next` on. The next turn sends it: this may be called while the connection's
 * own messages are read. */
static void ask_replay(struct kv_feed *f)
{
    char number[SEQ_BYTES];
    for (int i = 0; i < SEQ_BYTES; i++)
        number[i] = (char)(f->next >> (8 * (SEQ_BYTES - 1 - i)));
    const struct str part[] = { { 0 }, { number, SEQ_BYTES } };
    f->replaying = true;
    f->left_out = false;
    if (zmtp_put(&f->replay.conn.out, part, COUNT_OF(part)) < 0 ||
        loop_watch_mod(f->config.loop, &f->replay.watch, EPOLLIN | EPOLLOUT) < 0)
        f->replaying = false; /* the next gap tries again */
}

static bool can_replay(const struct kv_feed *f)
{
    return f->has_replay && f->replay.zmtp.state == ZMTP_OPEN && f->replay.conn.fd >= 0;
}

static bool read_seq(struct str part, uint64_t *ret)
{
    if (part.len != SEQ_BYTES) return false;
    uint64_t seq = 0;
    for (size_t i = 0; i < SEQ_BYTES; i++)
        seq = seq << 8 | (unsigned char)part.data[i];
    *ret = seq;
    return true;
}

static void on_gap(struct kv_feed *f, uint64_t seq, struct str payload)
{
    if (!f->replaying) f->total.gaps++;
    if (can_replay(f)) {
        if (!f->left_out || seq > f->ahead) f->ahead = seq;
        if (!f->replaying) ask_replay(f);
        f->left_out = true;
        return;
    }
    drop_view(f, seq);
    take_next(f, seq, payload);
}

/* A live message is [topic, number, batch]. */
static int on_live(struct kv_feed *f, const struct zmtp_message *m, struct err *err)
{
    uint64_t seq;
    if (m->part_count != 3 || !read_seq(m->part[1], &seq))
        return err_set(err, -EPROTO, "its messages are not those of a publisher of KV events");
    if (!f->started) f->next = seq; /* nothing can be asked for: the view begins here */
    f->started = true;
    if (seq == f->next)
        take_next(f, seq, m->part[2]);
    else if (seq > f->next)
        on_gap(f, seq, m->part[2]);
    news(f);
    return 0;
}

static void replay_over(struct kv_feed *f)
{
    f->replaying = false;
    if (f->left_out && f->ahead >= f->next && can_replay(f)) ask_replay(f);
}

/* A replayed message is [empty, number, batch] or [empty, topic, number, batch]; the last has the number
 * -1. A hole in it is what the engine's buffer has forgotten. */
static int on_replayed(struct kv_feed *f, const struct zmtp_message *m, struct err *err)
{
    uint64_t seq;
    uint32_t at = m->part_count - 2;
    if (m->part_count < 2 || m->part_count > 4 || !read_seq(m->part[at], &seq))
        return err_set(err, -EPROTO, "its messages are not those of a replay of KV events");
    if (seq == UINT64_MAX) {
        replay_over(f);
    } else if (seq >= f->next) {
        if (seq > f->next) drop_view(f, seq);
        f->started = true;
        f->total.replayed++;
        take_next(f, seq, m->part[at + 1]);
    }
    news(f);
    return 0;
}

/* ---- states of the connections ---- */

/* Asks for everything once both connections are open. */
static void begin_whole(struct kv_feed *f)
{
    if (!f->total.open || !can_replay(f)) return;
    drop_view(f, 0);
    f->started = true;
    ask_replay(f);
}

static void live_open(struct kv_feed *f)
{
    f->total.connects++;
    f->total.open = true;
    begin_whole(f);
    news(f);
}

/* The publisher's cache is gone with it, and so is what a replay still has under way: that connection
 * begins again too. */
static void live_end(struct kv_feed *f)
{
    if (!f->total.open) return;
    f->total.open = f->started = false;
    if (f->has_replay && f->replay.conn.fd >= 0) again(&f->replay, NULL);
    drop_view(f, 0);
    news(f);
}

static void replay_open(struct kv_feed *f)
{
    begin_whole(f);
}

/* The rest of a replay that broke is missing; the next live message shows the gap. */
static void replay_end(struct kv_feed *f)
{
    f->replaying = f->left_out = false;
}

/* ---- life ---- */

int kv_feed_new(const struct kv_feed_config *config, struct kv_feed **ret, struct err *err)
{
    struct kv_feed *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, -ENOMEM, "no memory");
    f->config = *config;
    int rc = link_init(&f->live, f, "events", ZMTP_SUB, config->events, err);
    f->has_replay = config->replay.len > 0;
    if (rc == 0 && f->has_replay)
        rc = link_init(&f->replay, f, "replay", ZMTP_DEALER, config->replay, err);
    if (rc == 0) rc = resolver_new(config->loop, NULL, &f->resolver, err);
    if (rc < 0) {
        free(f);
        return rc;
    }
    f->live.on_message = on_live;
    f->live.on_open = live_open;
    f->live.on_end = live_end;
    f->replay.on_message = on_replayed;
    f->replay.on_open = replay_open;
    f->replay.on_end = replay_end;
    rc = loop_timer_set(config->loop, &f->live.timer, loop_now_us(config->loop));
    if (rc == 0 && f->has_replay)
        rc = loop_timer_set(config->loop, &f->replay.timer, loop_now_us(config->loop));
    if (rc < 0) {
        kv_feed_free(f);
        return err_set(err, rc, "no memory");
    }
    *ret = f;
    return 0;
}

void kv_feed_free(struct kv_feed *f)
{
    if (!f) return;
    hang_up(&f->live);
    if (f->has_replay) hang_up(&f->replay);
    resolver_free(f->resolver);
    free(f);
}

void kv_feed_counts(const struct kv_feed *f, struct kv_feed_counts *ret)
{
    *ret = f->total;
}
