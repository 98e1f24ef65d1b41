/* fetch_options.c - sets the options of a libcurl handle as a request asks: URL, proxy, TLS, method, headers.
 *
 * A proxy comes from the request, or from the environment that the client was given. libcurl would read the process's
 * own, so each handle is told its proxy, or that it has none. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/fetch_call.h"

#include <stdio.h>
#include <strings.h>

#define KEEPALIVE_S 30

/* Takes host and port from a URL; -EINVAL. libcurl writes IPv6 hosts in brackets, we do not. */
int fetch_endpoint_of(CURLU *url, struct fetch_endpoint *ret)
{
    char *host = NULL, *port = NULL;
    uint64_t number = 0;
    int rc = -EINVAL;
    if (curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        str_to_u64(str_from(port), &number) == 0 && number > 0 && number <= UINT16_MAX) {
        struct str h = str_from(host);
        if (h.len > 2 && h.data[0] == '[') h = str_of(h.data + 1, h.len - 2);
        if (h.len > 0 && h.len < sizeof ret->host) {
            snprintf(ret->host, sizeof ret->host, STR_FMT, STR_ARG(h));
            ret->port = (uint16_t)number;
            rc = 0;
        }
    }
    curl_free(host);
    curl_free(port);
    return rc;
}

/* Writes "HOST:PORT" as libcurl wants it. */
void fetch_host_port(const char *host, uint16_t port, char *ret, size_t bytes)
{
    snprintf(ret, bytes, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

static struct str env_get(const char *const *environ, const char *name)
{
    size_t len = strlen(name);
    for (; environ && *environ; environ++)
        if (strncasecmp(*environ, name, len) == 0 && (*environ)[len] == '=')
            return str_from(*environ + len + 1);
    return (struct str){ 0 };
}

/* Returns true if no_proxy excepts the host: `*`, its name, or the end of its name after a dot. */
static bool is_excepted(struct str no_proxy, const char *host)
{
    struct str name = str_from(host);
    while (no_proxy.len > 0) {
        struct str part = str_trim(str_cut(&no_proxy, ','));
        if (str_eq(part, STR("*"))) return true;
        if (part.len > 0 && part.data[0] == '.') part = str_of(part.data + 1, part.len - 1);
        if (part.len == 0 || part.len > name.len) continue;
        size_t before = name.len - part.len;
        bool at_dot = before == 0 || name.data[before - 1] == '.';
        if (at_dot && str_eq_nocase(str_of(name.data + before, part.len), part)) return true;
    }
    return false;
}

static int proxy_user_set(struct fetch_call *call, CURLU *url)
{
    static const struct {
        CURLUPart part;
        CURLoption option;
    } rows[] = { { CURLUPART_USER, CURLOPT_PROXYUSERNAME },
                 { CURLUPART_PASSWORD, CURLOPT_PROXYPASSWORD } };
    CURLcode code = CURLE_OK;
    for (size_t i = 0; i < COUNT_OF(rows) && code == CURLE_OK; i++) {
        char *text = NULL;
        if (curl_url_get(url, rows[i].part, &text, CURLU_URLDECODE) == CURLUE_OK)
            code = curl_easy_setopt(call->easy, rows[i].option, text);
        curl_free(text);
    }
    return code == CURLE_OK ? 0 : -ENOMEM;
}

static int proxy_set(struct fetch_call *call, struct str text, struct err *err)
{
    char with_scheme[512], *scheme = NULL;
    bool bare = str_find(text, STR("://")) == SIZE_MAX;
    int n = snprintf(with_scheme, sizeof with_scheme, "%s" STR_FMT, bare ? "http://" : "",
                     STR_ARG(text));
    CURLU *url = curl_url();
    int rc = url ? -EINVAL : -ENOMEM;
    if (url && n < (int)sizeof with_scheme &&
        curl_url_set(url, CURLUPART_URL, with_scheme, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK && strcmp(scheme, "http") == 0)
        rc = fetch_endpoint_of(url, &call->proxy);
    if (rc == 0) rc = proxy_user_set(call, url);
    curl_free(scheme);
    curl_url_cleanup(url);
    if (rc == -EINVAL)
        return err_set(
            err, rc,
            "the proxy must be http://[user:password@]host[:port]; SOCKS and https proxies "
            "are not supported");
    return rc < 0 ? err_set(err, rc, "out of memory") : 0;
}

/* Decides whether the call goes through a proxy; call->to is its host. */
static int proxy_find(struct fetch_call *call, struct str asked, struct err *err)
{
    const char *const *environ = call->fetch->config.environ;
    bool tls = str_starts(str_from(call->target), STR("https://"));
    struct str proxy = asked;
    if (proxy.len == 0 && !is_excepted(env_get(environ, "no_proxy"), call->to.host))
        proxy = env_get(environ, tls ? "https_proxy" : "http_proxy");
    return proxy.len > 0 ? proxy_set(call, proxy, err) : 0;
}

static bool is_token(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c <= ' ' || c >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", c)) return false;
    }
    return s.len > 0;
}

static bool is_line(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] < ' ' && s.data[i] != '\t') return false;
    return true;
}

