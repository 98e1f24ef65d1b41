/* agent_calls.c - asks the engine, sets its clock, and reports to the controller that leads.
 *
 * The calls are independent, and each has one under way at most. The clock that the controller asks for is compared
 * with the engine's clock at each reply of either: a new wish is passed on at once, and passed on again to an engine
 * that has restarted at full clock.
 *
 * Of several controllers one leads. A question that gets no reply goes to the next of them, and one that
 * stands by names the leader (fleet/controllers.h). */
#include "agent/agent_state.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"

#include <math.h>
#include <stdio.h>

#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define LAST_WORDS_US 1000000 /* deadline of the last report */
#define CLOCK_SAME 1e-6       /* difference that a clock may have after going through JSON */
#define UNHEARD_US 5000000

/* ---- calls to the engine and the controller ---- */

static void set_clock(struct agent *a);

/* Logs why `q` got no reply, at most every UNHEARD_US. */
static void log_unheard(struct agent *a, const char *event, enum http_end end,
                        const struct peer_call *call, struct log_limit *log)
{
    uint64_t skipped;
    if (!log_pass(log, loop_now_us(a->loop), UNHEARD_US, &skipped)) return;
    log_event(LOG_WARN, event, "instance=%.*s error=%s why=%s skipped=%llu",
              STR_ARG(a->in.spec.instance), http_end_text(end), call->problem ? call->problem : "",
              (unsigned long long)skipped);
}

/* Takes the time since the last real probe off the engine's silence: the agent itself could not ask, so
 * that time is no evidence about the engine. */
static void excuse(struct agent *a, enum http_end end)
{
    int64_t now = loop_now_us(a->loop);
    if (a->sup.state == SUP_UP || a->sup.state == SUP_DRAINING)
        a->healthy_us = min_i64(now, max_i64(a->healthy_us, a->sup.since_us) + now - a->asked_us);
    if (a->sup.state == SUP_STARTING) /* it may have been ready all the time */
        a->sup.since_us =
            min_i64(now, a->sup.since_us + now - max_i64(a->asked_us, a->sup.since_us));
    a->asked_us = now;
    log_unheard(a, "probe_not_sent", end, &a->look.call, &a->look_log);
}

static void take_report(struct agent *a)
{
    const struct launch_spec *s = &a->in.spec;
    a->info = a->look.sight.report;
    a->info.host = a->dialler ? str_from(a->tunnel_host) : s->engine_host;
    a->info.port = a->engine_port;
    a->info.tls = s->engine_tls && !a->dialler; /* a tunnel has TLS beneath it */
    a->info.kind = s->kind;
    if (a->translator) a->info.service = s->service;
    a->has_info = true;
    int64_t now_us = loop_now_us(a->loop);
    if (look_knows_load(&a->look)) a->load_us = now_us;
    if (a->info.health == ENGINE_READY) a->healthy_us = now_us;
    if (a->translator) translator_saw(a->translator, a->info.boot);
    if (a->info.stalled_s > 0)
        snprintf(a->trouble, sizeof a->trouble, "the engine made no step for %.0f s",
                 a->info.stalled_s);
    if (a->healthy_us && a->sup.state == SUP_STARTING) a->trouble[0] = 0;
}

void agent_fill(const struct agent *a, struct engine_report *r)
{
    if (!a->translator) return;
    translator_fill(a->translator, r);
    if (a->dialler) r->agent_host = str_from(a->tunnel_host);
}

void agent_on_seen(void *arg, enum look_end how, enum http_end http)
{
    struct agent *a = arg;
    if (how == LOOK_LOCAL) {
        excuse(a, http);
        return;
    }
    a->asked_us = loop_now_us(a->loop);
    if (how == LOOK_SILENT && a->look.why[0])
        snprintf(a->trouble, sizeof a->trouble, "the engine's answer: %.*s",
                 (int)sizeof a->trouble - 24, a->look.why);
    if (how == LOOK_SILENT) return;
    take_report(a);
    set_clock(a);
    agent_look(a); /* ready is reported at once: requests may be waiting for it */
}

/* Chooses the identity that signs a call: the engine's own to ask the engine, the agent's to report to
 * the controller. An engine of another kind knows no signatures. */
static void sign_as(const struct agent *a, const char *role, bool signs, char id[AUTH_ID_BYTES_MAX],
                    struct signed_as *ret)
{
    snprintf(id, AUTH_ID_BYTES_MAX, "%s/" STR_FMT, role, STR_ARG(a->in.spec.instance));
    bool knows = signs && credentials_key(&a->held, str_from(id), &ret->key) == 0;
    ret->id = knows ? str_from(id) : (struct str){ 0 };
}

