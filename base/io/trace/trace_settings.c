/* trace_settings.c - reads the section, the file of headers and OpenTelemetry's variables.
 *
 * Headers and resource attributes have one form there: name=value pairs, separated by commas, with values in
 * percent encoding. */
#include "base/io/trace/trace_settings.h"

#include "base/core/own.h"
#include "base/core/trace_context.h"
#include "base/io/file.h"
#include "base/io/http/http1.h"
#include "base/io/log.h"

#include <errno.h>

#define HEADERS_FILE_BYTES_MAX ((size_t)64 << 10)
#define TRACES_PATH "/v1/traces"
#define TIMEOUT_US 10000000 /* OpenTelemetry's default */
#define TIMEOUT_MS_MAX 600000

struct reading {
    const char *const *environ;
    struct arena *arena;
    struct trace_settings *to;
    struct err *err;
};

/* Returns the value of a variable; an empty one counts as unset, as the specification asks. */
static struct str variable(const struct reading *r, const char *name)
{
    size_t len = strlen(name);
    for (const char *const *e = r->environ; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return str_trim(str_from(*e + len + 1));
    return (struct str){ 0 };
}

/* Returns the variable for traces, else the one for all signals. */
static struct str otlp(const struct reading *r, const char *traces, const char *all)
{
    struct str value = variable(r, traces);
    return value.len > 0 ? value : variable(r, all);
}

static struct str join(const struct reading *r, struct str a, struct str b)
{
    char *text = arena_alloc(r->arena, a.len + b.len + 1);
    if (!text) return (struct str){ 0 };
    memcpy(text, a.data, a.len);
    memcpy(text + a.len, b.data, b.len);
    return str_of(text, a.len + b.len);
}

/* ---- endpoint ---- */

/* Adds the path of traces to a base URL. */
static struct str with_path(const struct reading *r, struct str base)
{
    while (base.len > 0 && base.data[base.len - 1] == '/')
        base.len--;
    return join(r, base, STR(TRACES_PATH));
}

static int read_url(struct reading *r, const struct trace_section *s)
{
    struct str url = s->endpoint, base = variable(r, "OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *from = "trace_endpoint";
    if (url.len > 0) {
        size_t host = str_find(url, STR("://"));
        struct str rest = host == SIZE_MAX ? url : str_of(url.data + host + 3, url.len - host - 3);
        size_t path = str_find(rest, STR("/"));
        if (path == SIZE_MAX || path == rest.len - 1) url = with_path(r, url);
    } else {
        from = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        url = variable(r, from);
        if (url.len == 0 && base.len > 0) {
            from = "OTEL_EXPORTER_OTLP_ENDPOINT";
            url = with_path(r, base);
        }
        if (url.len == 0 && base.len == 0) return 0; /* off */
    }
    if (!url.data) return err_set(r->err, -ENOMEM, "no memory for the URL of traces");
    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return err_set(r->err, -EINVAL, "%s: '" STR_FMT "': want http://HOST:PORT or https://...",
                       from, STR_ARG(url));
    r->to->url = url;
    r->to->on = true;
    return 0;
}

/* Returns true if the variables switch traces off. */
static bool is_off(const struct reading *r, bool asked_by_us)
{
    if (str_eq_nocase(variable(r, "OTEL_SDK_DISABLED"), STR("true"))) return true;
    if (asked_by_us) return false;
    if (str_eq(variable(r, "OTEL_TRACES_EXPORTER"), STR("none"))) return true;
    struct str protocol =
        otlp(r, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL");
    if (!str_eq(protocol, STR("grpc"))) return false; /* servers of http/protobuf take JSON too */
    log_event(LOG_WARN, "trace_protocol_unknown", "protocol=grpc why=%s",
              "only OTLP/JSON over HTTP is spoken: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to "
              "http/json and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to the collector's port for HTTP");
    return true;
}

/* ---- headers and resource attributes ---- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes percent encoding; a text with a malformed one stays as it is. */
static struct str decode(const struct reading *r, struct str s)
{
    char *text = arena_alloc(r->arena, s.len + 1);
    if (!text) return (struct str){ 0 };
    size_t to = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '%') {
            int high = i + 2 < s.len ? hex_of(s.data[i + 1]) : -1;
            int low = high >= 0 ? hex_of(s.data[i + 2]) : -1;
            if (low < 0) return s;
            c = (char)(high << 4 | low);
            i += 2;
        }
        text[to++] = c;
    }
    return str_of(text, to);
}

static int add(struct trace_pair *pair, uint32_t *count, uint32_t max, struct str name,
               struct str value)
{
    for (uint32_t i = 0; i < *count; i++)
        if (str_eq(pair[i].name, name)) return 0; /* the stronger source came first */
    if (*count == max) return -E2BIG;
    pair[(*count)++] = (struct trace_pair){ name, value };
    return 0;
}

static int add_header(struct reading *r, const char *from, struct str name, struct str value)
{
    struct trace_settings *to = r->to;
    if (!http_header_valid(name, value))
        return err_set(r->err, -EINVAL, "%s: a name or value is no header", from);
    if (add(to->header, &to->header_count, TRACE_HEADERS_MAX, name, value) < 0)
        return err_set(r->err, -E2BIG, "%s: more than %d headers", from, TRACE_HEADERS_MAX);
    return 0;
}

static int read_headers(struct reading *r)
{
    static const char name[] = "OTEL_EXPORTER_OTLP[_TRACES]_HEADERS";
    struct str rest = otlp(r, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
    while (rest.len > 0) {
        struct str value = str_cut(&rest, ','), key = str_trim(str_cut(&value, '='));
        if (key.len == 0) continue;
        struct str text = decode(r, str_trim(value));
        if (!text.data) return err_set(r->err, -EINVAL, "%s: want NAME=VALUE,...", name);
        int rc = add_header(r, name, key, text);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_headers_file(struct reading *r, struct str path)
{
    CLEANUP(buf_fini) struct buf file = { 0 };
    if (path.len == 0) return 0;
    int rc = file_check_private(path.data, r->err);
    if (rc == 0) rc = file_read(path.data, HEADERS_FILE_BYTES_MAX, &file, r->err);
    if (rc < 0) return err_prefix(r->err, rc, "trace_headers_file");
    struct str rest = arena_str(r->arena, buf_view(&file));
    if (!rest.data) return err_set(r->err, -ENOMEM, "trace_headers_file: no memory");
    while (rest.len > 0) {
        struct str value = str_cut(&rest, '\n');
        if (value.len > 0 && value.data[value.len - 1] == '\r') value.len--;
        value = str_trim(value);
        if (value.len == 0 || value.data[0] == '#') continue;
        struct str name = str_trim(str_cut(&value, ':'));
        if (!value.data)
            return err_set(r->err, -EINVAL, "trace_headers_file: want NAME: VALUE in each line");
        rc = add_header(r, "trace_headers_file", name, str_trim(value));
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_resource(struct reading *r)
{
    struct trace_settings *to = r->to;
    struct str rest = variable(r, "OTEL_RESOURCE_ATTRIBUTES");
    while (rest.len > 0) {
        struct str value = str_cut(&rest, ','), key = str_trim(str_cut(&value, '='));
        struct str text = key.len > 0 && value.data ? decode(r, str_trim(value)) : value;
        /* service.name has a variable of its own, which comes before. */
        if (str_eq(key, STR("service.name")) && text.data) {
            if (to->service_name.len == 0) to->service_name = text;
        } else if (key.len > 0 && text.data &&
                   add(to->resource, &to->resource_count, TRACE_RESOURCE_MAX, key, text) < 0) {
            return err_set(r->err, -E2BIG, "OTEL_RESOURCE_ATTRIBUTES: more than %d attributes",
                           TRACE_RESOURCE_MAX);
        }
    }
    return 0;
}

/* ---- the rest ---- */

static int read_sampler(struct reading *r, const struct trace_section *s)
{
    struct trace_settings *to = r->to;
    struct trace_sampler checked;
    struct str arg = variable(r, "OTEL_TRACES_SAMPLER_ARG");
    to->sampler = s->sampler;
    to->ratio = s->ratio;
    if (to->sampler.len == 0) {
        to->sampler = variable(r, "OTEL_TRACES_SAMPLER");
        /* The specification: a ratio that cannot be read counts as unset, which is 1. */
        if (to->sampler.len > 0 &&
            (str_to_f64(arg, &to->ratio) < 0 || to->ratio < 0 || to->ratio > 1))
            to->ratio = 1;
    }
    if (to->sampler.len == 0) to->sampler = STR("parentbased_traceidratio");
    int rc = trace_sampler_make(to->sampler, to->ratio, &checked, r->err);
    return rc < 0 ? err_prefix(r->err, rc, "trace_sampler") : 0;
}

static int read_timeout(struct reading *r)
{
    uint64_t ms;
    struct str text = otlp(r, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
    r->to->timeout_us = TIMEOUT_US;
    if (text.len == 0) return 0;
    if (str_to_u64(text, &ms) < 0 || ms == 0 || ms > TIMEOUT_MS_MAX)
        return err_set(r->err, -EINVAL,
                       "OTEL_EXPORTER_OTLP[_TRACES]_TIMEOUT: want milliseconds from 1 to %d",
                       TIMEOUT_MS_MAX);
    r->to->timeout_us = (int64_t)ms * 1000;
    return 0;
}

int trace_settings_read(const struct trace_section *s, const char *role, const char *const *environ,
                        struct arena *arena, struct trace_settings *ret, struct err *err)
{
    struct trace_settings made = { .on = false };
    struct reading r = { environ, arena, &made, err };
    int rc = is_off(&r, s->endpoint.len > 0) ? 0 : read_url(&r, s);
    if (rc == 0 && made.on) {
        made.ca = s->ca.len > 0 ? s->ca
                                : otlp(&r, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                                       "OTEL_EXPORTER_OTLP_CERTIFICATE");
        made.service_name = s->service_name;
        if (made.service_name.len == 0) made.service_name = variable(&r, "OTEL_SERVICE_NAME");
        rc = read_headers_file(&r, s->headers_file);
        if (rc == 0) rc = read_headers(&r);
        if (rc == 0) rc = read_resource(&r);
        if (rc == 0) rc = read_sampler(&r, s);
        if (rc == 0) rc = read_timeout(&r);
        if (made.service_name.len == 0) made.service_name = str_from(role);
    }
    if (rc == 0) *ret = made;
    return rc;
}