static int header_add(struct fetch_call *call, struct str name, struct str value, struct err *err)
{
    CLEANUP(buf_fini) struct buf line = { 0 };
    if (!is_token(name) || !is_line(value))
        return err_set(err, -EINVAL, "the header " STR_FMT " is not a header line",
                       STR_ARG(is_line(name) ? name : STR("?")));
    /* libcurl sends a header without a value only when it ends with ';'. */
    if (value.len > 0)
        buf_printf(&line, STR_FMT ": " STR_FMT, STR_ARG(name), STR_ARG(value));
    else
        buf_printf(&line, STR_FMT ";", STR_ARG(name));
    struct curl_slist *all =
        line.rc < 0 || FAULT("fetch.header") ? NULL : curl_slist_append(call->headers, line.data);
    if (!all) return err_set(err, -ENOMEM, "out of memory");
    call->headers = all;
    return 0;
}

int fetch_open_headers(struct fetch_call *call, struct err *err)
{
    return call->if_range[0] ? header_add(call, STR("If-Range"), str_from(call->if_range), err) : 0;
}

static int headers_set(struct fetch_call *call, const struct fetch_request *req, struct err *err)
{
    CLEANUP(buf_fini) struct buf bearer = { 0 };
    if (req->if_range.len >= sizeof call->if_range)
        return err_set(err, -EINVAL, "the validator is longer than %d bytes",
                       FETCH_VALIDATOR_BYTES - 1);
    if (req->if_range.len > 0)
        snprintf(call->if_range, sizeof call->if_range, STR_FMT, STR_ARG(req->if_range));
    int rc = fetch_open_headers(call, err);
    for (size_t i = 0; i < req->header_count && rc == 0; i++)
        rc = header_add(call, req->headers[i].name, req->headers[i].value, err);
    if (rc == 0 && req->content_type.len > 0)
        rc = header_add(call, STR("Content-Type"), req->content_type, err);
    if (rc == 0 && req->bearer.len > 0) {
        buf_printf(&bearer, "Bearer " STR_FMT, STR_ARG(req->bearer));
        rc = header_add(call, STR("Authorization"), buf_view(&bearer), err);
    }
    if (rc == 0 && req->body.len > 0) { /* without: libcurl would wait for 100 Continue */
        struct curl_slist *all = curl_slist_append(call->headers, "Expect:");
        if (!all) return err_set(err, -ENOMEM, "out of memory");
        call->headers = all;
    }
    if (rc == 0 && call->tls_name[0]) {
        char host[FETCH_HOST_BYTES + 16];
        fetch_host_port(call->to.host, call->to.port, host, sizeof host);
        rc = header_add(call, STR("Host"), str_from(host), err);
    }
    return rc;
}