/* Starts a call. One that cannot be sent, for want of memory, is tried again in a second. */
static void ask(struct agent *a, struct agent_question *q, struct peer_question *what,
                void (*on_reply)(struct peer_call *call, enum http_end end))
{
    char id[AUTH_ID_BYTES_MAX];
    sign_as(a, q == &a->tell ? "agent" : "engine", true, id, &what->as);
    what->reply_max = ANSWER_BYTES_MAX;
    (void)peer_call_start(&q->call, a->signer, what, on_reply, NULL);
}

static struct peer_question of_engine(const struct agent *a, struct str path)
{
    return (struct peer_question){ .host = a->in.spec.engine_host,
                                   .port = a->engine_port,
                                   .tls = a->in.spec.engine_tls,
                                   .path = path,
                                   .deadline_us = loop_now_us(a->loop) + AGENT_CALL_US };
}

void agent_probe(struct agent *a)
{
    if (!agent_has_engine(a)) return;
    struct peer_question q = of_engine(a, (struct str){ 0 });
    sign_as(a, "engine", engine_traits[a->in.spec.kind].serves_itself, a->engine_id, &q.as);
    if (!look_begin(&a->look, &q, loop_now_us(a->loop) + AGENT_CALL_US)) excuse(a, HTTP_END_LOCAL);
}

/* ---- the clock ---- */

static void on_order_reply(struct peer_call *call, enum http_end end)
{
    struct agent *a = CONTAINER_OF(call, struct agent, order.call);
    if (end == HTTP_END_OK && call->status == 200) {
        a->info.clock = a->clock_asked;
        return;
    }
    /* Tried again at the next reply of the engine or the controller. */
    log_event(LOG_WARN, "clock_not_set", "instance=%.*s clock=%g status=%d",
              STR_ARG(a->in.spec.instance), a->clock_asked, call->status);
}

/* Passes the controller's clock on to the engine. An engine that reports no clock has none to set. */
static void set_clock(struct agent *a)
{
    if (a->clock_wished <= 0 || !a->has_info || a->info.clock <= 0 || a->order.call.call) return;
    if (fabs(a->info.clock - a->clock_wished) < CLOCK_SAME) return;
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct engine_clock c = { a->clock_wished };
    if (engine_clock_encode(&c, &body) < 0) return;
    struct peer_question q = of_engine(a, STR("/internal/clock"));
    q.body = buf_view(&body);
    a->clock_asked = a->clock_wished;
    ask(a, &a->order, &q, on_order_reply);
}

/* ---- reports ---- */

static void heed(struct agent *a, const struct agent_reply *r)
{
    int64_t now = loop_now_us(a->loop);
    a->lease_until_us = now + (int64_t)r->lease_ms * 1000;
    if (a->dialler) dialler_set(a->dialler, r->routers, r->router_count);
    if (!r->known) return; /* the controller does not know the instance yet: no wishes */
    if (r->leaves_ms > 0 && !a->leaves_us)
        log_event(LOG_WARN, "notice", "instance=%.*s leaves_in_s=%.1f",
                  STR_ARG(a->in.spec.instance), r->leaves_ms / 1e3);
    int64_t leaves_us = now + (int64_t)r->leaves_ms * 1000;
    if (r->leaves_ms > 0 && (!a->noticed_us || leaves_us < a->noticed_us)) a->leaves_us = leaves_us;
    if (r->drain != a->drain_wished) {
        a->drain_wished = r->drain;
        agent_feed(a, r->drain ? SUP_DRAIN : SUP_KEEP);
    }
    weights_told(a->weights, r->seeds, r->seed_count);
    if (r->clock > 0) a->clock_wished = r->clock;
    set_clock(a);
    if (r->stop) agent_feed(a, SUP_WANT_DOWN);
}

/* Returns true if the reply is the leader's, and of no earlier term than the last. Otherwise another controller
 * is asked next; at once, if this one stands by and names the leader. */
