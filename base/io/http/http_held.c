/* http_held.c - counts the memory that connections hold, and decides which gives it up when it is short.
 *
 * The count is the memory that buffers have allocated, for requests and for replies; an announced length
 * counts nothing. Large connections share one half of held_bytes_max. When they hold more, the one
 * with the largest
 *
 *     cost = bytes held * time since its body began, or since its reply has been waiting
 *
 * gives its memory up, then the next, until enough is free. So a newcomer is not refused because of
 * bodies that never end or replies that are never read. A request that is whole and is being answered
 * is never taken. The other half is left to small requests; when that is used up too, bodies of any
 * size are refused by the same measure. The first buffer of a connection is outside all this, because
 * connections_max bounds it: /health is answered whatever others hold.
 *
 * Rejected: refusing the connection that reads next (a few silent connections then keep all others out),
 * and a fixed share for each connection (too small for one large prompt, too large for a thousand). */
#include "base/io/http/http_serve.h"

#define SMALL_BYTES ((size_t)132 << 10) /* a request of 64 KB and its head: buffers double */
#define FIRST_BYTES ((size_t)8 << 10)   /* first buffers of a connection, in and out */

bool held_count(struct http_exchange *x)
{
    struct http_server *s = x->server;
    size_t before = x->held;
    count_sub(&s->counts.held_bytes, before);
    x->held = x->conn.in.cap + x->conn.out.cap;
    count_add(&s->counts.held_bytes, x->held);
    bool large = x->held > SMALL_BYTES;
    if (large && !list_linked(&x->large_node)) list_push_back(&s->large, &x->large_node);
    if (!large && list_linked(&x->large_node)) list_remove(&x->large_node);
    return x->held > before;
}

/* Returns the bytes held. Memory that is about to be given up counts as free. */
static uint64_t held_now(const struct http_server *s)
{
    return s->counts.held_bytes - s->dooming_bytes;
}

/* Returns the cost in byte-microseconds; 0 when the memory cannot be taken. Each time counts one
 * microsecond more, so that of two that began just now the larger is taken. */
static double cost_of(const struct http_exchange *x)
{
    int64_t now = loop_now_us(x->server->loop);
    if (x->doomed_bytes > 0) return 0;
    if (x->stage == SERVE_BODY) return (double)x->held * (double)(now - x->since_us + 1);
    bool replying = x->stage == SERVE_OPEN || x->stage == SERVE_SENDING;
    if (!replying || x->unsent_since_us == 0 || x->conn.out.cap <= SMALL_BYTES) return 0;
    return (double)x->conn.out.cap * (double)(now - x->unsent_since_us + 1);
}

static struct http_exchange *costliest_large(struct http_server *s)
{
    struct http_exchange *worst = NULL;
    double most = 0;
    LIST_EACH (&s->large, node) {
        struct http_exchange *x = CONTAINER_OF(node, struct http_exchange, large_node);
        double cost = cost_of(x);
        if (cost > most) worst = x, most = cost;
    }
    return worst;
}

static struct http_exchange *costliest_body(struct http_server *s)
{
    struct http_exchange *worst = NULL;
    double most = 0;
    LIST_EACH (&s->stage[SERVE_BODY], node) {
        struct http_exchange *x = CONTAINER_OF(node, struct http_exchange, node);
        double cost = x->held > FIRST_BYTES ? cost_of(x) : 0;
        if (cost > most) worst = x, most = cost;
    }
    return worst;
}

/* Makes an exchange give its memory up. A body is refused at once; a reply ends in its own task, because
 * its handler is told. */
static void give_up(struct http_exchange *x)
{
    if (x->stage == SERVE_BODY) {
        serve_refuse(x, HTTP_FAULT_MEMORY);
        return;
    }
    x->doomed_bytes = x->held;
    x->server->dooming_bytes += x->held;
    serve_touch(x);
}

/* Takes memory from the costliest until `more` fits into its share. Returns true when it fits the whole
 * bound. */
static bool make_room(struct http_server *s, size_t more)
{
    uint64_t most = s->limits.held_bytes_max;
    struct http_exchange *x;
    while (held_now(s) + more > most / 2 && (x = costliest_large(s)))
        give_up(x);
    while (held_now(s) + more > most && (x = costliest_body(s)))
        give_up(x);
    return held_now(s) + more <= most;
}

bool held_fits(struct http_exchange *x)
{
    struct http_server *s = x->server;
    if (s->counts.held_bytes <= s->limits.held_bytes_max / 2) return true;
    return make_room(s, 0) || x->held <= FIRST_BYTES;
}

bool held_reply_fits(struct http_server *s, size_t bytes)
{
    return bytes <= SMALL_BYTES || make_room(s, bytes);
}
