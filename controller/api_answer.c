/* api_answer.c - how a call ends: with a view, a refusal in words, or ok. */
#include "base/core/bits.h"
#include "controller/api_part.h"
#include "controller/control_metrics.h"

void api_answer(struct call *k, int status, const struct buf *body)
{
    if (body->rc < 0) {
        http_reply(k->x, 500, STR("application/json"),
                   STR("{\"error\":{\"code\":500,\"message\":\"the answer does not fit\"}}"));
        return;
    }
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, status, STR("application/json"), buf_view(body));
}

void api_refuse(struct call *k, int status, const char *reason, const char *message)
{
    struct api *a = k->api;
    if (a->control) {
        struct str label = str_from(reason);
        metric_inc(metric_series(control_metrics(a->control), CONTROL_M_REFUSED, &label));
    }
    uint64_t skipped;
    if (log_pass(&a->refused_limit, loop_now_us(a->loop), 1000000, &skipped))
        log_event(LOG_WARN, "refused", "path=%.*s peer=%.*s status=%d reason=%s skipped=%llu",
                  STR_ARG(k->req->path), STR_ARG(k->req->peer), status, message,
                  (unsigned long long)skipped);
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_i64(&w, "code", status);
    json_kv_text(&w, "reason", reason);
    json_kv_text(&w, "message", message);
    json_object_end(&w);
    json_object_end(&w);
    api_answer(k, status, &body);
}

void api_refuse_rc(struct call *k, int rc, const struct err *err)
{
    static const struct {
        int rc, status;
        const char *reason;
    } rows[] = {
        { -ENOENT, 404, "not_found" }, { -EEXIST, 409, "exists" }, { -EINVAL, 400, "invalid" },
        { -ERANGE, 400, "range" },     { -ENOSPC, 503, "full" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].rc == rc) {
            api_refuse(k, rows[i].status, rows[i].reason, err_text(err, rc));
            return;
        }
    api_refuse(k, 500, "failed", err_text(err, rc));
}

void api_done(struct call *k)
{
    buf_text(&k->api->out, "{\"ok\":true}");
    api_answer(k, 200, &k->api->out);
}

void api_tell_urgent(struct api *a)
{
    if (control_is_urgent(a->control)) a->config.on_urgent(a->config.arg);
}