/* Reads the URL into call->url, ->to and ->target. */
static int url_set(struct fetch_call *call, struct str text, struct err *err)
{
    CLEANUP(buf_fini) struct buf copy = { 0 };
    char *scheme = NULL, *path = NULL;
    buf_str(&copy, text);
    buf_byte(&copy, 0);
    call->url = curl_url();
    if (copy.rc < 0 || !call->url) return err_set(err, -ENOMEM, "out of memory");
    CURLUcode code = is_line(text) && memchr(text.data, 0, text.len) == NULL
                         ? curl_url_set(call->url, CURLUPART_URL, copy.data, CURLU_DISALLOW_USER)
                         : CURLUE_MALFORMED_INPUT;
    bool ok = code == CURLUE_OK &&
              curl_url_get(call->url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              (strcmp(scheme, "https") == 0 || strcmp(scheme, "http") == 0) &&
              curl_url_get(call->url, CURLUPART_PATH, &path, 0) == CURLUE_OK &&
              fetch_endpoint_of(call->url, &call->to) == 0;
    if (ok) {
        char at[FETCH_HOST_BYTES + 16];
        fetch_host_port(call->to.host, call->to.port, at, sizeof at);
        snprintf(call->target, sizeof call->target, "%.8s://%s%.200s", scheme, at, path);
    }
    curl_free(scheme);
    curl_free(path);
    if (ok) return 0;
    if (code == CURLUE_USER_NOT_ALLOWED)
        return err_set(err, -EINVAL, "a URL may not hold a user or password");
    return err_set(err, -EINVAL, "\"" STR_FMT "\" is not an https:// or http:// URL with a host",
                   STR_ARG(text.len > 200 ? str_of(text.data, 200) : text));
}

static CURLcode text_option(CURL *easy, CURLoption option, struct str text)
{
    CLEANUP(buf_fini) struct buf copy = { 0 };
    if (text.len == 0) return CURLE_OK;
    if (buf_str(&copy, text) < 0) return CURLE_OUT_OF_MEMORY;
    return curl_easy_setopt(easy, option, copy.data);
}

static CURLcode blob_option(CURL *easy, CURLoption option, struct str pem)
{
    if (pem.len == 0) return CURLE_OK;
    struct curl_blob blob = { .data = (char *)(uintptr_t)pem.data,
                              .len = pem.len,
                              .flags = CURL_BLOB_COPY };
    return curl_easy_setopt(easy, option, &blob);
}

static CURLcode tls_set(struct fetch_call *call, const struct fetch_tls *t)
{
    CURL *e = call->easy;
    CURLcode code = CURLE_OK;
    if (t->name.len > 0) {
        snprintf(call->tls_name, sizeof call->tls_name, STR_FMT, STR_ARG(t->name));
        if (curl_url_set(call->url, CURLUPART_HOST, call->tls_name, 0) != CURLUE_OK)
            return CURLE_URL_MALFORMAT;
    }
    if (t->ca.len > 0 ||
        t->ca_file.len > 0) /* the folder of the system's CAs is a default of its own */
        code = curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    if (code == CURLE_OK && t->insecure) {
        code = curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (code == CURLE_OK) code = blob_option(e, CURLOPT_CAINFO_BLOB, t->ca);
    if (code == CURLE_OK) code = blob_option(e, CURLOPT_SSLCERT_BLOB, t->certificate);
    if (code == CURLE_OK) code = blob_option(e, CURLOPT_SSLKEY_BLOB, t->key);
    if (code == CURLE_OK && t->ca.len == 0) code = text_option(e, CURLOPT_CAINFO, t->ca_file);
    if (code == CURLE_OK && t->certificate.len == 0)
        code = text_option(e, CURLOPT_SSLCERT, t->certificate_file);
    if (code == CURLE_OK && t->key.len == 0) code = text_option(e, CURLOPT_SSLKEY, t->key_file);
    return code;
}

/* Hands the body out once. libcurl sends a request again on its own when a pooled connection is closed
 * without a byte of a reply; the server may have carried it out by then. It cannot rewind this function,
 * and so repeats no request whose body it has begun to send. */
static size_t on_curl_read(char *to, size_t size, size_t count, void *arg)
{
    struct fetch_call *call = arg;
    size_t len = min_size(size * count, call->sends.len - call->sent_bytes);
    if (len > 0) memcpy(to, call->sends.data + call->sent_bytes, len);
    call->sent_bytes += len;
    return len;
}

static CURLcode method_set(struct fetch_call *call, struct str body)
{
    CURL *e = call->easy;
    if (strcmp(call->method, "HEAD") == 0) return curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    if (strcmp(call->method, "GET") == 0 && body.len == 0)
        return curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    CURLcode code = CURLE_OK;
    if (body.len > 0 || strcmp(call->method, "POST") == 0) {
        if (buf_str(&call->sends, body) < 0) return CURLE_OUT_OF_MEMORY;
        code = curl_easy_setopt(e, CURLOPT_POST, 1L);
        if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_READFUNCTION, on_curl_read);
        if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_READDATA, call);
        if (code == CURLE_OK)
            code = curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
    }
    return code == CURLE_OK ? curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, call->method) : code;
}