static bool is_heeded(struct agent *a, const struct peer_call *call, enum http_end end,
                      struct arena *arena, struct agent_reply *reply)
{
    struct standby_reply standby;
    if (peer_call_is_good(call, end) &&
        agent_reply_decode(buf_view(&call->body), arena, reply, NULL) == 0)
        return controllers_heard(&a->controllers, reply->epoch, loop_now_us(a->loop));
    bool stands_by = end == HTTP_END_OK && call->status == 503 &&
                     standby_reply_decode(buf_view(&call->body), arena, &standby) == 0;
    if (stands_by && standby.lease_ms > 0)
        a->lease_until_us = loop_now_us(a->loop) + (int64_t)standby.lease_ms * 1000;
    if (!stands_by)
        controllers_missed(&a->controllers);
    else if (controllers_stands_by(&a->controllers, standby.leader))
        a->report_due_us = 0;
    return false;
}

static void on_tell_reply(struct peer_call *call, enum http_end end)
{
    struct agent *a = CONTAINER_OF(call, struct agent, tell.call);
    if (end != HTTP_END_OK) log_unheard(a, "report_not_heard", end, &a->tell.call, &a->tell.log);
    CLEANUP(arena_fini) struct arena arena;
    struct agent_reply reply;
    arena_init(&arena, ANSWER_BYTES_MAX);
    bool good = is_heeded(a, call, end, &arena, &reply);
    if (a->last_words && a->report_due_us > 0) {
        loop_stop(a->loop);
        return;
    }
    a->last_words = false; /* said again, to the leader */
    if (good) heed(a, &reply);
    if (a->sup.state == SUP_ENDED) agent_tell(a); /* ended while the last report was under way */
}

/* An engine that waits for its model is one that starts. */
static enum agent_state state_of(const struct agent *a)
{
    bool waits = a->sup.state == SUP_DOWN && weights_is_coming(a->weights);
    return waits ? AGENT_STARTING : sup_reported(a->sup.state);
}

void agent_tell(struct agent *a)
{
    bool ended = a->sup.state == SUP_ENDED;
    if (a->tell.call.call || a->last_words) { /* the next report has it; see on_tell_reply */
        a->report_due_us = 0;
        return;
    }
    a->report_due_us = loop_now_us(a->loop) + a->config->report_us;
    bool coming = weights_is_coming(a->weights);
    struct agent_report r = { .instance = a->in.spec.instance,
                              .intent = a->in.spec.instance,
                              .boot = a->boot,
                              .seq = ++a->seq,
                              .state = state_of(a),
                              .restarts = sup_restarts(&a->sup),
                              .trouble =
                                  str_from(coming ? weights_trouble(a->weights) : a->trouble),
                              .version = STR(MUSTER_VERSION),
                              .date_us = clock_wall_us(),
                              .unfinished = a->unfinished,
                              .has_engine = a->has_info,
                              .engine = a->info };
    r.has_weights = weights_report(a->weights, &r.weights);
    if (a->sup.state == SUP_UP) first_boot_loaded(&a->first_boot, loop_now_us(a->loop));
    first_boot_fill(&a->first_boot, loop_now_us(a->loop), &r);
    if (a->in.adopts) {
        r.service = a->in.spec.service;
        r.pool = a->in.spec.pool;
    }
    r.at_risk = a->at_risk;
    if (a->at_risk) r.leaves_why = str_from(a->notice_why);
    if (a->noticed_us) {
        int64_t left_ms = (a->noticed_us - loop_now_us(a->loop)) / 1000;
        r.leaves_ms = (uint32_t)min_i64(max_i64(left_ms, 1), UINT32_MAX);
        r.leaves_why = str_from(a->notice_why);
    }
    struct wire_gpu gpu[WIRE_GPUS_MAX];
    struct wire_fault fault[WIRE_FAULTS_MAX];
    gpu_watch_fill(a->gpus, gpu, fault, &r);
    agent_fill(a, &r.engine);
    CLEANUP(buf_fini) struct buf body = { 0 };
    int64_t now = loop_now_us(a->loop);
    const struct controller_address *to = controllers_next(&a->controllers);
    /* Without a controller routers ask the agent itself. */
    if (to && agent_report_encode(&r, &body) == 0) {
        struct peer_question q = { .host = str_from(to->host),
                                   .port = to->port,
                                   .tls = to->tls,
                                   .path = STR("/api/v1/agents/report"),
                                   .body = buf_view(&body),
                                   .deadline_us = now + (ended ? LAST_WORDS_US : AGENT_CALL_US) };
        ask(a, &a->tell, &q, on_tell_reply);
    }
    a->last_words = ended;
    if (ended && !a->tell.call.call) loop_stop(a->loop);
}
