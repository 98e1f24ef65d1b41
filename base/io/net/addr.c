/* addr.c - converts text to an address and back; getaddrinfo is called for names only. */
#include "base/io/net/addr.h"

#include "base/core/bits.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

#define HOST_TEXT_MAX 256 /* a DNS name has at most 253 bytes */

static bool host_text(struct str host, char ret[HOST_TEXT_MAX])
{
    if (host.len >= 2 && host.data[0] == '[' && host.data[host.len - 1] == ']')
        host = str_of(host.data + 1, host.len - 2);
    if (host.len == 0 || host.len >= HOST_TEXT_MAX || memchr(host.data, 0, host.len)) return false;
    memcpy(ret, host.data, host.len);
    ret[host.len] = 0;
    return true;
}

/* Returns the number of an interface, given by name or by number as addr_text writes it; 0: none. */
static uint32_t zone_of(const char *text)
{
    uint64_t number;
    uint32_t named = if_nametoindex(text);
    if (named > 0 || str_to_u64(str_from(text), &number) < 0 || number > UINT32_MAX) return named;
    return (uint32_t)number;
}

int addr_from_literal(struct addr *ret, struct str host, uint16_t port)
{
    char text[HOST_TEXT_MAX];
    if (!host_text(host, text)) return -EINVAL;
    if (str_eq_nocase(host, STR("localhost"))) memcpy(text, "127.0.0.1", sizeof "127.0.0.1");

    struct addr a = { .port = port };
    char *zone = strchr(text, '%');
    if (zone) {
        *zone = 0;
        a.zone = zone_of(zone + 1);
        if (a.zone == 0) return -EINVAL;
    }
    if (!zone && inet_pton(AF_INET, text, a.ip) == 1)
        a.family = AF_INET;
    else if (inet_pton(AF_INET6, text, a.ip) == 1)
        a.family = AF_INET6;
    else
        return -EINVAL;
    *ret = a;
    return 0;
}

int addr_resolve(struct addr *ret, struct str host, uint16_t port, struct err *err)
{
    if (addr_from_literal(ret, host, port) == 0) return 0;
    char text[HOST_TEXT_MAX];
    if (!host_text(host, text))
        return err_set(err, -EINVAL, "\"" STR_FMT "\" is not a host name", STR_ARG(host));

    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int gai = getaddrinfo(text, NULL, &hints, &found);
    if (gai != 0) return err_set(err, -ENOENT, "host \"%s\": %s", text, gai_strerror(gai));
    struct sockaddr_storage ss = { 0 };
    memcpy(&ss, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    addr_from_sock(ret, &ss);
    ret->port = port;
    return 0;
}

int addr_parse(struct addr *ret, struct str text, struct err *err)
{
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':')
        colon--;
    uint64_t port;
    if (colon == 0 || str_to_u64(str_of(text.data + colon, text.len - colon), &port) < 0 ||
        port > UINT16_MAX)
        return err_set(err, -EINVAL,
                       "\"" STR_FMT "\" is not an address: write HOST:PORT, for example "
                       "127.0.0.1:8080 or [::1]:8080",
                       STR_ARG(text));
    return addr_resolve(ret, str_of(text.data, colon - 1), (uint16_t)port, err);
}

socklen_t addr_to_sock(const struct addr *a, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (a->family == AF_INET) {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(a->port) };
        memcpy(&in.sin_addr, a->ip, sizeof in.sin_addr);
        memcpy(ret, &in, sizeof in);
        return sizeof in;
    }
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
                                .sin6_port = htons(a->port),
                                .sin6_scope_id = a->zone };
    memcpy(&in6.sin6_addr, a->ip, sizeof in6.sin6_addr);
    memcpy(ret, &in6, sizeof in6);
    return sizeof in6;
}

void addr_from_sock(struct addr *ret, const struct sockaddr_storage *from)
{
    *ret = (struct addr){ .family = from->ss_family };
    if (from->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        memcpy(ret->ip, &in.sin_addr, sizeof in.sin_addr);
        ret->port = ntohs(in.sin_port);
    } else {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof in6);
        memcpy(ret->ip, &in6.sin6_addr, sizeof in6.sin6_addr);
        ret->port = ntohs(in6.sin6_port);
        ret->zone = in6.sin6_scope_id;
    }
}

bool addr_is_loopback(const struct addr *a)
{
    static const uint8_t v6[16] = { [15] = 1 };
    static const uint8_t v4_in_v6[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };
    if (a->family == AF_INET) return a->ip[0] == 127;
    return memcmp(a->ip, v6, sizeof v6) == 0 || memcmp(a->ip, v4_in_v6, sizeof v4_in_v6) == 0;
}

bool addr_url_is_private(struct str url)
{
    static const char *const here[] = { "127.0.0.1", "localhost", "[::1]" };
    if (str_starts(url, STR("https://"))) return true;
    if (!str_starts(url, STR("http://"))) return false;
    struct str host = str_of(url.data + 7, url.len - 7);
    for (size_t i = 0; i < host.len; i++)
        if (memchr("/?#", host.data[i], 3)) host.len = i;
    if (str_find(host, STR("@")) != SIZE_MAX) return false; /* the host stands behind it */
    for (size_t i = 0; i < COUNT_OF(here); i++) {
        struct str name = str_from(here[i]);
        if (str_starts(host, name) && (host.len == name.len || host.data[name.len] == ':'))
            return true;
    }
    return false;
}

void addr_host(const struct addr *a, char ret[ADDR_TEXT_MAX])
{
    if (!inet_ntop(a->family, a->ip, ret, ADDR_TEXT_MAX)) memcpy(ret, "?", 2);
    size_t len = strlen(ret);
    if (a->zone) snprintf(ret + len, ADDR_TEXT_MAX - len, "%%%u", a->zone);
}

size_t addr_text(const struct addr *a, char ret[ADDR_TEXT_MAX])
{
    char host[ADDR_TEXT_MAX];
    addr_host(a, host);
    int len = snprintf(ret, ADDR_TEXT_MAX, a->family == AF_INET ? "%.50s:%u" : "[%.50s]:%u", host,
                       a->port);
    return (size_t)len;
}
