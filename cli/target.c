/* target.c - parse a server's URL and ask for its model. */
#include "cli/target.h"

#include "base/io/http/http_fetch.h"

#define TIMEOUT_US 10000000
#define REPLY_BYTES_MAX ((size_t)1 << 20)

static int parse(struct str url, struct target *ret, struct err *err)
{
    struct str rest = url;
    bool tls = tls_url_cut(&rest);
    if (rest.len == url.len) {
        return err_set(err, -EINVAL, "'" STR_FMT "': want http://HOST:PORT or https://HOST:PORT",
                       STR_ARG(url));
    }
    if (str_ends(rest, STR("/"))) rest.len--;
    uint64_t port = tls ? 443 : 80;
    struct str host = rest;
    size_t bracket = str_find(rest, STR("]"));
    if (rest.len > 0 && rest.data[0] == '[' && bracket != SIZE_MAX) {
        host = str_of(rest.data + 1, bracket - 1);
        rest = str_of(rest.data + bracket + 1, rest.len - bracket - 1);
        str_cut(&rest, ':');
    } else {
        host = str_cut(&rest, ':');
    }
    if (rest.len > 0 && (str_to_u64(rest, &port) < 0 || port < 1 || port > 65535)) {
        return err_set(err, -EINVAL, "'" STR_FMT "': the port is not in 1..65535", STR_ARG(url));
    }
    if (host.len == 0 || str_find(host, STR("/")) != SIZE_MAX) {
        return err_set(err, -EINVAL, "'" STR_FMT "': want http://HOST:PORT", STR_ARG(url));
    }
    *ret = (struct target){ .host = host, .port = (uint16_t)port, .tls = tls };
    return 0;
}

/* {"data": [{"id": "name", ...}]} */
static int first_id(struct str reply, struct buf *ret)
{
    struct json_reader r;
    json_reader_init(&r, reply);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "data")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_ARRAY || json_next(&r) != JSON_OBJECT) return -ENOENT;
        while (json_next(&r) == JSON_KEY) {
            if (json_key_is(&r, "id")) {
                json_next(&r);
                return json_text(&r, ret);
            }
            json_skip(&r);
        }
    }
    return -EINVAL;
}

int target_model(const struct target *t, struct str api_key, struct buf *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { .max = REPLY_BYTES_MAX };
    struct http_fetch_request req = { .host = t->host,
                                      .port = t->port,
                                      .tls = t->tls,
                                      .files = { .ca = t->ca },
                                      .path = STR("/v1/models"),
                                      .bearer = api_key,
                                      .timeout_us = TIMEOUT_US };
    int status;
    int rc = http_fetch(&req, &status, &reply, err);
    if (rc < 0) return rc;
    if (status != 200) {
        return err_set(err, -EPROTO, "/v1/models answered %d%s", status,
                       status == 401 ? "; give --api-key" : "");
    }
    rc = first_id(buf_view(&reply), ret);
    return rc < 0 ? err_set(err, rc, "/v1/models lists no model; is an instance ready?") : 0;
}

int target_find(const struct target_place *place, struct target *ret, struct buf *model,
                struct err *err)
{
    int rc = parse(place->url, ret, err);
    if (rc < 0) return rc;
    ret->ca = place->ca;
    if (place->model.len > 0) return buf_str(model, place->model);
    return target_model(ret, place->api_key, model, err);
}

void target_put_stream(struct json_writer *w)
{
    json_kv_bool(w, "stream", true);
    json_key(w, "stream_options");
    json_object(w);
    json_kv_bool(w, "include_usage", true);
    json_object_end(w);
}
