/* questions.c - what the agent asks its engine and tells the controller, and what it makes of the answers.
 *
 * The clock that the controller wishes is compared with what the engine says of itself, at each
 * answer of either: a changed wish is passed on at once, and to an engine that has started again
 * and runs at its full clock as well. */
#include "agent/agent_part.h"
#include "base/core/bits.h"
#include "base/core/own.h"

#include <math.h>
#include <stdio.h>

#define LAST_WORDS_US 1000000 /* for the report of the end */
#define CLOCK_SAME 1e-6       /* a clock that went through JSON is the same */
#define UNHEARD_US 5000000

static void on_head(void *arg, const struct http_response *head)
{
    ((struct question *)arg)->status = head->status;
}

static void on_data(void *arg, struct str data)
{
    buf_str(&((struct question *)arg)->body, data); /* beyond the bound: rc, checked at the end */
}

/* The question is the first member that callbacks see; its owner is found from it. */
static struct agent *owner_of_probe(void *arg)
{
    return CONTAINER_OF(arg, struct agent, probe);
}

static struct agent *owner_of_tell(void *arg)
{
    return CONTAINER_OF(arg, struct agent, tell);
}

static void set_clock(struct agent *a);

/* Why nothing was heard of `q`; at most every UNHEARD_US. */
static void log_unheard(struct agent *a, const char *event, enum http_end end, struct question *q)
{
    uint64_t skipped;
    if (!log_pass(&q->log, loop_now_us(a->loop), UNHEARD_US, &skipped)) return;
    log_event(LOG_WARN, event, "instance=%.*s error=%s why=%s skipped=%llu",
              STR_ARG(a->in.spec.instance), http_end_text(end),
              q->call ? signed_call_problem(q->call) : "", (unsigned long long)skipped);
}

/* The agent itself could not ask: the time since it last did is no evidence of the engine. */
static void excuse(struct agent *a, enum http_end end)
{
    int64_t now = loop_now_us(a->loop);
    if (a->sup.state == SUP_UP || a->sup.state == SUP_DRAINING)
        a->healthy_us = min_i64(now, max_i64(a->healthy_us, a->sup.since_us) + now - a->asked_us);
    if (a->sup.state == SUP_STARTING) /* it may have been ready all the time */
        a->sup.since_us =
            min_i64(now, a->sup.since_us + now - max_i64(a->asked_us, a->sup.since_us));
    a->asked_us = now;
    log_unheard(a, "probe_not_sent", end, &a->probe);
}

static void on_probe_end(void *arg, enum http_end end)
{
    struct agent *a = owner_of_probe(arg);
    bool ours = end == HTTP_END_LOCAL || end == HTTP_END_NAME || end == HTTP_END_TLS;
    if (ours) excuse(a, end);
    a->probe.call = NULL;
    if (ours) return;
    a->asked_us = loop_now_us(a->loop);
    if (end != HTTP_END_OK || a->probe.status != 200 || a->probe.body.rc < 0) return;
    struct arena *next = &a->info_arena[a->info_at ^ 1];
    struct engine_report r;
    struct err err = { 0 };
    arena_reset(next);
    int rc = engine_report_decode(buf_view(&a->probe.body), next, &r, &err);
    if (rc < 0) {
        snprintf(a->trouble, sizeof a->trouble, "the engine's answer: %s", err_text(&err, rc));
        return;
    }
    a->info_at ^= 1;
    a->info = r;
    a->info.host = a->in.spec.engine_host;
    a->info.port = a->engine_port;
    a->info.tls = a->in.spec.engine_tls;
    a->info.kind = a->in.spec.kind;
    a->has_info = true;
    a->load_us = loop_now_us(a->loop);
    if (r.health == ENGINE_READY) a->healthy_us = a->load_us;
    if (r.stalled_s > 0)
        snprintf(a->trouble, sizeof a->trouble, "the engine made no step for %.0f s", r.stalled_s);
    if (a->healthy_us && a->sup.state == SUP_STARTING) a->trouble[0] = 0;
    set_clock(a);
    agent_look(a); /* ready is told at once: requests may be waiting for it */
}

/* Who we are to whom: the engine's own key where it is asked, an agent's where we report. An engine
 * of another kind knows nothing of it. */
static void sign_as(const struct agent *a, const char *role, bool signs, char id[AUTH_ID_BYTES_MAX],
                    struct signed_as *ret)
{
    snprintf(id, AUTH_ID_BYTES_MAX, "%s/" STR_FMT, role, STR_ARG(a->in.spec.instance));
    bool knows = signs && credentials_key(&a->held, str_from(id), &ret->key) == 0;
    ret->id = knows ? str_from(id) : (struct str){ 0 };
}

static void ask(struct agent *a, struct question *q, const char *role,
                struct http_call_request *req)
{
    static const struct http_header json = { { "content-type", 12 }, { "application/json", 16 } };
    char id[AUTH_ID_BYTES_MAX];
    struct signed_as as;
    bool of_engine = q != &a->tell;
    sign_as(a, role, !of_engine || a->in.spec.kind == ENGINE_MUSTER, id, &as);
    buf_clear(&q->body);
    q->status = 0;
    req->headers = &json;
    req->header_count = req->body.len > 0;
    req->on_head = on_head;
    req->on_data = on_data;
    req->arg = q;
    q->call = signed_call_start(a->signer, req, &as, false, NULL); /* NULL: again in a second */
}

