/* store_redis_conn.h - connects to one server of Redis by TCP or a Unix socket, with TLS where it is asked for, and
 * moves bytes until a deadline.
 *
 * Layer:   base/io, private to store_redis_link.c
 * Threads: the store's owner's; a call blocks until the deadline at most
 * Rules:   (1) a failure closes the connection and says "store: Redis: WHERE: WHY"
 *          (2) with TLS the server's certificate must be for the name that was connected to, from the CAs of
 *              `tls`
 *          (3) a name is resolved by the system in a thread of its own, which may take longer than a call; its
 *              last good address is used meanwhile
 */
#pragma once
#include "base/core/err.h"
#include "base/io/net/addr.h"

#include <netdb.h>

#define REDIS_HOST_BYTES 256

struct tls;
struct tls_stream;

struct redis_host {
    char name[REDIS_HOST_BYTES];
    uint16_t port;
    struct addr known; /* last good address; family 0: none */
};

/* Stays where it is while a name is being resolved: the system writes to `question`. */
struct redis_conn {
    struct tls *tls;     /* the owner's; NULL: no TLS */
    int64_t deadline_us; /* of the calls that follow, on clock_mono_us; the owner sets it */

    bool open;
    int fd;
    struct tls_stream *stream;
    const char *at; /* the server's name, for messages: the host's or the path, which is borrowed */

    struct redis_host *asked; /* whose name is being resolved; NULL: none */
    struct gaicb question;
};

/* Returns true if the struct's memory may be freed; false while the system's resolver writes to it. */
bool redis_conn_fini(struct redis_conn *c);
void redis_conn_close(struct redis_conn *c);

/* Connects, and shakes hands where TLS is asked for. The connection must be closed. -ETIMEDOUT, -ECONNREFUSED,
 * -ENOENT (no such host), -EBUSY; of TLS -EKEYREJECTED (the server's certificate), -ENOKEY (ours), -EPROTO. */
int redis_conn_host(struct redis_conn *c, struct redis_host *h, struct err *err);
int redis_conn_path(struct redis_conn *c, const char *path, struct err *err);

/* Returns true if the host's name is under way, after a look at whether it has come. */
bool redis_conn_is_resolving(struct redis_conn *c, const struct redis_host *h);

/* Writes all bytes. -ECONNRESET: the connection was cut; -ETIMEDOUT; -ENOKEY as above. */
int redis_conn_write(struct redis_conn *c, const void *from, size_t bytes, struct err *err);

/* Reads some bytes, one at least. The same failures; TLS 1.3 tells first here that our certificate is not
 * accepted. */
int redis_conn_read(struct redis_conn *c, void *to, size_t bytes_max, size_t *ret, struct err *err);

/* Returns true if an idle connection was closed by the server, or has bytes that nobody asked for. */
bool redis_conn_was_cut(struct redis_conn *c);
