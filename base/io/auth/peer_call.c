/* peer_call.c - keeps status and body of a signed call until it ends.
 *
 * The owner may start its next call from on_reply: the call that ends is taken out first. */
#include "base/io/auth/peer_call.h"

static void on_head(void *arg, const struct http_response *head)
{
    ((struct peer_call *)arg)->status = head->status;
}

static void on_data(void *arg, struct str data)
{
    buf_str(&((struct peer_call *)arg)->body, data); /* beyond the bound: rc */
}

static void on_end(void *arg, enum http_end end)
{
    struct peer_call *c = arg;
    c->problem = signed_call_problem(c->call); /* lives until on_end returns */
    c->call = NULL;
    c->on_reply(c, end);
}

int peer_call_start(struct peer_call *c, struct signer *s, const struct peer_question *q,
                    void (*on_reply)(struct peer_call *c, enum http_end end), struct err *err)
{
    must(!c->call);
    c->on_reply = on_reply;
    c->status = 0;
    c->problem = NULL;
    buf_clear(&c->body);
    c->body.max = q->reply_max;
    const struct http_call_request req = {
        .host = q->host,
        .port = q->port,
        .tls = q->tls,
        .path = q->path,
        .body = q->body,
        .json = q->body.len > 0,
        .deadline_us = q->deadline_us,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = c,
    };
    c->call = signed_call_start(s, &req, &q->as, false, err);
    return c->call ? 0 : -EINVAL;
}

void peer_call_cancel(struct peer_call *c)
{
    if (c->call) signed_call_cancel(c->call);
    c->call = NULL;
}

void peer_call_fini(struct peer_call *c)
{
    peer_call_cancel(c);
    buf_fini(&c->body);
}
