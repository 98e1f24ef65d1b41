/* http_peers.c - keeps a counter per address, in a map. */
#include "base/io/http/http_peers.h"

#include <string.h>

static uint32_t family_bits(const struct addr *a)
{
    return a->family == AF_INET ? 32 : 128;
}

int http_net_parse(struct http_net *ret, struct str text, struct err *err)
{
    struct str host = text;
    struct str bits = { 0 };
    size_t slash = str_find(text, STR("/"));
    if (slash != SIZE_MAX) {
        host = str_of(text.data, slash);
        bits = str_of(text.data + slash + 1, text.len - slash - 1);
    }
    uint64_t n = 0;
    struct http_net net = { 0 };
    int rc = addr_from_literal(&net.base, host, 0);
    if (rc == 0 && slash != SIZE_MAX) rc = str_to_u64(bits, &n);
    if (rc == 0 && n > family_bits(&net.base)) rc = -EINVAL;
    if (rc < 0)
        return err_set(err, -EINVAL, "'" STR_FMT "': want ADDRESS or ADDRESS/BITS", STR_ARG(text));
    net.bits = slash != SIZE_MAX ? (uint32_t)n : family_bits(&net.base);
    *ret = net;
    return 0;
}

bool http_net_has(const struct http_net *n, const struct addr *a)
{
    if (a->family != n->base.family) return false;
    uint32_t whole = n->bits / 8, rest = n->bits % 8;
    if (memcmp(a->ip, n->base.ip, whole) != 0) return false;
    uint8_t mask = (uint8_t)(0xff << (8 - rest));
    return rest == 0 || ((a->ip[whole] ^ n->base.ip[whole]) & mask) == 0;
}

struct peer_key {
    uint8_t ip[8];
    uint64_t family;
};

static struct peer_key key_of(const struct addr *a)
{
    struct peer_key k = { .family = a->family };
    memcpy(k.ip, a->ip, a->family == AF_INET ? 4 : 8);
    return k;
}

void http_peers_init(struct http_peers *p, uint32_t connections_max, uint32_t each_max,
                     uint32_t trusted_max)
{
    *p = (struct http_peers){ .each_max = each_max, .trusted_max = trusted_max };
    map_init(&p->count, sizeof(struct peer_key), sizeof(uint32_t), connections_max, MAP_FOREIGN);
}

void http_peers_fini(struct http_peers *p)
{
    map_fini(&p->count);
}

static bool is_trusted(const struct http_peers *p, const struct addr *a)
{
    if (addr_is_loopback(a)) return true;
    for (uint32_t i = 0; i < p->proxy_count; i++)
        if (http_net_has(&p->proxies[i], a)) return true;
    return false;
}

int http_peers_enter(struct http_peers *p, const struct addr *a)
{
    struct peer_key key = key_of(a);
    uint32_t *count = map_put(&p->count, &key, NULL);
    if (!count) return -ENOMEM;
    uint32_t most = is_trusted(p, a) ? p->trusted_max : p->each_max;
    if (*count >= most) return -EDQUOT; /* it is in the map already: the bound is at least 1 */
    ++*count;
    return 0;
}

void http_peers_leave(struct http_peers *p, const struct addr *a)
{
    struct peer_key key = key_of(a);
    uint32_t *count = map_get(&p->count, &key);
    must(count && *count > 0);
    if (--*count == 0) map_remove(&p->count, &key);
}
