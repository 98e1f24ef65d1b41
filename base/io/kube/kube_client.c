/* kube_client.c - queues calls, sends them within the budget, and tries again what may be tried again.
 *
 *     kube_start ─► waiting ── budget, credentials, not before its time ──► running ─► on_end
 *                      ▲                                                       │
 *                      └──────────── back-off, Retry-After, new credentials ───┘
 *
 * A call keeps its target and body until its end, so that a try can be repeated. The list of waiting calls is
 * walked whole at each pump: it is short, and its order is the order of arrival. */
#include "base/io/kube/kube_client.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS_PER_S 20.0
#define BURST 40.0
#define BACK_OFF_US 250000
#define BACK_OFF_US_MAX 8000000
/* Pooled connections of a host that went silent are suspects; after 118 s without use libcurl closes them. */
#define FRESH_US 120000000
#define WHAT_BYTES 400
#define ERROR_BYTES_MAX ((size_t)256 << 10) /* of a reply that is no 2xx */

const char *const kube_verb_names[KUBE_VERB_COUNT] = {
    [KUBE_GET] = "get",         [KUBE_LIST] = "list",     [KUBE_WATCH] = "watch",
    [KUBE_CREATE] = "create",   [KUBE_APPLY] = "apply",   [KUBE_PATCH] = "patch",
    [KUBE_REPLACE] = "replace", [KUBE_DELETE] = "delete", [KUBE_EVICT] = "evict",
};

enum state { WAITING, RUNNING, ENDED };

struct kube_client {
    struct loop *loop;
    const struct kube_config *cluster;
    struct kube_client_config config; /* defaults filled in */
    struct kube_auth *auth;
    struct fetch *fetch;
    struct rng rng;
    struct list waiting, running, ended; /* struct kube_call */
    double tokens;                       /* of the budget */
    int64_t tokens_us;                   /* when they were counted */
    struct loop_timer timer;             /* the next call that may go */
    struct loop_task pump, reap;
    int64_t fresh_until_us; /* after a silence every call connects anew */
    bool freeing;
    struct kube_client_counts counts;
};

struct kube_call {
    struct kube_client *client;
    struct list node;
    enum state state;
    enum kube_verb verb;
    const struct kube_resource *resource;
    const char *subresource;
    char what[WHAT_BYTES]; /* verb, resource and name, for sentences */
    struct buf target, body, error_body;
    struct fetch_call *fetch;
    struct loop_timer deadline; /* while it waits; fetch has its own */
    int64_t deadline_us, not_before_us, begun_us, waiting_us, idle_us;
    size_t body_bytes_max;
    uint32_t tries, failures;
    int fail_rc;         /* why it could not be sent; last_problem says it */
    uint64_t generation; /* of the credentials that were shown */
    int code;
    bool urgent, renewed, may_be_done;
    struct kube_status last; /* of the try before, for the sentence at the deadline */
    char last_problem[KUBE_REPLY_PROBLEM_BYTES];

    void (*on_head)(void *arg, int code);
    void (*on_data)(void *arg, struct str data);
    void (*on_end)(void *arg, const struct kube_reply *reply);
    void *arg;
};

/* ---- what each verb is ---- */

static const struct {
    const char *method, *content_type;
    bool idempotent;
    bool repeats_429;
} verbs[KUBE_VERB_COUNT] = {
    [KUBE_GET] = { "GET", NULL, true, true },
    [KUBE_LIST] = { "GET", NULL, true, true },
    [KUBE_WATCH] = { "GET", NULL, false, false },
    [KUBE_CREATE] = { "POST", "application/json", false, true },
    /* Any JSON is YAML. */
    [KUBE_APPLY] = { "PATCH", "application/apply-patch+yaml", true, true },
    [KUBE_PATCH] = { "PATCH", "application/merge-patch+json", true, true },
    [KUBE_REPLACE] = { "PUT", "application/json", false, true },
    [KUBE_DELETE] = { "DELETE", "application/json", true, true },
    [KUBE_EVICT] = { "POST", "application/json", false, false },
};

