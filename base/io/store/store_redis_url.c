/* store_redis_url.c - reads the URL of a Redis.
 *
 * The schemes are a table; what follows them is hosts, or a path. A password is refused: it would stand in the list of
 * processes and in the configuration that commands show. */
#include "base/io/store/store_redis_url.h"

#include "base/core/bits.h"
#include "base/io/store/store.h"

#include <string.h>

#define SENTINEL_PORT 26379
#define REDIS_PORT 6379
#define DB_MAX 1000000

static int bad_url(struct str url, const char *what, struct err *err)
{
    return err_set(err, -EINVAL, "'" STR_FMT "': %s; want " STORE_REDIS_FORMS, STR_ARG(url), what);
}

static int take_text(char *to, size_t size, struct str from, struct str url, const char *what,
                     struct err *err)
{
    if (from.len == 0 || from.len >= size) return bad_url(url, what, err);
    memcpy(to, from.data, from.len);
    to[from.len] = 0;
    return 0;
}

static int take_host(struct redis_url *u, struct str text, struct str url, struct err *err)
{
    struct redis_host *h = &u->host[u->host_count];
    uint64_t port = u->sentinel ? SENTINEL_PORT : REDIS_PORT;
    if (u->host_count == REDIS_HOSTS_MAX) return bad_url(url, "too many hosts", err);
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':' && text.data[colon - 1] != ']')
        colon--;
    bool has_port = colon > 0 && text.data[colon - 1] == ':';
    if (has_port) {
        struct str number = str_of(text.data + colon, text.len - colon);
        if (str_to_u64(number, &port) < 0 || port < 1 || port > 65535)
            return bad_url(url, "the port is no number of 1 to 65535", err);
        text.len = colon - 1;
    }
    if (text.len > 2 && text.data[0] == '[' && text.data[text.len - 1] == ']')
        text = str_of(text.data + 1, text.len - 2);
    *h = (struct redis_host){ .port = (uint16_t)port };
    u->host_count++;
    return take_text(h->name, sizeof h->name, text, url, "a host is missing or too long", err);
}

static int take_db(struct redis_url *u, struct str text, struct str url, struct err *err)
{
    if (text.len == 0) return 0;
    if (str_to_u64(text, &u->db) == 0 && u->db <= DB_MAX) return 0;
    return bad_url(url, "the database is no number", err);
}

static int take_hosts(struct redis_url *u, struct str rest, struct str url, struct err *err)
{
    struct str hosts = str_cut(&rest, '/');
    size_t at = str_find(hosts, STR("@"));
    int rc = 0;
    if (at != SIZE_MAX) {
        struct str user = str_of(hosts.data, at);
        hosts = str_of(hosts.data + at + 1, hosts.len - at - 1);
        if (str_find(user, STR(":")) != SIZE_MAX)
            return bad_url(url, "a password belongs into controller.store_password_file", err);
        rc = take_text(u->user, sizeof u->user, user, url, "the user is empty or too long", err);
    }
    do {
        if (rc == 0) rc = take_host(u, str_cut(&hosts, ','), url, err);
    } while (rc == 0 && hosts.data);
    if (rc == 0 && u->sentinel)
        rc = take_text(u->master, sizeof u->master, str_cut(&rest, '/'), url,
                       "the master's name is missing", err);
    return rc < 0 ? rc : take_db(u, rest, url, err);
}

static int take_path(struct redis_url *u, struct str rest, struct str url, struct err *err)
{
    struct str path = str_cut(&rest, '?');
    if (rest.len > 0 && !str_starts(rest, STR("db=")))
        return bad_url(url, "only ?db=N is known", err);
    int rc = take_text(u->path, sizeof u->path, path, url, "the path is missing or too long", err);
    return rc < 0 || rest.len == 0 ? rc : take_db(u, str_of(rest.data + 3, rest.len - 3), url, err);
}

int redis_url_read(struct str url, struct redis_url *ret, struct err *err)
{
    static const struct {
        const char *scheme;
        bool path, sentinel, tls;
    } rows[] = {
        { "redis://", false, false, false },         { "rediss://", false, false, true },
        { "redis+unix://", true, false, false },     { "redis+sentinel://", false, true, false },
        { "rediss+sentinel://", false, true, true },
    };
    *ret = (struct redis_url){ 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str scheme = str_from(rows[i].scheme);
        if (!str_starts(url, scheme)) continue;
        struct str rest = str_of(url.data + scheme.len, url.len - scheme.len);
        ret->unix_socket = rows[i].path;
        ret->sentinel = rows[i].sentinel;
        ret->is_tls = rows[i].tls;
        return ret->unix_socket ? take_path(ret, rest, url, err) : take_hosts(ret, rest, url, err);
    }
    return err_set(err, -EINVAL,
                   "'" STR_FMT "': this is no store; want " STORE_REDIS_FORMS
                   ", or " STORE_KUBE_FORMS,
                   STR_ARG(url));
}
