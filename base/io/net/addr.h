/* addr.h - converts the address of a socket (IPv4 or IPv6, with a port) from and to text.
 *
 * Layer:    base/io (base/core)
 * Lifetime: struct addr is a value without padding: it may be a map key
 * Names:    numeric hosts and "localhost" (127.0.0.1) are read from the text alone. Any other name asks
 *           the system's resolver and BLOCKS: use it at start, before a loop runs; on a loop resolver.h
 *           resolves names
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <sys/socket.h>

#define ADDR_TEXT_MAX 64 /* "[" + an IPv6 address with its zone + "]:" + port */

struct addr {
    uint8_t ip[16]; /* the first 4 for IPv4, the rest zero */
    uint32_t zone;  /* of a link-local IPv6 address */
    uint16_t port;
    uint16_t family; /* AF_INET or AF_INET6 */
};

/* Reads "10.0.0.1", "::1", "[::1]", "localhost"; never blocks. -EINVAL for anything else. */
int addr_from_literal(struct addr *ret, struct str host, uint16_t port);

/* Reads a host as addr_from_literal does, and resolves other names by the system's resolver (blocks;
 * first answer wins). -ENOENT when the name is not known. */
int addr_resolve(struct addr *ret, struct str host, uint16_t port, struct err *err);

/* Reads "host:port" or "[v6]:port" and calls addr_resolve. -EINVAL names the missing part. */
int addr_parse(struct addr *ret, struct str text, struct err *err);

socklen_t addr_to_sock(const struct addr *a, struct sockaddr_storage *ret);
void addr_from_sock(struct addr *ret, const struct sockaddr_storage *from);
bool addr_is_loopback(const struct addr *a);

/* Returns true if nobody on the way reads what is sent to a URL: it is https://, or http:// on this machine. */
bool addr_url_is_private(struct str url);

/* Writes "127.0.0.1" or "::1", with its zone. */
void addr_host(const struct addr *a, char ret[ADDR_TEXT_MAX]);

/* Writes "127.0.0.1:8080" or "[::1]:8080". Returns the length. */
size_t addr_text(const struct addr *a, char ret[ADDR_TEXT_MAX]);