static int body_set(struct kube_call *call, const struct kube_request *req)
{
    if (req->verb == KUBE_DELETE)
        kube_put_delete(&call->body, &req->del);
    else if (req->verb == KUBE_EVICT)
        kube_put_eviction(&call->body, req->ns, req->name, &req->del);
    else
        buf_str(&call->body, req->body);
    return call->body.rc;
}

static int target_set(struct kube_call *call, const struct kube_request *req, struct err *err)
{
    static const struct str yes = { "true", 4 };
    char limit[16] = "", timeout[16] = "";
    enum kube_verb v = req->verb;
    bool lists = v == KUBE_LIST || v == KUBE_WATCH;
    bool writes = v == KUBE_CREATE || v == KUBE_APPLY || v == KUBE_PATCH || v == KUBE_REPLACE;
    if (req->limit) snprintf(limit, sizeof limit, "%u", req->limit);
    if (req->timeout_s) snprintf(timeout, sizeof timeout, "%u", req->timeout_s);
    const struct str none = { 0 };
    const struct kube_param params[] = {
        { "watch", v == KUBE_WATCH ? yes : none },
        { "allowWatchBookmarks", v == KUBE_WATCH ? yes : none },
        { "timeoutSeconds", str_from(timeout) },
        { "labelSelector", lists ? req->label_selector : none },
        { "fieldSelector", lists ? req->field_selector : none },
        { "limit", v == KUBE_LIST ? str_from(limit) : none },
        { "continue", v == KUBE_LIST ? req->cont : none },
        { "resourceVersion", lists || v == KUBE_GET ? req->version : none },
        { "resourceVersionMatch", v == KUBE_LIST ? req->version_match : none },
        { "fieldManager", writes ? STR(KUBE_FIELD_MANAGER) : none },
        { "force", v == KUBE_APPLY && req->force ? yes : none },
        { "dryRun", req->dry_run ? STR("All") : none },
    };
    /* A create is addressed to the collection; the name is in the body. */
    struct str name = v == KUBE_CREATE || lists ? none : req->name;
    call->subresource = v == KUBE_EVICT ? "eviction" : req->subresource;
    if (!lists && v != KUBE_CREATE && req->name.len == 0)
        return err_set(err, -EINVAL, "%s of %s needs a name", kube_verb_names[v],
                       req->resource->plural);
    buf_str(&call->target, call->client->cluster->server);
    return kube_target(req->resource, req->ns, name, call->subresource, params, COUNT_OF(params),
                       &call->target, err);
}

/* ---- meters ---- */

static void meter(struct kube_call *call, const char *code)
{
    struct kube_client *c = call->client;
    const struct kube_meters *m = &c->config.meters;
    char resource[128];
    c->counts.calls++;
    c->counts.by_verb[call->verb]++;
    if (!m->metrics) return;
    const char *sub = call->subresource ? call->subresource : "";
    snprintf(resource, sizeof resource, "%s%s%s", call->resource->plural, sub[0] ? "/" : "", sub);
    struct str verb = str_from(kube_verb_names[call->verb]);
    const struct str labels[] = { verb, str_from(resource), str_from(code) };
    metric_inc(metric_series(m->metrics, m->calls, labels));
    if (call->verb == KUBE_WATCH) return; /* its length is the server's choice */
    metric_observe(metric_series(m->metrics, m->seconds, &verb),
                   (double)(loop_now_us(c->loop) - call->begun_us) / 1e6);
}

static void meter_wait(struct kube_call *call)
{
    const struct kube_meters *m = &call->client->config.meters;
    int64_t from_us = max_i64(call->waiting_us, call->not_before_us);
    int64_t waited_us = loop_now_us(call->client->loop) - from_us;
    if (m->metrics && waited_us > 0)
        metric_add(metric_of(m->metrics, m->waited_seconds), (double)waited_us / 1e6);
}

