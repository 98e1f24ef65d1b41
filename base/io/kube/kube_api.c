/* kube_api.c - writes request targets and bodies of the Kubernetes API, and reads its errors and metadata.
 *
 * Lists are read in two passes, because the keys of a list may come in any order and the items are handed
 * out only when the whole list is known to be well-formed. */
#include "base/io/kube/kube_api.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

/* ---- targets ---- */

/* Kubernetes refuses "/" and "%" in names, and a server may clean "." and ".." away. */
static bool is_segment(struct str s)
{
    if (s.len == 0 || s.len >= KUBE_NAME_BYTES || str_eq(s, STR(".")) || str_eq(s, STR("..")))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] <= ' ' || strchr("/%?#\\\x7f", s.data[i])) return false;
    return true;
}

static void put_escaped(struct buf *out, struct str s)
{
    static const char plain[] = "-._~,=!()";
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (letter || (c && strchr(plain, c)))
            buf_byte(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

static int put_segment(struct buf *out, const char *what, struct str s, struct err *err)
{
    if (!is_segment(s))
        return err_set(err, -EINVAL, "\"" STR_FMT "\" is no %s",
                       STR_ARG(s.len > 80 ? str_of(s.data, 80) : s), what);
    buf_byte(out, '/');
    put_escaped(out, s);
    return 0;
}

int kube_target(const struct kube_resource *r, struct str ns, struct str name,
                const char *subresource, const struct kube_param *params, size_t count,
                struct buf *out, struct err *err)
{
    bool core = r->group[0] == 0;
    buf_printf(out, "/%s%s%s/%s", core ? "api" : "apis", core ? "" : "/", r->group, r->version);
    int rc = 0;
    if (r->cluster && ns.len > 0) return err_set(err, -EINVAL, "%s have no namespace", r->plural);
    if (!r->cluster && ns.len == 0 && name.len > 0)
        return err_set(err, -EINVAL, "a namespace is missing for %s " STR_FMT, r->plural,
                       STR_ARG(name));
    if (ns.len > 0) {
        buf_text(out, "/namespaces");
        rc = put_segment(out, "namespace", ns, err);
    }
    buf_printf(out, "/%s", r->plural);
    if (rc == 0 && name.len > 0) rc = put_segment(out, "object name", name, err);
    if (rc < 0) return rc;
    if (subresource && subresource[0]) buf_printf(out, "/%s", subresource);
    char before = '?';
    for (size_t i = 0; i < count; i++) {
        if (params[i].value.len == 0) continue;
        buf_byte(out, before);
        buf_printf(out, "%s=", params[i].name);
        put_escaped(out, params[i].value);
        before = '&';
    }
    return out->rc < 0 ? err_set(err, out->rc, "out of memory") : 0;
}

/* ---- errors ---- */

static const struct {
    const char *name;
    int code; /* the HTTP status that a reply with this reason has */
    int rc;
} reasons[KUBE_REASON_COUNT] = {
    [KUBE_NONE] = { "", 0, -EREMOTEIO },
    [KUBE_BAD_REQUEST] = { "BadRequest", 400, -EINVAL },
    [KUBE_UNAUTHORIZED] = { "Unauthorized", 401, -EACCES },
    [KUBE_FORBIDDEN] = { "Forbidden", 403, -EPERM },
    [KUBE_NOT_FOUND] = { "NotFound", 404, -ENOENT },
    [KUBE_METHOD_NOT_ALLOWED] = { "MethodNotAllowed", 405, -EINVAL },
    [KUBE_ALREADY_EXISTS] = { "AlreadyExists", 409, -EEXIST },
    [KUBE_CONFLICT] = { "Conflict", 409, -ESTALE },
    [KUBE_GONE] = { "Gone", 410, -ETIME },
    [KUBE_EXPIRED] = { "Expired", 410, -ETIME },
    [KUBE_TOO_LARGE] = { "RequestEntityTooLarge", 413, -E2BIG },
    [KUBE_INVALID] = { "Invalid", 422, -EINVAL },
    [KUBE_TOO_MANY_REQUESTS] = { "TooManyRequests", 429, -EBUSY },
    [KUBE_INTERNAL_ERROR] = { "InternalError", 500, -EREMOTEIO },
    [KUBE_SERVICE_UNAVAILABLE] = { "ServiceUnavailable", 503, -EREMOTEIO },
    [KUBE_SERVER_TIMEOUT] = { "ServerTimeout", 504, -EREMOTEIO },
    [KUBE_TIMEOUT] = { "Timeout", 504, -EREMOTEIO },
};

const char *kube_reason_name(enum kube_reason reason)
{
    return reasons[reason].name;
}

int kube_text(const struct json_reader *r, char *ret, size_t bytes)
{
    if (r->token == JSON_NULL) {
        ret[0] = 0;
        return 0;
    }
    if (r->token != JSON_STRING) return -EINVAL;
    CLEANUP(buf_fini) struct buf text = { .max = bytes - 1 };
    if (r->raw.len > 0 && json_text(r, &text) < 0) return text.rc < 0 ? text.rc : -EINVAL;
    /* A NUL would end the text early, so that two different names read equal. */
    if (text.len > 0 && memchr(text.data, 0, text.len)) return -EINVAL;
    if (text.len > 0) memcpy(ret, text.data, text.len);
    ret[text.len] = 0;
    return 0;
}

/* Returns true if the reader has just left the outermost object and nothing follows. */
static bool is_whole(struct json_reader *r)
{
    return r->token == JSON_OBJECT_END && json_next(r) == JSON_END;
}

/* Like kube_text, but cuts what does not fit. */
static int text_cut(const struct json_reader *r, char *ret, size_t bytes)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (r->token != JSON_STRING) return r->token == JSON_NULL ? 0 : -EINVAL;
    if (r->raw.len > 0 && json_text(r, &text) < 0) return -EINVAL;
    struct str s = buf_view(&text);
    if (s.len >= bytes) {
        s.len = bytes - 1;
        s.len = str_utf8_complete(s);
    }
    if (s.len > 0) memcpy(ret, s.data, s.len);
    ret[s.len] = 0;
    return 0;
}

static int read_causes(struct json_reader *r, struct kube_status *ret)
{
    if (json_next(r) == JSON_NULL) return 0;
    if (r->token != JSON_ARRAY) return -EINVAL;
    while (json_next(r) == JSON_OBJECT) {
        while (json_next(r) == JSON_KEY) {
            bool wanted = json_key_is(r, "reason") && ret->cause[0] == 0;
            if (!wanted)
                json_skip(r);
            else if (json_next(r), text_cut(r, ret->cause, sizeof ret->cause) < 0)
                return -EINVAL;
        }
        if (r->token != JSON_OBJECT_END) return -EINVAL;
    }
    return r->token == JSON_ARRAY_END ? 0 : -EINVAL;
}

static int read_details(struct json_reader *r, struct kube_status *ret)
{
    if (json_next(r) == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return -EINVAL;
    int rc = 0;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        if (json_key_is(r, "retryAfterSeconds"))
            json_next(r), rc = json_i64(r, &ret->retry_after_s);
        else if (json_key_is(r, "causes"))
            rc = read_causes(r, ret);
        else
            json_skip(r);
    }
    return rc == 0 && r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int kube_status_read(struct str json, struct kube_status *ret, struct err *err)
{
    struct json_reader r;
    struct kube_status s = { 0 };
    char kind[16] = "";
    int64_t code = 0;
    int rc = 0;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the reply");
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "kind"))
            json_next(&r), rc = text_cut(&r, kind, sizeof kind);
        else if (json_key_is(&r, "reason"))
            json_next(&r), rc = text_cut(&r, s.reason_text, sizeof s.reason_text);
        else if (json_key_is(&r, "message"))
            json_next(&r), rc = text_cut(&r, s.message, sizeof s.message);
        else if (json_key_is(&r, "code"))
            json_next(&r), rc = json_i64(&r, &code);
        else if (json_key_is(&r, "details"))
            rc = read_details(&r, &s);
        else
            json_skip(&r);
    }
    if (rc < 0 || !is_whole(&r)) return json_fail(&r, err, "the reply");
    if (strcmp(kind, "Status") != 0) return err_set(err, -EINVAL, "the reply is no Status object");
    for (int i = 1; i < KUBE_REASON_COUNT; i++)
        if (strcmp(reasons[i].name, s.reason_text) == 0) s.reason = (enum kube_reason)i;
    s.code = code >= 100 && code <= 999 ? (int)code : 0;
    s.retry_after_s = max_i64(0, min_i64(s.retry_after_s, KUBE_RETRY_AFTER_S_MAX));
    *ret = s;
    return 0;
}

