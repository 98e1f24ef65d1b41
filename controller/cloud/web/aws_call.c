/* aws_call.c - makes requests to Amazon's services.
 *
 * All requests are POSTs of a body: a signature then covers no query, whose order and escapes clients disagree on.
 *
 * The date that is signed is ours plus the skew that replies have shown. A service refuses a request that is minutes
 * off; the refusal has the service's date, and the login that follows it signs by that. */
#include "controller/cloud/web/aws_call.h"

#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/aws_sign.h"

#include <stdlib.h>

#define FORM_TYPE "application/x-www-form-urlencoded; charset=utf-8"
#define JSON_TYPE "application/x-amz-json-1.1"
/* Less is a reply's way, and within what services take. */
#define SKEW_US_MIN ((int64_t)60 * 1000000)

/* ---- forms ---- */

int aws_form(struct buf *out, const char *action, const char *version)
{
    return buf_printf(out, "Action=%s&Version=%s", action, version);
}

__attribute__((format(printf, 3, 0))) static int put(struct buf *out, struct str value,
                                                     const char *name, va_list ap)
{
    buf_byte(out, '&');
    buf_vprintf(out, name, ap);
    buf_byte(out, '=');
    return web_url_part(out, value);
}

int aws_put(struct buf *out, struct str value, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    int rc = put(out, value, name, ap);
    va_end(ap);
    return rc;
}

int aws_put_text(struct buf *out, const char *value, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    int rc = put(out, str_from(value), name, ap);
    va_end(ap);
    return rc;
}

/* ---- requests ---- */

static struct str host_of(struct str url)
{
    size_t at = str_find(url, STR("://"));
    struct str rest = at == SIZE_MAX ? url : str_of(url.data + at + 3, url.len - at - 3);
    return str_cut(&rest, '/');
}

static int sign(const struct web_provider *p, const struct aws_service *service, int64_t wall_us,
                struct web_step *ret, struct buf *out, char date[AWS_DATE_BYTES])
{
    const struct web_login *l = &p->login;
    const struct aws_header headers[] = { { STR("content-type"), ret->ask.content_type },
                                          { STR("x-amz-target"), service->target } };
    const struct aws_request req = { .method = STR("POST"),
                                     .host = host_of(service->endpoint),
                                     .header = headers,
                                     .header_count = service->target.len > 0 ? 2 : 1,
                                     .body = ret->ask.body,
                                     .region = service->region,
                                     .service = service->name };
    const struct aws_key key = { .id = str_from(l->key_id),
                                 .secret = str_from(l->key),
                                 .token = str_from(l->token) };
    aws_date(wall_us + l->skew_us, date);
    return aws_sign(&req, &key, date, out);
}

void aws_ask(const struct web_provider *p, struct web_op *op, const struct aws_service *service,
             const struct buf *body, int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf authorization = { 0 };
    char date[AWS_DATE_BYTES];
    const char *type = service->target.len > 0 ? JSON_TYPE : FORM_TYPE;
    if (web_ask(op, ret, "POST", STR_FMT "/", STR_ARG(service->endpoint)) < 0) return;
    if (web_ask_body(op, ret, type, body) < 0) return;
    if (sign(p, service, wall_us, ret, &authorization, date) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a signature");
        return;
    }
    bool done = web_ask_header(op, ret, "x-amz-date", "%s", date) == 0 &&
                web_ask_header(op, ret, "authorization", "%s", authorization.data) == 0;
    if (done && p->login.token && p->login.token[0])
        done = web_ask_header(op, ret, "x-amz-security-token", "%s", p->login.token) == 0;
    if (done && service->target.len > 0)
        web_ask_header(op, ret, "x-amz-target", STR_FMT, STR_ARG(service->target));
}

void aws_ask_unsigned(struct web_op *op, struct str endpoint, const struct buf *body,
                      struct web_step *ret)
{
    if (web_ask(op, ret, "POST", STR_FMT "/", STR_ARG(endpoint)) == 0)
        web_ask_body(op, ret, FORM_TYPE, body);
}

/* ---- replies ---- */

void aws_learn_clock(struct web_provider *p, const struct web_reply *r, int64_t wall_us)
{
    int64_t date_us;
    if (date_parse_http(web_reply_header(r, "date"), &date_us) < 0) return;
    int64_t skew_us = date_us - wall_us;
    p->login.skew_us = llabs(skew_us) < SKEW_US_MIN ? 0 : skew_us;
}

struct words {
    struct str code, message;
};

static struct str keep(const struct web_op *op, struct str text)
{
    return text.len > 0 ? arena_str(op->arena, text) : (struct str){ 0 };
}

/* {"__type": "com.amazon...#Code", "Message": "..."}. */
static struct words read_json(const struct web_op *op, struct str body)
{
    CLEANUP(buf_fini) struct buf type = { 0 };
    CLEANUP(buf_fini) struct buf message = { 0 };
    if (json_path_text(body, "__type", &type) < 0) return (struct words){ 0 };
    if (json_path_text(body, "message", &message) < 0) json_path_text(body, "Message", &message);
    struct str rest = buf_view(&type);
    size_t at = str_find(rest, STR("#"));
    if (at != SIZE_MAX) rest = str_of(rest.data + at + 1, rest.len - at - 1);
    return (struct words){ keep(op, rest), keep(op, buf_view(&message)) };
}

/* EC2 writes <Response><Errors><Error>, others <ErrorResponse><Error>. */
static struct words read_words(const struct web_op *op, const struct web_reply *r)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (r->body.len > 0 && r->body.data[0] == '{') return read_json(op, r->body);
    arena_init(&tree, AWS_TREE_BYTES);
    if (r->body.len == 0 || xml_read(&tree, r->body, &root, NULL) < 0) return (struct words){ 0 };
    const struct xml_node *error = xml_at(root, "Errors.Error");
    if (!error) error = xml_at(root, "Error");
    return (struct words){ keep(op, xml_text(error, "Code")),
                           keep(op, xml_text(error, "Message")) };
}

struct str aws_error_code(const struct web_op *op, const struct web_reply *r)
{
    return r->status >= 400 ? read_words(op, r).code : (struct str){ 0 };
}

void aws_refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                const struct web_code *codes, struct web_step *ret)
{
    struct words w = r->status > 0 ? read_words(op, r) : (struct words){ 0 };
    web_refuse_reply(p, op, r, codes, w.code, w.message, ret);
}