/* ---- the end ---- */

static void call_free(struct kube_call *call)
{
    buf_fini(&call->target);
    if (call->body.data) explicit_bzero(call->body.data, call->body.cap); /* may be a Secret */
    buf_fini(&call->body);
    buf_fini(&call->error_body);
    free(call);
}

static void on_reap(void *arg)
{
    struct kube_client *c = arg;
    for (struct list *node; (node = list_pop_front(&c->ended));)
        call_free(CONTAINER_OF(node, struct kube_call, node));
}

static void call_stop(struct kube_call *call)
{
    struct kube_client *c = call->client;
    if (call->fetch) fetch_cancel(TAKE(call->fetch));
    if (call->state == WAITING)
        c->counts.waiting--;
    else
        c->counts.running--;
    loop_timer_clear(c->loop, &call->deadline);
    call->state = ENDED;
    list_remove(&call->node);
    list_push_back(&c->ended, &call->node);
    loop_defer(c->loop, &c->reap);
    if (!list_empty(&c->waiting)) loop_defer(c->loop, &c->pump);
}

static void call_end(struct kube_call *call, struct kube_reply *reply)
{
    reply->tries = call->tries;
    reply->unsure = reply->rc < 0 && call->may_be_done;
    call_stop(call);
    call->on_end(call->arg, reply);
}

/* Ends a call for a reason on our side. */
static void call_fail(struct kube_call *call, int rc, const char *why)
{
    char problem[KUBE_REPLY_PROBLEM_BYTES];
    const char *last = call->last_problem;
    snprintf(problem, sizeof problem, "%.300s: %.150s%s%.200s", call->what, why,
             last[0] ? "; before: " : "", last);
    struct kube_reply reply = { .rc = rc, .status = call->last, .problem = problem };
    call_end(call, &reply);
}

void kube_cancel(struct kube_call *call)
{
    if (call->state != ENDED) call_stop(call);
}

/* ---- trying again ---- */

int64_t kube_back_off_us(struct kube_client *c, uint32_t failures)
{
    uint32_t doublings = min_u32(failures > 0 ? failures - 1 : 0, 30);
    int64_t most_us = c->config.back_off_us_max;
    int64_t us =
        c->config.back_off_us > most_us >> doublings ? most_us : c->config.back_off_us << doublings;
    return us / 2 + (int64_t)(rng_f64(&c->rng) * (double)(us - us / 2));
}

static void on_deadline(void *arg)
{
    call_fail(arg, -ETIMEDOUT, "the deadline passed");
}

/* Puts a call into the queue, not to be sent before `at_us`. */
static int call_queue(struct kube_call *call, int64_t at_us)
{
    struct kube_client *c = call->client;
    call->not_before_us = at_us;
    call->waiting_us = loop_now_us(c->loop);
    call->state = WAITING;
    list_push_back(&c->waiting, &call->node);
    c->counts.waiting++;
    loop_defer(c->loop, &c->pump);
    return call->deadline_us == 0 ? 0 : loop_timer_set(c->loop, &call->deadline, call->deadline_us);
}

/* Returns the time of the next try, or -1 if there is none. */
static int64_t next_try_us(struct kube_call *call, const struct fetch_reply *f,
                           const struct kube_status *status)
{
    struct kube_client *c = call->client;
    int64_t now_us = loop_now_us(c->loop);
    if (call->code == 401 && !call->renewed) {
        call->renewed = kube_auth_refused(c->auth, call->generation);
        if (call->renewed && call->verb != KUBE_WATCH) return now_us;
    }
    if (call->verb == KUBE_WATCH || call->code == 401 || f->end == FETCH_LARGE ||
        f->end == FETCH_CANCELLED)
        return -1;
    bool limited = call->code == 429;
    bool again = !f->sent             ? true
                 : limited            ? verbs[call->verb].repeats_429
                 : f->end == FETCH_OK ? verbs[call->verb].idempotent && call->code >= 500
                                      : verbs[call->verb].idempotent;
    if (!again) return -1;
    call->failures++;
    int64_t wait_us = max_i64(kube_back_off_us(c, call->failures), status->retry_after_s * 1000000);
    /* No use in waiting for a try that the deadline would cut off. */
    return call->deadline_us == 0 || now_us + wait_us < call->deadline_us ? now_us + wait_us : -1;
}

