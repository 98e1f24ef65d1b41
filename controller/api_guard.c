/* api_guard.c - who may call: names that are ours, pages of ours, holders of the fleet's secret. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "controller/api_part.h"

#include <stdio.h>
#include <string.h>

/* "name:port" or "[v6]:port", the port being ours (or left out, behind a forwarder). */
static bool host_is_ours(const struct api *a, struct str host)
{
    char port[8];
    snprintf(port, sizeof port, ":%u", http_server_port(a->server));
    if (str_ends(host, str_from(port))) host.len -= strlen(port);
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        host = str_of(host.data + 1, host.len - 2);
    static const char *const always[] = { "localhost", "127.0.0.1", "::1" };
    for (size_t i = 0; i < COUNT_OF(always); i++)
        if (str_eq_nocase(host, str_from(always[i]))) return true;
    if (str_eq_nocase(host, str_from(a->config.host))) return true;
    for (size_t i = 0; i < a->config.host_count; i++)
        if (str_eq_nocase(host, a->config.hosts[i])) return true;
    return false;
}

static bool origin_is_ours(const struct api *a, struct str origin)
{
    static const char *const schemes[] = { "http://", "https://" };
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        struct str s = str_from(schemes[i]);
        if (str_starts(origin, s))
            return host_is_ours(a, str_of(origin.data + s.len, origin.len - s.len));
    }
    return false; /* "null" is a page from nowhere */
}

/* Digests are compared, so that neither content nor length shows in the time. */
static bool has_secret(const struct api *a, const struct http_request *req)
{
    struct str given = http_request_header(req, "authorization");
    if (given.len < 7 || !str_eq_nocase(str_of(given.data, 7), STR("bearer "))) return false;
    given = str_trim(str_of(given.data + 7, given.len - 7));
    uint8_t mine[SHA256_BYTES], theirs[SHA256_BYTES];
    sha256(a->config.secret.data, a->config.secret.len, mine);
    sha256(given.data, given.len, theirs);
    return equal_constant_time(mine, theirs, sizeof mine);
}

bool api_pass(struct call *k, enum guard guard)
{
    const struct api *a = k->api;
    struct str origin = http_request_header(k->req, "origin");
    if (!host_is_ours(a, k->req->host)) {
        api_refuse(k, 403, "host", "this name is not ours; see controller.hosts");
        return false;
    }
    if (origin.data && (guard == GUARD_FLEET || !origin_is_ours(a, origin))) {
        api_refuse(k, 403, "origin", "not for pages of another origin");
        return false;
    }
    if (guard == GUARD_NONE) return true;
    if ((guard == GUARD_FLEET || a->config.require_secret) && !has_secret(a, k->req)) {
        http_reply_header(k->x, "www-authenticate", STR("Bearer"));
        api_refuse(k, 401, "secret", "send the fleet's secret: authorization: Bearer SECRET");
        return false;
    }
    if (!a->control) {
        api_refuse(k, 503, "starting", "the controller is starting");
        return false;
    }
    return true;
}
