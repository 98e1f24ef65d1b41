/* http_peers.h - counts and limits connections per client address.
 *
 * Layer:    base/io (base/core)
 * Threads:  the server's
 * Address:  an IPv4 address, or the /64 that an IPv6 address lies in: a household or a machine has a
 *           /64 and can use any address in it
 * Trusted:  loopback and the networks of configured proxies, which carry all clients and have a
 *           bound of their own
 */
#pragma once
#include "base/core/err.h"
#include "base/core/map.h"
#include "base/io/net/addr.h"

#define HTTP_PROXIES_MAX 64

struct http_net { /* addresses that agree with `base` in the first `bits` */
    struct addr base;
    uint32_t bits;
};

/* Reads a network: "10.0.0.0/8", "10.1.2.3", "fd00::/8"; -EINVAL with a sentence. */
int http_net_parse(struct http_net *ret, struct str text, struct err *err);
bool http_net_has(const struct http_net *n, const struct addr *a);

struct http_peers {
    struct map count; /* connections by address */
    uint32_t each_max, trusted_max;
    struct http_net proxies[HTTP_PROXIES_MAX];
    uint32_t proxy_count;
};

/* Makes an empty table, which `connections_max` bounds. The hash is keyed from the system's random
 * numbers, because strangers choose their addresses. */
void http_peers_init(struct http_peers *p, uint32_t connections_max, uint32_t each_max,
                     uint32_t trusted_max);
void http_peers_fini(struct http_peers *p);

/* Counts a connection of `a`: 0; -EDQUOT when it has as many as it may; -ENOMEM. */
int http_peers_enter(struct http_peers *p, const struct addr *a);
void http_peers_leave(struct http_peers *p, const struct addr *a); /* after an enter that was 0 */