static int64_t retry_after(const struct fetch_call *call)
{
    uint64_t seconds = 0;
    struct str text = fetch_header(call, "retry-after");
    if (text.len == 0 || str_to_u64(text, &seconds) < 0) return 0; /* a date is not used here */
    return (int64_t)min_u64(seconds, KUBE_RETRY_AFTER_S_MAX);
}

static int errno_of(enum fetch_end end)
{
    static const int errnos[FETCH_END_COUNT] = {
        [FETCH_NAME] = -EHOSTUNREACH,   [FETCH_CONNECT] = -EHOSTUNREACH,
        [FETCH_TLS] = -EKEYREJECTED,    [FETCH_CUT] = -ECONNRESET,
        [FETCH_TIMEOUT] = -ETIMEDOUT,   [FETCH_LARGE] = -EMSGSIZE,
        [FETCH_MALFORMED] = -EPROTO,    [FETCH_LOCAL] = -ENOBUFS,
        [FETCH_CANCELLED] = -ECANCELED,
    };
    return errnos[end];
}

static void describe(const struct kube_call *call, const struct fetch_reply *f,
                     const struct kube_status *s, char *ret, size_t bytes)
{
    if (f->end != FETCH_OK)
        snprintf(ret, bytes, "%.300s: %.350s", call->what, f->problem);
    else
        snprintf(ret, bytes, "%.250s: %d %s%s%.350s", call->what, call->code, s->reason_text,
                 s->reason_text[0] ? ": " : "", s->message);
}

static void on_fetch_end(void *arg, const struct fetch_reply *f)
{
    struct kube_call *call = arg;
    struct kube_client *c = call->client;
    struct kube_status status = { 0 };
    char code[16], problem[KUBE_REPLY_PROBLEM_BYTES] = "";
    call->code = f->status;
    int64_t retry_after_s = retry_after(call->fetch);
    call->fetch = NULL;
    snprintf(code, sizeof code, "%d", f->status);
    meter(call, f->end == FETCH_OK ? code : fetch_end_name(f->end));
    if (f->status) c->counts.heard_us = loop_now_us(c->loop);
    if (f->end == FETCH_TIMEOUT && f->sent) c->fresh_until_us = loop_now_us(c->loop) + FRESH_US;
    bool good = f->end == FETCH_OK && f->status >= 200 && f->status < 300;
    if (f->end == FETCH_OK && !good) {
        struct str body = call->on_data ? buf_view(&call->error_body) : f->body;
        if (kube_status_read(body, &status, NULL) < 0) kube_status_of_code(f->status, &status);
        if (retry_after_s > 0) status.retry_after_s = retry_after_s;
    }
    if (!good) describe(call, f, &status, problem, sizeof problem);
    /* A refusal with a 4xx was not carried out; what broke off, or a 5xx, may have been. */
    call->may_be_done |= f->sent && (f->end != FETCH_OK || f->status >= 500);
    int64_t at_us = good ? -1 : next_try_us(call, f, &status);
    if (at_us >= 0) {
        call->last = status;
        snprintf(call->last_problem, sizeof call->last_problem, "%s",
                 problem + strlen(call->what) + 2);
        c->counts.retries++;
        c->counts.running--;
        list_remove(&call->node);
        if (call_queue(call, at_us) < 0) call_fail(call, -ENOBUFS, "no timer is left");
        return;
    }
    struct kube_reply reply = { .code = f->status, .status = status, .problem = problem };
    reply.rc = good ? 0 : f->end != FETCH_OK ? errno_of(f->end) : kube_status_errno(&status);
    if (good) reply.body = f->body;
    call_end(call, &reply);
}

