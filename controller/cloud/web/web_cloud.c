/* web_cloud.c - runs the controller's calls over a provider's HTTP API on the loop.
 *
 *     submit ──► run: turn ──► ASK ──► fetch ──► on_end ──► turn ...
 *                         ├──► WAIT ──► timer ──► turn
 *                         └──► DONE ──► event ──► next
 *
 * What comes next is decided in web_run.c; this file has sockets, timers and clocks. */
#include "controller/cloud/web/web_cloud.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/web/web_run.h"

#include <stdlib.h>
#include <string.h>

/* Makes a provider's requests through base/io/fetch. */

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

#define SECRET_FILE_BYTES_MAX ((size_t)64 << 10)

/* A call of the controller. */
struct slot {
    struct web_cloud *cloud;
    struct web_run run;
    bool taken;
    struct fetch_call *call; /* of its request; NULL: none is under way */
    struct loop_timer timer;
    int64_t begun_us; /* of the request, on the loop's clock */
};

struct web_cloud {
    struct loop *loop;
    const struct web_settings *settings;
    struct web_api api;
    struct fetch *fetch;
    struct cloud_driver driver; /* under the cloud's name */
    int64_t fleet_us;           /* fleet time less the loop's */
    int64_t waited_us;          /* of api.waited_us, as metered */
    struct slot slot[CLOUD_CALLS_MAX];
    struct cloud_event done[CLOUD_CALLS_MAX]; /* a ring */
    uint32_t done_first, done_count, taken_count;
    struct listed room[CLOUD_LIST_MAX];
    struct cloud_price price[CLOUD_PRICES_MAX];
    void (*fn)(void *arg);
    void *arg;
};

int web_read_secret(void *ctx, const char *path, struct buf *out, struct err *err)
{
    /* By way of a buffer without a bound: a file is read in pieces as large as the bound of most callers' own. */
    CLEANUP(buf_fini) struct buf text = { 0 };
    (void)ctx;
    int rc = file_check_private(path, err);
    if (rc == 0) rc = file_read(path, SECRET_FILE_BYTES_MAX, &text, err);
    if (rc == 0 && buf_str(out, buf_view(&text)) < 0)
        rc = err_set(err, out->rc, "%s is too large for a secret, or there is no memory", path);
    if (text.data) explicit_bzero(text.data, text.len);
    return rc;
}

/* ---- metrics and logs ---- */

static void meter_request(const struct slot *s, const struct fetch_reply *r)
{
    const struct web_meters *m = &s->cloud->settings->meters;
    const char *result = web_wire_result(r);
    struct str labels[] = { s->cloud->settings->name, str_from(web_op_names[s->run.op.kind]),
                            str_from(result) };
    if (r->end != FETCH_OK || r->status >= 400)
        log_event(LOG_WARN, "cloud_request_failed",
                  "provider=%.*s call=%.*s intent=%s status=%d result=%s", STR_ARG(labels[0]),
                  STR_ARG(labels[1]), s->run.kept.intent, r->status, result);
    if (!m->metrics) return;
    double seconds = (double)(loop_now_us(s->cloud->loop) - s->begun_us) / 1e6;
    metric_inc(metric_series(m->metrics, m->requests, labels));
    metric_observe(metric_series(m->metrics, m->seconds, labels), seconds);
}

static void meter_wait(struct web_cloud *c)
{
    const struct web_meters *m = &c->settings->meters;
    if (!m->metrics || c->api.waited_us == c->waited_us) return;
    metric_add(metric_series(m->metrics, m->waited_seconds, &c->settings->name),
               (double)(c->api.waited_us - c->waited_us) / 1e6);
    c->waited_us = c->api.waited_us;
}

/* ---- calls ---- */

static struct cloud_event *put(struct slot *s)
{
    struct web_cloud *c = s->cloud;
    struct cloud_event *e = &c->done[(c->done_first + c->done_count++) % CLOUD_CALLS_MAX];
    e->id = s->run.kept.id;
    e->op = s->run.kept.op;
    return e;
}

static void let_go(struct slot *s)
{
    struct web_cloud *c = s->cloud;
    loop_timer_clear(c->loop, &s->timer);
    web_run_fini(&s->run);
    s->taken = false;
    c->taken_count--;
    meter_wait(c);
    if (c->fn) c->fn(c->arg);
}

static void finish(struct slot *s)
{
    struct cloud_event *e = put(s);
    web_run_event(&s->run, e);
    if (e->op == CLOUD_PRICES && e->rc == 0)
        memcpy(e->price, s->run.price, e->count * sizeof *e->price);
    let_go(s);
}

static void turn(struct slot *s, const struct web_reply *reply);

static void on_end(void *arg, const struct fetch_reply *r)
{
    struct slot *s = arg;
    struct web_reply reply;
    if (r->end == FETCH_CANCELLED) return; /* the cloud is closed */
    meter_request(s, r);
    web_wire_reply(s->cloud->settings->kind, s->call, r, &reply);
    s->call = NULL;
    turn(s, &reply);
}

/* Makes the request of the turn, unless the term that wants it is over. False: it could not be made, and *ret is
 * the reply that says so. */
