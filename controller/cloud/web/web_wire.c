/* web_wire.c - makes a provider's requests through base/io/fetch. */
#include "controller/cloud/web/web_wire.h"

#include "base/core/bits.h"

int web_wire_start(struct fetch *f, const struct web_run *run, int64_t now_us, int64_t loop_now_us,
                   void (*on_end)(void *arg, const struct fetch_reply *reply), void *arg,
                   struct fetch_call **ret, struct err *err)
{
    const struct web_ask *a = &run->step.ask;
    struct fetch_header header[WEB_HEADERS_MAX];
    for (uint32_t i = 0; i < a->header_count; i++)
        header[i] = (struct fetch_header){ a->header[i].name, a->header[i].value };
    const struct fetch_request req = {
        .method = a->method,
        .url = a->url,
        .headers = header,
        .header_count = a->header_count,
        .body = a->body,
        .content_type = a->content_type,
        .body_bytes_max = WEB_REPLY_BYTES,
        .deadline_us = loop_now_us + web_run_deadline_us(run, now_us),
        .on_end = on_end,
        .arg = arg,
    };
    return fetch_start(f, &req, ret, err);
}

static void take_header(const struct fetch_call *call, const char *name, struct web_reply *ret)
{
    struct str value = fetch_header(call, name);
    if (value.len == 0) return;
    must(ret->header_count < WEB_REPLY_HEADERS_MAX);
    ret->header[ret->header_count++] = (struct web_header){ str_from(name), value };
}

void web_wire_reply(const struct web_kind *kind, const struct fetch_call *call,
                    const struct fetch_reply *from, struct web_reply *ret)
{
    /* A reply that is not whole says nothing: its status may stand before half a body. */
    bool whole = from->end == FETCH_OK;
    *ret = (struct web_reply){ .status = whole ? from->status : 0,
                               .sent = from->sent,
                               .problem = str_from(from->why),
                               .body = whole ? from->body : (struct str){ 0 } };
    if (!whole) return;
    take_header(call, "retry-after", ret);
    for (const char *const *name = kind->reply_headers; name && *name; name++)
        take_header(call, *name, ret);
}

const char *web_wire_result(const struct fetch_reply *r)
{
    static const char *const classes[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };
    if (r->end != FETCH_OK) return fetch_end_name(r->end);
    if (r->status == 429) return "throttled";
    return r->status >= 100 && r->status < 600 ? classes[r->status / 100 - 1] : "malformed";
}