/* Sets what every call has, and what the request says. */
static CURLcode options_set(struct fetch_call *call, const struct fetch_request *req)
{
    CURL *e = call->easy;
    long version = req->http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1;
    CURLcode code = CURLE_OK;
#define SET(option, value) \
    if (code == CURLE_OK) code = curl_easy_setopt(e, option, value)
    SET(CURLOPT_CURLU, call->url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, version);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(call->fetch->config.connect_us / 1000));
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    SET(CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_S);
    SET(CURLOPT_FRESH_CONNECT, req->fresh ? 1L : 0L);
    char range[32];
    snprintf(range, sizeof range, "%llu-", (unsigned long long)req->range_from);
    if (req->range_to > 0)
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)req->range_from,
                 (unsigned long long)req->range_to);
    if (req->range_from > 0 || req->range_to > 0) SET(CURLOPT_RANGE, range); /* libcurl copies it */
    SET(CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (!call->proxy.host[0]) SET(CURLOPT_PROXY, ""); /* "": not from the environment either */
    SET(CURLOPT_NOPROXY, "");
    SET(CURLOPT_HTTPHEADER, call->headers);
#undef SET
    return code;
}

/* Fills a new call; on failure the caller frees it. */
int fetch_call_fill(struct fetch_call *call, const struct fetch_request *req, struct err *err)
{
    static const struct fetch_tls none = { 0 };
    struct str method = req->method.len ? req->method : req->body.len ? STR("POST") : STR("GET");
    if (!is_token(method) || method.len >= sizeof call->method)
        return err_set(err, -EINVAL, "the method is not one of HTTP");
    snprintf(call->method, sizeof call->method, STR_FMT, STR_ARG(method));
    bool reads = str_eq(method, STR("GET")) || str_eq(method, STR("HEAD"));
    if (reads && !(req->tls && req->tls->name.len))
        call->redirects_left = min_u32(req->redirects_max, FETCH_REDIRECTS_MAX);
    int rc = url_set(call, req->url, err);
    if (rc < 0) return rc;
    call->easy = FAULT("fetch.easy") ? NULL : curl_easy_init();
    if (!call->easy) return err_set(err, -ENOMEM, "out of memory");
    rc = proxy_find(call, req->proxy, err);
    if (rc < 0) return rc;
    CURLcode code = tls_set(call, req->tls ? req->tls : &none);
    if (code == CURLE_OK) code = method_set(call, req->body);
    if (code == CURLE_OK) rc = headers_set(call, req, err);
    if (rc < 0) return rc;
    if (code == CURLE_OK) code = options_set(call, req);
    if (code == CURLE_OUT_OF_MEMORY) return err_set(err, -ENOMEM, "out of memory");
    return code == CURLE_OK ? 0 : err_set(err, -EINVAL, "%s", curl_easy_strerror(code));
}
