/* f_addr.c - reads any text as a host and as HOST:PORT: it is refused or gives an address, which is
 * read as the same one after it was written out. Names end at the wrapped getaddrinfo; no resolver is
 * asked. */
#include "base/io/net/addr.h"
#include "tests/fuzz/fuzz.h"

#include <netdb.h>

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret);

/* Refuses every name; a name that reaches the resolver has the form of one. */
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret)
{
    (void)hints, (void)ret;
    must(name && name[0] && strlen(name) < 256 && !service);
    return EAI_NONAME;
}

static bool same(const struct addr *a, const struct addr *b)
{
    return memcmp(a->ip, b->ip, sizeof a->ip) == 0 && a->zone == b->zone && a->port == b->port &&
           a->family == b->family;
}

static void check(const struct addr *a)
{
    must(a->family == AF_INET || a->family == AF_INET6);
    struct addr back;
    struct sockaddr_storage ss;
    must(addr_to_sock(a, &ss) <= sizeof ss);
    addr_from_sock(&back, &ss);
    must(same(a, &back));

    char text[ADDR_TEXT_MAX];
    size_t len = addr_text(a, text);
    must(len == strlen(text) && len < sizeof text);
    struct err err = { 0 };
    must(addr_parse(&back, str_of(text, len), &err) == 0);
    must(same(a, &back));
}

/* Returns the number behind the last colon, read digit by digit; above UINT16_MAX: no port. */
static uint32_t port_of(struct str text)
{
    uint32_t port = 0;
    size_t at = text.len;
    while (at > 0 && text.data[at - 1] != ':')
        at--;
    for (; at < text.len && port <= UINT16_MAX; at++)
        port = text.data[at] >= '0' && text.data[at] <= '9'
                   ? port * 10 + (uint32_t)(text.data[at] - '0')
                   : UINT32_MAX;
    return port;
}

const struct fuzz_cost fuzz_cost = { 20000, 20 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str text = str_of(data, len);
    struct addr a;
    struct err err = { 0 };
    int rc = addr_parse(&a, text, &err);
    must(rc == 0 || err.text[0]);
    if (rc == 0) {
        must(a.port == port_of(text));
        check(&a);
    }
    if (addr_from_literal(&a, text, 8080) == 0) {
        must(a.port == 8080);
        check(&a);
    }
}