static void on_fetch_head(void *arg, int code)
{
    struct kube_call *call = arg;
    call->code = code;
    call->client->counts.heard_us = loop_now_us(call->client->loop);
    if (call->on_head && code >= 200 && code < 300) call->on_head(call->arg, code);
}

static void on_fetch_data(void *arg, struct str data)
{
    struct kube_call *call = arg;
    call->client->counts.heard_us = loop_now_us(call->client->loop);
    if (call->code >= 200 && call->code < 300)
        call->on_data(call->arg, data);
    else
        buf_str(&call->error_body, data); /* beyond its bound: no Status is read */
}

/* ---- sending ---- */

/* Sends one try. -EAGAIN: not now. After another failure the call is to be ended with fail_rc. */
static int call_send(struct kube_call *call, const struct kube_identity *who)
{
    struct kube_client *c = call->client;
    struct err err = { 0 };
    buf_clear(&call->error_body);
    const char *type = verbs[call->verb].content_type;
    static const struct fetch_header accept = { { "Accept", 6 }, { "application/json", 16 } };
    const struct fetch_request req = {
        .method = str_from(verbs[call->verb].method),
        .url = buf_view(&call->target),
        .headers = &accept,
        .header_count = 1,
        .bearer = who->token,
        .body = buf_view(&call->body),
        .content_type = str_from(type),
        .tls = &who->tls,
        .proxy = c->cluster->proxy,
        .body_bytes_max = call->body_bytes_max,
        .deadline_us = call->deadline_us,
        .idle_us = call->idle_us,
        .fresh = loop_now_us(c->loop) < c->fresh_until_us,
        .http2 = c->config.http2,
        .on_head = on_fetch_head,
        .on_data = call->on_data ? on_fetch_data : NULL,
        .on_end = on_fetch_end,
        .arg = call,
    };
    int rc = fetch_start(c->fetch, &req, &call->fetch, &err);
    if (rc < 0) {
        call->fail_rc = rc;
        snprintf(call->last_problem, sizeof call->last_problem, "%s", err.text);
        return rc;
    }
    loop_timer_clear(c->loop, &call->deadline);
    meter_wait(call);
    call->tries++;
    call->code = 0;
    call->generation = who->generation;
    call->begun_us = loop_now_us(c->loop);
    call->state = RUNNING;
    c->counts.waiting--;
    c->counts.running++;
    list_remove(&call->node);
    list_push_back(&c->running, &call->node);
    return 0;
}

static void budget_refill(struct kube_client *c)
{
    int64_t now_us = loop_now_us(c->loop);
    double grown = c->tokens + (double)(now_us - c->tokens_us) / 1e6 * c->config.calls_per_s;
    c->tokens = grown < c->config.burst ? grown : c->config.burst;
    c->tokens_us = now_us;
}

/* Ends calls that were gathered from the queue. Their callbacks may start and cancel calls, so none of this
 * happens while the queue is walked. */
static void fail_all(struct list *gathered, const char *why)
{
    while (!list_empty(gathered)) {
        struct kube_call *call = CONTAINER_OF(gathered->next, struct kube_call, node);
        call_fail(call, call->fail_rc, why);
    }
}

