/* web_step.c - has what the steps of kinds share. */
#include "controller/cloud/web/web_step.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_section.h"

#include <string.h>

#define RETRY_AFTER_S_MAX 3600
#define SECRET_BYTES_MIN 6
#define MESSAGE_MAX 300 /* of a provider's own words in a sentence of ours */

/* ---- credentials ---- */

struct str web_environment(const struct web_host *host, struct str name)
{
    for (size_t i = 0; host->environ && host->environ[i]; i++) {
        struct str value = str_from(host->environ[i]), found = str_cut(&value, '=');
        if (str_eq(found, name)) return value.data ? value : STR("");
    }
    return (struct str){ 0 };
}

int web_credentials(const struct web_provider *p, struct web_op *op, struct str *ret,
                    struct err *err)
{
    const struct web_section *s = p->settings->section;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str found = { 0 };
    struct str variable =
        s->credentials_env.len > 0 ? s->credentials_env : str_from(p->kind->credentials_env);
    if (s->credentials_file.len > 0) {
        int rc = p->host->read_secret(p->host->ctx, s->credentials_file.data, &text, err);
        if (rc < 0) return err_prefix(err, rc, "credentials_file");
        found = buf_view(&text);
    } else if (variable.len > 0) {
        found = web_environment(p->host, variable);
    }
    while (found.len > 0 && (unsigned char)found.data[found.len - 1] <= ' ')
        found.len--;
    struct str copy = arena_str(op->arena, str_trim(found));
    if (text.data) explicit_bzero(text.data, text.len);
    if (!copy.data) return err_set(err, -ENOMEM, "no memory for credentials");
    *ret = copy;
    if (copy.len > 0) return 0;
    if (s->credentials_file.len > 0)
        return err_set(err, -EACCES, "no credentials: %s is empty", s->credentials_file.data);
    return err_set(err, -EACCES,
                   "no credentials: name a file as credentials_file, or set the variable " STR_FMT,
                   STR_ARG(variable));
}

/* ---- ends ---- */

int web_class_errno(enum offer_error class)
{
    static const int of[OFFER_ERROR_COUNT] = {
        [OFFER_CAPACITY] = -ENOSPC, [OFFER_QUOTA] = -EDQUOT,   [OFFER_THROTTLE] = -EBUSY,
        [OFFER_AUTH] = -EACCES,     [OFFER_INVALID] = -EINVAL, [OFFER_TRANSIENT] = -EIO
    };
    return of[class];
}

void web_refuse(struct web_step *ret, enum offer_error class, const char *format, ...)
{
    va_list ap;
    *ret = (struct web_step){ .next = WEB_END, .class = class, .rc = web_class_errno(class) };
    va_start(ap, format);
    err_vset(&ret->err, ret->rc, format, ap);
    va_end(ap);
}

void web_succeed(struct web_step *ret)
{
    *ret = (struct web_step){ .next = WEB_END };
}

struct str web_reply_header(const struct web_reply *r, const char *name)
{
    for (uint32_t i = 0; i < r->header_count; i++)
        if (str_eq_nocase(r->header[i].name, str_from(name))) return r->header[i].value;
    return (struct str){ 0 };
}

/* Returns the class of a status that comes without a known code. */
static enum offer_error class_of_status(const struct web_op *op, const struct web_reply *r,
                                        bool *ret_login_refused)
{
    static const struct {
        int status;
        enum offer_error class;
    } rows[] = {
        { 401, OFFER_AUTH },      { 403, OFFER_AUTH },     { 407, OFFER_AUTH },
        { 408, OFFER_TRANSIENT }, { 429, OFFER_THROTTLE }, { 503, OFFER_TRANSIENT },
    };
    *ret_login_refused = r->status == 401;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].status == r->status) return rows[i].class;
    /* A create that was refused in words that we do not know may have been made all the same. */
    if (op->kind == WEB_CREATE) return OFFER_TRANSIENT;
    return r->status >= 400 && r->status < 500 ? OFFER_INVALID : OFFER_TRANSIENT;
}

void web_refuse_reply(const struct web_provider *p, const struct web_op *op,
                      const struct web_reply *r, const struct web_code *codes, struct str code,
                      struct str message, struct web_step *ret)
{
    bool login_refused = false;
    enum offer_error class = OFFER_TRANSIENT;
    if (r->status == 0) {
        web_refuse(ret, class, "%s: " STR_FMT, web_op_names[op->kind], STR_ARG(r->problem));
        return;
    }
    const struct web_code *row = codes;
    while (row->code && !str_eq(code, str_from(row->code)))
        row++;
    login_refused = row->login_refused;
    class = row->code ? row->class : class_of_status(op, r, &login_refused);
    if (message.len > MESSAGE_MAX)
        message.len = str_utf8_complete(str_of(message.data, MESSAGE_MAX));
    web_refuse(ret, class, "%s of %s: status %d%s" STR_FMT "%s" STR_FMT, web_op_names[op->kind],
               p->kind->name, r->status, code.len ? ", " : "", STR_ARG(code),
               message.len ? ": " : "", STR_ARG(message));
    ret->login_refused = login_refused;
    int64_t seconds;
    struct str after = web_reply_header(r, "retry-after");
    if (class == OFFER_THROTTLE && str_to_i64(after, &seconds) == 0 && seconds > 0)
        ret->wait_us = min_i64(seconds, RETRY_AFTER_S_MAX) * 1000000;
}

