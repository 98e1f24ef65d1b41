/* tunnel.h - runs a tunnel over a connection: each of its streams is joined to a socket on either side.
 *
 * Layer:    base/io (tunnel_core, conn, loop)
 * Threads:  those of its loop
 * Use:      the end that opens gives tunnel_open one end of a socket pair; the end that accepts connects to where
 *           on_dial says. What one socket brings leaves by the other, so whoever holds a socket knows nothing of
 *           the tunnel
 * Begin:    the opener's socket gets TUNNEL_READY, one byte, when the other side is connected, and is closed
 *           without it when it is refused
 * Ends:     the end of a sending direction is passed on. A socket that is lost or closed whole, and the loss of
 *           the tunnel, close the socket on the other side
 * Alive:    a tunnel that brought nothing for ping_us is asked, and is lost after silence_us without a byte
 * Bounds:   streams_max; TUNNEL_WINDOW bytes of a stream and TUNNEL_HELD_BYTES_MAX of all that their sockets have
 *           not taken: the stream that goes beyond is cut (TUNNEL_RESET_FULL)
 */
#pragma once
#include "base/core/err.h"
#include "base/io/loop/loop.h"
#include "base/io/net/conn.h"
#include "base/io/tunnel/tunnel_core.h"

#define TUNNEL_PROTOCOL "muster-tunnel/1" /* in the upgrade header of HTTP */
#define TUNNEL_HOST "tunnel:" /* then a name: a host of http_client.h that is reached by a tunnel */
#define TUNNEL_READY '+'
#define TUNNEL_PING_US 5000000
#define TUNNEL_SILENCE_US 15000000
#define TUNNEL_HELD_BYTES_MAX ((size_t)64 << 20)

struct tunnel;

static inline bool tunnel_is_host(struct str host)
{
    return str_starts(host, STR(TUNNEL_HOST));
}

/* Returns the name in such a host. */
static inline struct str tunnel_name(struct str host)
{
    const size_t skip = sizeof TUNNEL_HOST - 1;
    return str_of(host.data + skip, host.len - skip);
}

/* Where a stream leads. */
struct tunnel_target {
    struct addr addr;
    struct tls *tls; /* borrowed; NULL: plain */
    struct str host; /* for the certificate */
};

struct tunnel_config {
    struct loop *loop;
    bool opens;
    uint32_t streams_max;
    int64_t ping_us, silence_us; /* 0: the defaults above */
    /* Acceptor: says where a stream to `port` leads; false: it is refused. */
    bool (*on_dial)(void *arg, uint16_t port, struct tunnel_target *ret);
    /* The tunnel is lost; `why` is a sentence. Called once, from a task; tunnel_free may be called in it. */
    void (*on_lost)(void *arg, const char *why);
    void *arg;
};

/* Takes over a connection whose handshakes are done, with the bytes that it has received and not sent yet. On
 * failure, -ENOMEM, it stays the caller's. */
int tunnel_new(const struct tunnel_config *config, struct conn *conn, struct tunnel **ret,
               struct err *err);
void tunnel_free(
    struct tunnel *l); /* not inside on_dial; closes all sockets; on_lost is not called */

/* Opens a stream to `port` for `fd`, which is taken over, also on failure: -ENOSPC, -ENOMEM, -EPIPE (lost). */
int tunnel_open(struct tunnel *l, uint16_t port, int fd_owned);

uint32_t tunnel_streams(const struct tunnel *l); /* open now */

struct tunnel_counts {
    uint64_t opened; /* streams, or accepted */
    uint64_t reset[TUNNEL_RESET_COUNT];
    uint64_t bytes_in, bytes_out; /* of the connection, above TLS */
};
void tunnel_counts_get(const struct tunnel *l, struct tunnel_counts *ret);
