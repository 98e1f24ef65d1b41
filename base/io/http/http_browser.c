/* http_browser.c - compares Host, Origin and content type of a request with this server's names.
 *
 * An Origin is ours when it is the origin that the request itself was sent to (its authority is
 * the Host header, so that a forwarder may have any port), or when its host is one of our names and
 * its port, written out or the scheme's own, is the port that we listen at. A page at
 * http://localhost is therefore ours only for a server at port 80.
 */
#include "base/io/http/http_browser.h"

#include "base/core/bits.h"

#include <stdio.h>

static const struct browser_fault_info faults[BROWSER_FAULT_COUNT] = {
    [BROWSER_OK] = { 200, "ok", "" },
    [BROWSER_HOST] = { 403, "host",
                       "This name is not ours: call an address of this server, or add "
                       "the name to `hosts`." },
    [BROWSER_ORIGIN] = { 403, "origin", "Not for pages of another origin." },
    [BROWSER_TYPE] = { 415, "content_type", "Send the header 'Content-Type: application/json'." },
};

const struct browser_fault_info *browser_fault_info(enum browser_fault fault)
{
    return &faults[fault];
}

/* Splits "name", "name:80", "[::1]:80" into name and port; no port: 0. */
static struct str split_port(struct str authority, uint64_t *ret_port)
{
    size_t colon = authority.len;
    *ret_port = 0;
    while (colon > 0 && authority.data[colon - 1] != ':' && authority.data[colon - 1] != ']')
        colon--;
    if (colon == 0 || authority.data[colon - 1] == ']') return authority;
    uint64_t port;
    if (str_to_u64(str_of(authority.data + colon, authority.len - colon), &port) < 0)
        return authority;
    *ret_port = port;
    return str_of(authority.data, colon - 1);
}

static struct str bare(struct str host)
{
    bool v6 = str_starts(host, STR("[")) && str_ends(host, STR("]"));
    return v6 ? str_of(host.data + 1, host.len - 2) : host;
}

static bool name_is_ours(const struct http_names *n, struct str name)
{
    static const char *const always[] = { "localhost", "127.0.0.1", "::1" };
    name = bare(name);
    for (size_t i = 0; i < COUNT_OF(always); i++)
        if (str_eq_nocase(name, str_from(always[i]))) return true;
    if (n->own.len > 0 && str_eq_nocase(name, bare(n->own))) return true;
    for (size_t i = 0; i < n->host_count; i++)
        if (str_eq_nocase(name, bare(n->hosts[i]))) return true;
    return false;
}

bool browser_host_is_ours(const struct http_names *n, struct str host)
{
    uint64_t port;
    struct str name = split_port(host, &port);
    for (size_t i = 0; i < n->host_count; i++) /* also names with a port of their own */
        if (str_eq_nocase(host, n->hosts[i])) return true;
    return name.len > 0 && (port == 0 || port == n->port) && name_is_ours(n, name);
}

static bool origin_is_ours(const struct http_names *n, struct str origin, struct str host)
{
    static const struct {
        struct str prefix;
        uint64_t port;
    } schemes[] = { { { "http://", 7 }, 80 }, { { "https://", 8 }, 443 } };
    for (size_t i = 0; i < n->origin_count; i++)
        if (str_eq(origin, n->origins[i])) return true;
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        if (!str_starts(origin, schemes[i].prefix)) continue;
        size_t skip = schemes[i].prefix.len;
        struct str authority = str_of(origin.data + skip, origin.len - skip);
        uint64_t port;
        struct str name = split_port(authority, &port);
        if (str_eq_nocase(authority, host)) return true;
        return (port ? port : schemes[i].port) == n->port && name_is_ours(n, name);
    }
    return false; /* "null": a page without an origin */
}

static bool is_json(struct str type)
{
    struct str rest = type, name = str_trim(str_cut(&rest, ';'));
    return str_eq_nocase(name, STR("application/json"));
}

enum browser_fault browser_check_site(const struct http_names *n, const struct http_request *req)
{
    struct str origin = http_request_header(req, "origin");
    if (!browser_host_is_ours(n, req->host)) return BROWSER_HOST;
    if (origin.data && !origin_is_ours(n, origin, req->host)) return BROWSER_ORIGIN;
    return BROWSER_OK;
}

enum browser_fault browser_check(const struct http_names *n, const struct http_request *req)
{
    enum browser_fault fault = browser_check_site(n, req);
    bool reads = str_eq(req->method, STR("GET")) || str_eq(req->method, STR("HEAD")) ||
                 str_eq(req->method, STR("OPTIONS"));
    if (fault != BROWSER_OK || reads) return fault;
    return is_json(http_request_header(req, "content-type")) ? BROWSER_OK : BROWSER_TYPE;
}

bool browser_peer_is_local(const struct http_request *req)
{
    static const char *const added[] = { "forwarded",         "x-forwarded-for", "x-forwarded-host",
                                         "x-forwarded-proto", "x-real-ip",       "via" };
    for (size_t i = 0; i < COUNT_OF(added); i++)
        if (http_request_header(req, added[i]).data) return false;
    return str_starts(req->peer, STR("127.")) || str_starts(req->peer, STR("[::1]"));
}
