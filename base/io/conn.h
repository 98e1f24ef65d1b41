/* conn.h - a byte stream over a non-blocking socket: what came in, what waits to go out.
 *
 * Layer:    base/io (base/core)
 * Threads:  its owner's
 * Lifetime: { .fd = -1 } is a closed one; conn_close closes and frees, and may be called again
 * Later:    TLS and tunnels replace the two system calls in conn.c and nothing above it
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/addr.h"

#define CONN_KEEP_BYTES 16384 /* of an empty buffer; more is given back by conn_trim */

struct conn {
    int fd;
    struct buf in;  /* received, not consumed */
    struct buf out; /* from out_pos on: to be sent */
    size_t out_pos;
    uint64_t sent; /* bytes since the connection was made */
};

void conn_init(struct conn *c, int fd, size_t in_bytes_max, size_t out_bytes_max);
void conn_close(struct conn *c);

/* Appends at most `bytes_max` bytes, maybe fewer than are there, to `in`: the count, 0 at the end
 * of the stream, -EAGAIN when nothing is there, -E2BIG at the bound of `in`, or another negative
 * errno. */
ssize_t conn_read(struct conn *c, size_t bytes_max);

/* Sends what it can of `out`: 0 when nothing is left, -EAGAIN when some is, or another errno. */
int conn_flush(struct conn *c);

static inline size_t conn_unsent(const struct conn *c)
{
    return c->out.len - c->out_pos;
}

/* Gives back the memory of empty buffers that grew beyond CONN_KEEP_BYTES. */
void conn_trim(struct conn *c);

/* A non-blocking socket that is connecting to `to` (often it is not connected yet), or -errno. */
int conn_connect(const struct addr *to);

/* A listening socket, or -errno. Its options pass to the sockets that it accepts. */
int conn_listen(const struct addr *at, bool reuse_port);