void kube_status_of_code(int code, struct kube_status *ret)
{
    *ret = (struct kube_status){ .code = code };
    for (int i = KUBE_REASON_COUNT - 1; i > 0; i--)
        if (reasons[i].code == code) ret->reason = (enum kube_reason)i;
    /* 409 has two meanings; without a reason the careful one is that something differs. */
    if (code == 409) ret->reason = KUBE_CONFLICT;
    snprintf(ret->reason_text, sizeof ret->reason_text, "%s", reasons[ret->reason].name);
    snprintf(ret->message, sizeof ret->message, "HTTP status %d", code);
}

int kube_status_errno(const struct kube_status *s)
{
    if (s->reason != KUBE_NONE) return reasons[s->reason].rc;
    struct kube_status by_code;
    kube_status_of_code(s->code, &by_code);
    if (by_code.reason != KUBE_NONE) return reasons[by_code.reason].rc;
    return s->code >= 400 && s->code < 500 ? -EINVAL : -EREMOTEIO;
}

/* ---- objects ---- */

static int read_metadata(struct json_reader *r, struct kube_meta *ret)
{
    const struct {
        const char *name;
        char *to;
        size_t bytes;
    } rows[] = {
        { "name", ret->name, sizeof ret->name },
        { "namespace", ret->ns, sizeof ret->ns },
        { "uid", ret->uid, sizeof ret->uid },
        { "resourceVersion", ret->version, sizeof ret->version },
    };
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return -EINVAL;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        size_t i = 0;
        while (i < COUNT_OF(rows) && !json_key_is(r, rows[i].name))
            i++;
        if (i < COUNT_OF(rows)) {
            json_next(r);
            rc = kube_text(r, rows[i].to, rows[i].bytes);
        } else if (json_key_is(r, "generation")) {
            json_next(r);
            rc = json_i64(r, &ret->generation);
        } else if (json_key_is(r, "deletionTimestamp")) {
            ret->deleting = json_next(r) == JSON_STRING;
        } else {
            json_skip(r);
        }
    }
    return rc == 0 && r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int kube_meta_read(struct str object, struct kube_meta *ret, struct err *err)
{
    struct json_reader r;
    struct kube_meta meta = { 0 };
    bool found = false;
    json_reader_init(&r, object);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the object");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "metadata")) {
            json_skip(&r);
            continue;
        }
        if (found || read_metadata(&r, &meta) < 0)
            return json_fail(&r, err, "the object's metadata");
        found = true;
    }
    if (!is_whole(&r)) return json_fail(&r, err, "the object");
    if (!found) return err_set(err, -EINVAL, "the object has no metadata");
    *ret = meta;
    return 0;
}