void agent_probe(struct agent *a)
{
    if (a->engine.id.pid == 0 || a->probe.call) return;
    struct http_call_request req = { .host = a->in.spec.engine_host,
                                     .port = a->engine_port,
                                     .tls = a->in.spec.engine_tls,
                                     .path = STR("/internal/info"),
                                     .deadline_us = loop_now_us(a->loop) + CALL_US,
                                     .on_end = on_probe_end };
    ask(a, &a->probe, "engine", &req);
    if (!a->probe.call) excuse(a, HTTP_END_LOCAL);
}

/* ---- the clock ---- */

static void on_order_end(void *arg, enum http_end end)
{
    struct agent *a = CONTAINER_OF(arg, struct agent, order);
    a->order.call = NULL;
    if (end == HTTP_END_OK && a->order.status == 200) {
        a->info.clock = a->clock_asked;
        return;
    }
    /* Tried again at the next answer of either side. */
    log_event(LOG_WARN, "clock_not_set", "instance=%.*s clock=%g status=%d",
              STR_ARG(a->in.spec.instance), a->clock_asked, a->order.status);
}

/* An engine that names no clock has none to set. */
static void set_clock(struct agent *a)
{
    if (a->clock_wished <= 0 || !a->has_info || a->info.clock <= 0 || a->order.call) return;
    if (fabs(a->info.clock - a->clock_wished) < CLOCK_SAME) return;
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct engine_clock c = { a->clock_wished };
    if (engine_clock_encode(&c, &body) < 0) return;
    struct http_call_request req = { .host = a->in.spec.engine_host,
                                     .port = a->engine_port,
                                     .tls = a->in.spec.engine_tls,
                                     .method = STR("POST"),
                                     .path = STR("/internal/clock"),
                                     .body = buf_view(&body),
                                     .deadline_us = loop_now_us(a->loop) + CALL_US,
                                     .on_end = on_order_end };
    a->clock_asked = a->clock_wished;
    ask(a, &a->order, "engine", &req);
}

/* ---- reports ---- */

static void heed(struct agent *a, const struct agent_reply *r)
{
    int64_t now = loop_now_us(a->loop);
    a->lease_until_us = now + (int64_t)r->lease_ms * 1000;
    if (!r->known) return; /* it will know us soon; until then nothing changes */
    if (r->drain != a->drain_wished) {
        a->drain_wished = r->drain;
        agent_feed(a, r->drain ? SUP_DRAIN : SUP_KEEP);
    }
    if (r->clock > 0) a->clock_wished = r->clock;
    set_clock(a);
    if (r->stop) agent_feed(a, SUP_WANT_DOWN);
}

static void on_tell_end(void *arg, enum http_end end)
{
    struct agent *a = owner_of_tell(arg);
    if (end != HTTP_END_OK) log_unheard(a, "report_not_heard", end, &a->tell);
    a->tell.call = NULL;
    struct agent_reply reply;
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, ANSWER_BYTES_MAX);
    bool good = end == HTTP_END_OK && a->tell.status == 200 && a->tell.body.rc == 0 &&
                agent_reply_decode(buf_view(&a->tell.body), &arena, &reply, NULL) == 0;
    if (a->last_words) {
        loop_stop(a->loop);
        return;
    }
    if (good) heed(a, &reply);
    if (a->sup.state == SUP_ENDED) agent_tell(a); /* ended while the last report was under way */
}

void agent_tell(struct agent *a)
{
    bool ended = a->sup.state == SUP_ENDED;
    if (a->tell.call || a->last_words) { /* the next one says it; see on_tell_end */
        a->report_due_us = 0;
        return;
    }
    a->report_due_us = loop_now_us(a->loop) + a->config->report_us;
    struct agent_report r = { .instance = a->in.spec.instance,
                              .intent = a->in.spec.instance,
                              .boot = a->boot,
                              .seq = ++a->seq,
                              .state = sup_reported(a->sup.state),
                              .restarts = sup_restarts(&a->sup),
                              .trouble = str_from(a->trouble),
                              .has_engine = a->has_info,
                              .engine = a->info };
    CLEANUP(buf_fini) struct buf body = { 0 };
    int64_t now = loop_now_us(a->loop);
    if (agent_report_encode(&r, &body) == 0) {
        struct http_call_request req = { .host = a->in.spec.controller_host,
                                         .port = (uint16_t)a->in.spec.controller_port,
                                         .tls = a->in.spec.controller_tls,
                                         .method = STR("POST"),
                                         .path = STR("/api/v1/agents/report"),
                                         .body = buf_view(&body),
                                         .deadline_us = now + (ended ? LAST_WORDS_US : CALL_US),
                                         .on_end = on_tell_end };
        ask(a, &a->tell, "agent", &req);
    }
    a->last_words = ended;
    if (ended && !a->tell.call) loop_stop(a->loop);
}
