/* conn.h - reads and writes a byte stream over a non-blocking socket, with a buffer for each direction.
 *
 * Layer:    base/io (base/core, tls)
 * Threads:  its owner's
 * Lifetime: { .fd = -1 } is a closed one; conn_close closes and frees, and may be called again
 * TLS:      a conn with `tls` set begins with a handshake; above conn.c it is like any other
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/net/addr.h"
#include "base/io/net/tls.h"

#define CONN_KEEP_BYTES 16384 /* of an empty buffer; more is given back by conn_trim */
#define CONN_READ_MIN 1024    /* conn_read asks for no less, unless it was asked for less */

struct conn {
    int fd;
    struct tls_stream *tls; /* NULL: plain */
    struct buf in;          /* received, not consumed */
    struct buf out;         /* from out_pos on: to be sent */
    size_t out_pos;
    uint64_t sent; /* bytes since the connection was made */
};

void conn_init(struct conn *c, int fd, size_t in_bytes_max, size_t out_bytes_max);
void conn_close(struct conn *c);

/* Closes the descriptor and keeps the buffers, which a caller may still read; conn_close follows. */
void conn_hang_up(struct conn *c);

void conn_drop_tls(struct conn *c); /* from here on plain */

/* Goes on with the handshake, like tls_handshake; returns 0 without TLS. */
int conn_handshake(struct conn *c);

/* Ends the sending direction; the peer sees the end of the stream. */
void conn_end(struct conn *c);

/* Receives at most `bytes_max` bytes, maybe fewer than are there, and appends them to `in`. Returns the
 * count, 0 at the end of the stream, -EAGAIN when nothing is there, -E2BIG at the bound of `in`, or
 * another negative errno. */
ssize_t conn_read(struct conn *c, size_t bytes_max);

/* Receives into `to` instead; the same otherwise, but for -E2BIG. */
ssize_t conn_receive(struct conn *c, void *to, size_t bytes_max);

/* Sends as much of `out` as it can: 0 when nothing is left, -EAGAIN when some is, or another errno. */
int conn_flush(struct conn *c);

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len - c->out_pos;
}

/* Returns true when the handshake or a read must wait until there is room to send. */
static inline bool conn_read_waits_to_write(const struct conn *c)
{
    return c->tls && tls_wants_write(c->tls);
}

/* Returns true when received bytes are there that no event announces: read before waiting. */
static inline bool conn_pending(const struct conn *c)
{
    return c->tls && tls_pending(c->tls);
}

/* Gives back the memory of empty buffers that grew beyond CONN_KEEP_BYTES. */
void conn_trim(struct conn *c);

/* Returns a non-blocking socket that connects to `to` (often it is not connected yet), or -errno. */
int conn_connect(const struct addr *to);

/* Returns a listening socket, or -errno. Its options pass to the sockets that it accepts. */
int conn_listen(const struct addr *at, bool reuse_port);