/* Sends what may be sent of the urgent calls, or of the others; returns when the next one may be. */
static int64_t pump_some(struct kube_client *c, const struct kube_identity *who, bool urgent,
                         struct list *failed)
{
    int64_t now_us = loop_now_us(c->loop), next_us = INT64_MAX;
    LIST_EACH_SAFE (&c->waiting, node) {
        struct kube_call *call = CONTAINER_OF(node, struct kube_call, node);
        if (call->urgent != urgent) continue;
        int64_t at_us = call->not_before_us;
        if (at_us <= now_us && !urgent && c->tokens < 1.0)
            at_us = now_us + (int64_t)((1.0 - c->tokens) / c->config.calls_per_s * 1e6) + 1000;
        if (at_us > now_us) {
            next_us = min_i64(next_us, at_us);
            continue;
        }
        int rc = call_send(call, who);
        if (rc == -EAGAIN) return min_i64(next_us, now_us + c->config.back_off_us);
        if (rc == 0 && !urgent) c->tokens -= 1.0;
        if (rc < 0) {
            list_remove(node);
            list_push_back(failed, node);
        }
    }
    return next_us;
}

/* Ends the calls that are due when there are no credentials. */
static void pump_refused(struct kube_client *c, const char *why)
{
    struct list due;
    list_init(&due);
    LIST_EACH_SAFE (&c->waiting, node) {
        struct kube_call *call = CONTAINER_OF(node, struct kube_call, node);
        if (call->not_before_us > loop_now_us(c->loop)) continue;
        call->fail_rc = -EACCES;
        list_remove(node);
        list_push_back(&due, node);
    }
    fail_all(&due, why);
}

static void on_pump(void *arg)
{
    struct kube_client *c = arg;
    struct kube_identity who;
    struct err err = { 0 };
    if (list_empty(&c->waiting)) return;
    int rc = kube_auth_get(c->auth, &who, &err);
    if (rc == -EAGAIN) return; /* on_identity comes */
    if (rc < 0) {
        pump_refused(c, err.text);
        if (!list_empty(&c->waiting)) /* those that are not due yet */
            loop_timer_set(c->loop, &c->timer, loop_now_us(c->loop) + c->config.back_off_us);
        return;
    }
    struct list failed;
    list_init(&failed);
    budget_refill(c);
    int64_t urgent_us = pump_some(c, &who, true, &failed);
    int64_t next_us = min_i64(urgent_us, pump_some(c, &who, false, &failed));
    fail_all(&failed, "it cannot be sent");
    if (next_us == INT64_MAX) return;
    if (loop_timer_set(c->loop, &c->timer, next_us) < 0) loop_defer(c->loop, &c->pump);
}

static void on_identity(void *arg)
{
    struct kube_client *c = arg;
    loop_defer(c->loop, &c->pump);
}

static void what_set(struct kube_call *call, const struct kube_request *req)
{
    const char *sub = call->subresource ? call->subresource : "";
    CLEANUP(buf_fini) struct buf what = { 0 };
    buf_printf(&what, "%s %s%s%s", kube_verb_names[call->verb], call->resource->plural,
               sub[0] ? "/" : "", sub);
    if (req->ns.len > 0 || req->name.len > 0) buf_byte(&what, ' ');
    if (req->ns.len > 0) buf_printf(&what, STR_FMT "/", STR_ARG(req->ns));
    buf_str(&what, req->name);
    snprintf(call->what, sizeof call->what, "%s", what.rc == 0 ? what.data : "call");
}

