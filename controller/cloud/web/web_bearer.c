/* web_bearer.c - speaks to APIs that take one token as a bearer, and JSON. */
#include "controller/cloud/web/web_bearer.h"

#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_section.h"

#include <string.h>

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