static int read_list_metadata(struct json_reader *r, char ret_version[KUBE_VERSION_BYTES],
                              struct buf *ret_more)
{
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return -EINVAL;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        if (json_key_is(r, "resourceVersion"))
            json_next(r), rc = kube_text(r, ret_version, KUBE_VERSION_BYTES);
        else if (json_key_is(r, "continue"))
            rc = json_next(r) == JSON_NULL ? 0 : json_text(r, ret_more);
        else
            json_skip(r);
    }
    return rc == 0 && r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int kube_list_read(struct str list, void (*item)(void *arg, struct str object), void *arg,
                   char ret_version[KUBE_VERSION_BYTES], struct buf *ret_more, struct err *err)
{
    struct json_reader r;
    struct str items = { 0 };
    char version[KUBE_VERSION_BYTES] = "";
    bool has_metadata = false;
    int rc = 0;
    buf_clear(ret_more);
    json_reader_init(&r, list);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the list");
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "metadata"))
            rc = has_metadata ? -EINVAL : read_list_metadata(&r, version, ret_more),
            has_metadata = true;
        else if (json_key_is(&r, "items"))
            rc = items.data ? -EINVAL : json_raw_value(&r, &items);
        else
            json_skip(&r);
    }
    if (rc < 0 || !is_whole(&r)) return json_fail(&r, err, "the list");
    if (!has_metadata || !items.data)
        return err_set(err, -EINVAL, "the reply is no list: %s is missing",
                       has_metadata ? "items" : "metadata");
    if (version[0] == 0 && ret_more->len == 0)
        return err_set(err, -EINVAL, "the list has no resourceVersion");
    memcpy(ret_version, version, sizeof version);
    json_reader_init(&r, items);
    if (json_next(&r) == JSON_NULL) return 0;
    if (r.token != JSON_ARRAY) return err_set(err, -EINVAL, "items of the list is no array");
    while (json_next(&r) == JSON_OBJECT) {
        size_t begin = r.start;
        json_skip_rest(&r);
        item(arg, str_of(items.data + begin, r.pos - begin));
    }
    return r.token == JSON_ARRAY_END ? 0
                                     : err_set(err, -EINVAL, "an item of the list is no object");
}