int kube_start(struct kube_client *c, const struct kube_request *req, struct kube_call **ret,
               struct err *err)
{
    loop_assert_owner(c->loop);
    must(req->on_end && req->resource && (req->verb != KUBE_WATCH || req->on_data));
    if (c->freeing) return err_set(err, -EAGAIN, "the client is being closed");
    if (c->counts.waiting >= KUBE_WAITING_MAX) {
        c->counts.refused++;
        return err_set(err, -EAGAIN, "%d calls to the cluster wait already", KUBE_WAITING_MAX);
    }
    struct kube_call *call = FAULT("kube.call") ? NULL : calloc(1, sizeof *call);
    if (!call) return err_set(err, -ENOMEM, "no memory for a call to the cluster");
    call->client = c;
    call->verb = req->verb;
    call->resource = req->resource;
    call->urgent = req->urgent;
    call->idle_us = req->idle_us;
    if (call->idle_us == 0 && req->verb != KUBE_WATCH) call->idle_us = KUBE_SILENCE_US;
    call->body_bytes_max = req->body_bytes_max ? req->body_bytes_max : KUBE_REPLY_BYTES;
    call->on_head = req->on_head;
    call->on_data = req->on_data;
    call->on_end = req->on_end;
    call->arg = req->arg;
    call->deadline = (struct loop_timer){ .fn = on_deadline, .arg = call };
    call->deadline_us = req->deadline_us;
    if (call->deadline_us == 0 && req->verb != KUBE_WATCH)
        call->deadline_us = loop_now_us(c->loop) + KUBE_CALL_US;
    buf_init(&call->error_body, ERROR_BYTES_MAX);
    int rc = target_set(call, req, err);
    if (rc == 0 && body_set(call, req) < 0)
        rc = err_set(err, -ENOMEM, "no memory for a call to the cluster");
    if (rc < 0) {
        call_free(call);
        return rc;
    }
    what_set(call, req);
    if (call_queue(call, 0) < 0) {
        call_stop(call);
        return err_set(err, -ENOBUFS, "no timer is left");
    }
    *ret = call;
    return 0;
}

/* ---- life ---- */

int kube_client_new(struct loop *l, const struct kube_config *cluster,
                    const struct kube_client_config *config, struct kube_client **ret,
                    struct err *err)
{
    CLEANUP(kube_client_freep) struct kube_client *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for a client of the cluster");
    c->loop = l;
    c->cluster = cluster;
    c->config = *config;
    if (c->config.calls_per_s <= 0) c->config.calls_per_s = CALLS_PER_S;
    if (c->config.burst < 1.0) c->config.burst = BURST;
    if (c->config.back_off_us <= 0) c->config.back_off_us = BACK_OFF_US;
    if (c->config.back_off_us_max <= 0) c->config.back_off_us_max = BACK_OFF_US_MAX;
    c->tokens = c->config.burst;
    c->tokens_us = loop_now_us(l);
    c->timer = (struct loop_timer){ .fn = on_pump, .arg = c };
    c->pump = (struct loop_task){ .fn = on_pump, .arg = c };
    c->reap = (struct loop_task){ .fn = on_reap, .arg = c };
    list_init(&c->waiting);
    list_init(&c->running);
    list_init(&c->ended);
    rng_stream(&c->rng, config->seed, hash64(cluster->server.data, cluster->server.len, 0), 0);
    const struct fetch_config fetch = { .running_max = KUBE_RUNNING_MAX,
                                        .environ = config->environ };
    int rc = fetch_new(l, &fetch, &c->fetch, err);
    if (rc == 0) rc = kube_auth_new(l, cluster, on_identity, c, &c->auth, err);
    if (rc == 0) *ret = TAKE(c);
    return rc;
}

void kube_client_free(struct kube_client *c)
{
    if (!c) return;
    c->freeing = true;
    for (struct list *lists[] = { &c->waiting, &c->running }, **l = lists; l < lists + 2; l++)
        while (!list_empty(*l))
            call_fail(CONTAINER_OF((*l)->next, struct kube_call, node), -ECANCELED,
                      "the client is closed");
    on_reap(c);
    loop_defer_clear(c->loop, &c->reap);
    loop_defer_clear(c->loop, &c->pump);
    loop_timer_clear(c->loop, &c->timer);
    kube_auth_free(c->auth);
    fetch_free(c->fetch);
    free(c);
}

void kube_client_counts_get(const struct kube_client *c, struct kube_client_counts *ret)
{
    *ret = c->counts;
}

struct loop *kube_client_loop(const struct kube_client *c)
{
    return c->loop;
}

const struct kube_config *kube_client_cluster(const struct kube_client *c)
{
    return c->cluster;
}

struct rng *kube_client_rng(struct kube_client *c)
{
    return &c->rng;
}