/* ---- requests ---- */

__attribute__((format(printf, 2, 0))) static struct str print(struct arena *a, const char *format,
                                                              va_list ap)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_vprintf(&text, format, ap);
    return text.rc < 0 ? (struct str){ 0 } : arena_str(a, buf_view(&text));
}

static int no_memory(struct web_step *ret)
{
    web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    return -ENOMEM;
}

int web_ask(struct web_op *op, struct web_step *ret, const char *method, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    struct str url = print(op->arena, format, ap);
    va_end(ap);
    if (!url.data) return no_memory(ret);
    *ret = (struct web_step){ .next = WEB_ASK, .ask = { .method = str_from(method), .url = url } };
    return 0;
}

int web_ask_header(struct web_op *op, struct web_step *ret, const char *name, const char *format,
                   ...)
{
    va_list ap;
    must(ret->next == WEB_ASK && ret->ask.header_count < WEB_HEADERS_MAX);
    va_start(ap, format);
    struct str value = print(op->arena, format, ap);
    va_end(ap);
    if (!value.data) return no_memory(ret);
    ret->ask.header[ret->ask.header_count++] = (struct web_header){ str_from(name), value };
    return 0;
}

int web_ask_body(struct web_op *op, struct web_step *ret, const char *content_type,
                 const struct buf *body)
{
    struct str copy = body->rc < 0 ? (struct str){ 0 } : arena_str(op->arena, buf_view(body));
    must(ret->next == WEB_ASK);
    if (!copy.data) return no_memory(ret);
    ret->ask.body = copy;
    ret->ask.content_type = str_from(content_type);
    return 0;
}

int web_url_part(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        if (plain)
            buf_byte(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
    return out->rc;
}

void web_blot(char *text, size_t len, struct str secret)
{
    if (secret.len < SECRET_BYTES_MIN) return;
    for (size_t at = 0; at + secret.len <= len;) {
        size_t found = str_find(str_of(text + at, len - at), secret);
        if (found == SIZE_MAX) return;
        memset(text + at + found, '*', secret.len);
        at += found + secret.len;
    }
}

void web_text_copy(char *to, size_t bytes, struct str from)
{
    if (from.len >= bytes) from.len = str_utf8_complete(str_of(from.data, bytes - 1));
    if (from.len > 0) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

/* ---- one token as a bearer, and JSON ---- */

void web_bearer_login(struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    struct err err = { 0 };
    struct str token;
    int rc = web_credentials(p, op, &token, &err);
    if (rc < 0) {
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err.text);
        return;
    }
    for (size_t i = 0; i < token.len; i++)
        if (token.data[i] <= ' ' || token.data[i] > '~') {
            web_refuse(ret, OFFER_AUTH, "the credentials are no token: one line without blanks");
            return;
        }
    if (web_login_set(&p->login.token, token) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a token");
    else
        web_succeed(ret);
}

int web_bearer_ask(const struct web_provider *p, struct web_op *op, const char *method,
                   const struct buf *path, struct web_step *ret)
{
    if (path->rc < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
        return -ENOMEM;
    }
    int rc = web_ask(op, ret, method, STR_FMT STR_FMT, STR_ARG(p->settings->endpoint),
                     STR_ARG(buf_view(path)));
    return rc < 0 ? rc : web_ask_header(op, ret, "authorization", "Bearer %s", p->login.token);
}

int web_bearer_send(const struct web_provider *p, struct web_op *op, const char *method,
                    const struct buf *path, struct buf *body, struct web_step *ret)
{
    int rc = web_bearer_ask(p, op, method, path, ret);
    if (rc == 0) rc = web_ask_body(op, ret, "application/json", body);
    if (body->data) explicit_bzero(body->data, body->len);
    return rc;
}

struct str web_text_at(struct arena *arena, struct str json, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, path, &text) < 0) return (struct str){ 0 };
    return arena_str(arena, buf_view(&text));
}

bool web_text_is(struct str json, const char *path, struct str want)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return json_path_text(json, path, &text) == 0 && str_eq(buf_view(&text), want);
}