static int read_replicas(struct json_reader *r, int64_t *ret)
{
    int rc = 0;
    if (json_next(r) == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return -EINVAL;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        if (json_key_is(r, "replicas"))
            json_next(r), rc = json_i64(r, ret);
        else
            json_skip(r);
    }
    return rc == 0 && r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int kube_scale_read(struct str scale, int64_t *ret_wanted, int64_t *ret_there, struct err *err)
{
    struct json_reader r;
    int64_t wanted = 0, there = 0; /* the API leaves zeros out */
    int rc = 0;
    json_reader_init(&r, scale);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the Scale");
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "spec"))
            rc = read_replicas(&r, &wanted);
        else if (json_key_is(&r, "status"))
            rc = read_replicas(&r, &there);
        else
            json_skip(&r);
    }
    if (rc < 0 || !is_whole(&r)) return json_fail(&r, err, "the Scale");
    *ret_wanted = wanted;
    *ret_there = there;
    return 0;
}

/* ---- bodies ---- */

static void put_delete_fields(struct json_writer *w, const struct kube_delete *d)
{
    static const char *const names[] = {
        [KUBE_BACKGROUND] = "Background", [KUBE_FOREGROUND] = "Foreground", [KUBE_ORPHAN] = "Orphan"
    };
    if (d->uid.len > 0 || d->version.len > 0) {
        json_key(w, "preconditions");
        json_object(w);
        if (d->uid.len > 0) json_kv_str(w, "uid", d->uid);
        if (d->version.len > 0) json_kv_str(w, "resourceVersion", d->version);
        json_object_end(w);
    }
    if (d->propagation != KUBE_DEFAULT) json_kv_text(w, "propagationPolicy", names[d->propagation]);
    if (d->grace_s > 0 || d->at_once)
        json_kv_i64(w, "gracePeriodSeconds", d->at_once ? 0 : d->grace_s);
}

void kube_put_delete(struct buf *out, const struct kube_delete *d)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "kind", "DeleteOptions");
    put_delete_fields(&w, d);
    json_object_end(&w);
}

void kube_put_eviction(struct buf *out, struct str ns, struct str name, const struct kube_delete *d)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "policy/v1");
    json_kv_text(&w, "kind", "Eviction");
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_str(&w, "name", name);
    json_kv_str(&w, "namespace", ns);
    json_object_end(&w);
    json_key(&w, "deleteOptions");
    json_object(&w);
    put_delete_fields(&w, d);
    json_object_end(&w);
    json_object_end(&w);
}

void kube_put_scale(struct buf *out, int64_t replicas)
{
    buf_printf(out, "{\"spec\":{\"replicas\":%lld}}", (long long)replicas);
}

/* ---- labels ---- */

#define LABEL_DIGEST_BYTES 4 /* eight digits, after a '-' */
#define LABEL_TEXT_MAX (KUBE_LABEL_BYTES - 1 - 2 * LABEL_DIGEST_BYTES - 1)

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_label_byte(char c)
{
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
}

static bool is_label(struct str text)
{
    if (text.len == 0 || text.len >= KUBE_LABEL_BYTES) return false;
    for (size_t i = 0; i < text.len; i++)
        if (!is_label_byte(text.data[i])) return false;
    return is_alphanumeric(text.data[0]) && is_alphanumeric(text.data[text.len - 1]);
}

void kube_label(struct str text, char ret[KUBE_LABEL_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    size_t n = 0;
    if (is_label(text)) {
        memcpy(ret, text.data, text.len);
        ret[text.len] = 0;
        return;
    }
    for (size_t i = 0; i < text.len && n < LABEL_TEXT_MAX; i++) {
        if (((unsigned char)text.data[i] & 0xc0) == 0x80) continue; /* one '-' a character */
        char c = is_label_byte(text.data[i]) ? text.data[i] : '-';
        if (n > 0 || is_alphanumeric(c)) ret[n++] = c;
    }
    while (n > 0 && !is_alphanumeric(ret[n - 1]))
        n--;
    if (n > 0) ret[n++] = '-';
    sha256(text.data, text.len, digest);
    hex_from(digest, LABEL_DIGEST_BYTES, ret + n);
}
