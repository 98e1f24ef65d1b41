/* http_fetch.c - runs a private loop until one call has ended.
 *
 * The call runs through the same client as everything else: a second, blocking implementation
 * would have a second set of faults. */
#include "base/io/http/http_fetch.h"

#include "base/io/loop/clock.h"

#include <stdio.h>

struct fetch {
    int *ret_status;
    void (*on_head)(void *arg, const struct http_response *head);
    int (*on_data)(void *arg, struct str data);
    void *arg;
    struct signed_call *call;
    bool ended;
    enum http_end end;
    char problem[TLS_PROBLEM_BYTES];
    int stopped; /* what on_data returned */
};

static void fetch_head(void *arg, const struct http_response *head)
{
    struct fetch *f = arg;
    *f->ret_status = head->status;
    if (f->on_head) f->on_head(f->arg, head);
}

static void fetch_data(void *arg, struct str data)
{
    struct fetch *f = arg;
    f->stopped = f->on_data(f->arg, data);
    if (f->stopped) signed_call_cancel(f->call);
}

static void fetch_end(void *arg, enum http_end end)
{
    struct fetch *f = arg;
    f->ended = true;
    f->end = end;
    if (f->call) snprintf(f->problem, sizeof f->problem, "%s", signed_call_problem(f->call));
}

static int end_errno(enum http_end end)
{
    switch (end) {
    case HTTP_END_OK:
        return 0;
    case HTTP_END_CONNECT_FAILED:
        return -ECONNREFUSED;
    case HTTP_END_NAME:
        return -ENOENT;
    case HTTP_END_TLS:
        return -EKEYREJECTED;
    case HTTP_END_LOCAL:
        return -ENOBUFS;
    case HTTP_END_RESET_BEFORE_HEAD:
    case HTTP_END_RESET_AFTER_HEAD:
        return -ECONNRESET;
    case HTTP_END_TIMEOUT:
        return -ETIMEDOUT;
    case HTTP_END_MALFORMED:
        return -EPROTO;
    case HTTP_END_UNTRUSTED:
        return -EBADMSG;
    case HTTP_END_CANCELLED:
    case HTTP_END_COUNT:
        break;
    }
    return -ECANCELED;
}

static int fetch_run(const struct http_fetch_request *req, struct fetch *f, struct err *err)
{
    CLEANUP(loop_freep) struct loop *loop = NULL;
    CLEANUP(tls_freep) struct tls *tls = NULL;
    CLEANUP(signer_freep) struct signer *signer = NULL;
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    int rc = loop_new(&loop, err);
    if (rc == 0 && req->tls) rc = tls_client_new(&req->files, &tls, err);
    const struct http_client_config with = { .tls = tls };
    if (rc == 0) rc = http_client_new(loop, &with, &client, err);
    const struct signer_config config = { .loop = loop, .client = client, .secret = req->secret };
    if (rc == 0) rc = signer_new(&config, &signer, err);
    if (rc < 0) return rc;

    struct http_call_request call = { .host = req->host,
                                      .port = req->port,
                                      .tls = req->tls,
                                      .method = req->method,
                                      .path = req->path,
                                      .headers = req->headers,
                                      .header_count = req->header_count,
                                      .bearer = req->bearer,
                                      .body = req->body,
                                      .json = req->json,
                                      .on_head = fetch_head,
                                      .on_data = fetch_data,
                                      .on_end = fetch_end,
                                      .arg = f };
    if (req->timeout_us > 0) call.deadline_us = clock_mono_us() + req->timeout_us;
    f->call = signed_call_start(signer, &call, req->as, true, err);
    if (!f->call) return -EINVAL;
    while (rc == 0 && !f->ended && !f->stopped)
        rc = loop_turn(loop, -1);
    if (rc < 0) return err_set(err, rc, "waiting: %s", strerror(-rc));
    if (f->stopped) return f->stopped;
    rc = end_errno(f->end);
    if (rc == 0) return 0;
    return err_set(err, rc, STR_FMT ":%u: %s%s%s", STR_ARG(req->host), req->port,
                   http_end_text(f->end), f->problem[0] ? ": " : "", f->problem);
}

int http_fetch_stream(const struct http_fetch_request *req, int *ret_status,
                      void (*on_head)(void *arg, const struct http_response *head),
                      int (*on_data)(void *arg, struct str data), void *arg, struct err *err)
{
    must(on_data);
    struct fetch f = {
        .ret_status = ret_status, .on_head = on_head, .on_data = on_data, .arg = arg
    };
    return fetch_run(req, &f, err);
}

static int keep_data(void *arg, struct str data)
{
    return buf_str(arg, data);
}

int http_fetch(const struct http_fetch_request *req, int *ret_status, struct buf *ret_body,
               struct err *err)
{
    int rc = http_fetch_stream(req, ret_status, NULL, keep_data, ret_body, err);
    if (rc == -E2BIG)
        err_set(err, rc, STR_FMT ":%u: the reply is longer than the %zu bytes there is room for",
                STR_ARG(req->host), req->port, ret_body->max ? ret_body->max : BUF_BYTES_MAX);
    return rc;
}