static bool request(struct slot *s, int64_t now_us, struct web_reply *ret)
{
    struct web_cloud *c = s->cloud;
    struct err err = { 0 };
    s->begun_us = loop_now_us(c->loop);
    int rc = web_wire_start(c->fetch, &s->run, now_us, s->begun_us, on_end, s, &s->call, &err);
    if (rc == 0) return true;
    log_event(LOG_WARN, "cloud_request_failed",
              "provider=%s call=%s intent=%s status=0 result=local", c->driver.name,
              web_op_names[s->run.op.kind], s->run.kept.intent);
    *ret = (struct web_reply){ .problem = STR("the request could not be made on this machine") };
    return false;
}

static void on_timer(void *arg)
{
    turn(arg, NULL);
}

static void turn(struct slot *s, const struct web_reply *reply)
{
    struct web_cloud *c = s->cloud;
    struct web_reply failed;
    int64_t now_us = loop_now_us(c->loop) + c->fleet_us;
    for (;;) {
        enum web_turn next = web_run_turn(&s->run, reply, now_us, clock_wall_us());
        if (next == WEB_TURN_DONE) {
            finish(s);
            return;
        }
        if (next == WEB_TURN_WAIT) {
            s->timer.fn = on_timer;
            s->timer.arg = s;
            /* Without memory for a timer the next tick goes on (see next). */
            loop_timer_set(c->loop, &s->timer, s->run.wait_us - c->fleet_us);
            return;
        }
        if (!cloud_fence_holds(c->settings->fence, s->run.kept.epoch, clock_mono_us())) {
            cloud_refuse(s->run.kept.op, s->run.kept.id, put(s));
            let_go(s);
            return;
        }
        if (request(s, now_us, &failed)) return;
        reply = &failed;
    }
}

/* ---- the driver ---- */

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    const struct web_settings *s = ((struct web_cloud *)ctx)->settings;
    if (s->offer_count > max)
        return err_set(err, -E2BIG, STR_FMT " has %u offers; %u fit", STR_ARG(s->name),
                       s->offer_count, max);
    for (uint32_t i = 0; i < s->offer_count; i++)
        ret[i] = s->offer[i].offer;
    *ret_count = s->offer_count;
    return 0;
}

static int submit(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err)
{
    struct web_cloud *c = ctx;
    struct slot *s = c->slot;
    if (c->taken_count + c->done_count == CLOUD_CALLS_MAX)
        return err_set(err, -EBUSY, "%d calls to %s are under way", CLOUD_CALLS_MAX,
                       c->driver.name);
    while (s->taken)
        s++;
    c->fleet_us = now_us - loop_now_us(c->loop);
    int rc = web_run_begin(&s->run, &c->api, call, c->room, c->price, now_us, err);
    if (rc < 0) return rc;
    s->cloud = c;
    s->taken = true;
    c->taken_count++;
    turn(s, NULL);
    return 0;
}

static bool next(void *ctx, int64_t now_us, struct cloud_event *ret)
{
    struct web_cloud *c = ctx;
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) {
        struct slot *s = &c->slot[i];
        if (s->taken && !s->call && !loop_timer_is_set(&s->timer) && now_us >= s->run.wait_us)
            turn(s, NULL);
    }
    if (c->done_count == 0) return false;
    *ret = c->done[c->done_first];
    c->done_first = (c->done_first + 1) % CLOUD_CALLS_MAX;
    c->done_count--;
    return true;
}

static void watch(void *ctx, void (*fn)(void *arg), void *arg)
{
    struct web_cloud *c = ctx;
    c->fn = fn;
    c->arg = arg;
}

static void close_cloud(void *ctx)
{
    struct web_cloud *c = ctx;
    c->fn = NULL;
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) {
        struct slot *s = &c->slot[i];
        if (!s->taken) continue;
        if (s->call) fetch_cancel(s->call);
        let_go(s);
    }
    fetch_free(c->fetch);
    web_api_close(&c->api);
    free(c);
}

int web_cloud_open(struct loop *l, const struct web_settings *settings,
                   const char *const *environment, uint64_t seed, struct cloud *ret,
                   struct err *err)
{
    struct web_cloud *c = calloc(1, sizeof *c);
    must(c);
    c->loop = l;
    c->settings = settings;
    c->driver = (struct cloud_driver){ .name = settings->name.data,
                                       .about = settings->kind->about,
                                       .close = close_cloud,
                                       .offers = offers,
                                       .submit = submit,
                                       .next = next,
                                       .watch = watch };
    const struct web_host host = { .environ = environment, .read_secret = web_read_secret };
    const struct fetch_config fetch = { .running_max = CLOUD_CALLS_MAX, .environ = environment };
    int rc = fetch_new(l, &fetch, &c->fetch, err);
    if (rc == 0) rc = web_api_open(&c->api, settings, &host, seed, err);
    if (rc < 0) {
        close_cloud(c);
        return rc;
    }
    log_event(LOG_INFO, "cloud_opened", "provider=%s kind=%s endpoint=%.*s", c->driver.name,
              settings->kind->name, STR_ARG(settings->endpoint));
    *ret = (struct cloud){ .driver = &c->driver,
                           .ctx = c,
                           .lag_us = settings->lag_us,
                           .poll_us = settings->poll_us,
                           .calls_per_s = settings->calls_per_s,
                           .joins = settings->kind->user_data_bytes > 0,
                           .fence = settings->fence };
    return 0;
}
