/* agent.c - runs the loop around the supervisor: asks the engine, reports to the controller, carries
 * out the supervisor's actions.
 *
 * Once a second the agent asks the engine about itself (look.h). The reply (or its absence) and the time
 * go through sup_tick, and the actions that it returns are carried out. The agent then reports to the
 * controller, and the wishes in the reply go through sup_feed. The two calls are independent: without
 * a controller only the lease runs out. Each has one call under way at most.
 *
 * Of several controllers one leads. A question that gets no reply goes to the next of them, and one that
 * stands by names the leader (fleet/controllers.h).
 *
 * The clock that the controller asks for is compared with the engine's clock at each reply of either: a
 * new wish is passed on at once, and passed on again to an engine that has restarted at full clock.
 *
 * An adopted engine is nobody's child: what would start or end a process here only forgets it, so that it
 * is reported and drained and otherwise left alone. */
#include "agent/agent.h"

#include "agent/core/supervise.h"
#include "agent/face.h"
#include "agent/instance.h"
#include "agent/look.h"
#include "agent/metrics.h"
#include "agent/translator.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/credentials.h"
#include "base/io/auth/peer_call.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"
#include "base/io/notify.h"
#include "fleet/controllers.h"
#include "fleet/defaults.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CALL_US 5000000 /* deadline of one question; the next one waits for it */
#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define LOAD_FRESH_US 3000000 /* age up to which a reported load is used */
#define BRISK_US 100000       /* between questions while a change of state is awaited */
#define LEAVE_US 1000000      /* the drain ends so long before the machine goes: time to report */
#define LATE_US 1000000       /* a look later than its period by this was late */
#define LAST_WORDS_US 1000000 /* deadline of the last report */
#define CLOCK_SAME 1e-6       /* difference that a clock may have after going through JSON */
#define UNHEARD_US 5000000

struct question {
    struct peer_call call;
    struct log_limit log;
};

struct agent {
    const struct agent_config *config;
    struct instance in;
    struct sup_config sup_config;
    struct sup sup;
    struct loop *loop;
    struct tls *tls;
    struct http_client *client;
    struct signer *signer;
    struct loop_timer tick;
    struct notify_watch manager;
    struct loop_watch watch; /* the engine's pidfd */
    struct face *face;       /* NULL: none */
    struct proc engine;      /* id.pid 0: none */
    uint16_t engine_port;
    struct credentials held;
    struct key_file scrapers;
    struct tls *serve; /* of the agent's own port; NULL: plain */

    const struct engine_driver *driver;
    struct look look;
    char engine_id[AUTH_ID_BYTES_MAX]; /* that signs the look's calls */
    struct translator *translator;     /* NULL: the engine serves routers itself */
    struct question tell, order;
    struct controllers controllers;
    struct engine_report info; /* as last seen; strings are the look's */
    bool has_info;
    int64_t healthy_us, load_us; /* 0: not since the spawn */
    struct log_limit look_log;
    int64_t asked_us; /* silence before this is judged: last probe sent or excused */

    uint64_t boot, seq;
    int64_t lease_until_us, report_due_us;
    int64_t leaves_us;   /* the provider takes the machine away then; 0: no notice */
    int64_t adopted_us;  /* when the agent started and found an engine; 0: found none */
    double clock_wished; /* 0: none */
    double clock_asked;  /* in the order under way */
    bool drain_wished, started, last_words;
    char trouble[REPORT_TEXT_BYTES_MAX];
    uint64_t oom_kills;  /* of our control group, when the engine was started */
    uint32_t unfinished; /* requests in flight when the drain's time was over */
    int rc;
    struct err *err;
};

static void carry_out(struct agent *a, uint32_t actions);
static void look(struct agent *a);
static void tell(struct agent *a);

/* ---- the engine's process ---- */

static bool has_engine(const struct agent *a)
{
    enum sup_state s = a->sup.state;
    return a->engine.id.pid != 0 ||
           (a->in.adopts && (s == SUP_STARTING || s == SUP_UP || s == SUP_DRAINING));
}

static void forget_engine(struct agent *a)
{
    if (a->engine.id.pid != 0) {
        loop_watch_del(a->loop, &a->watch);
        proc_close(&a->engine);
    }
    a->engine = (struct proc){ 0 };
    a->has_info = false;
    a->healthy_us = a->load_us = 0;
    a->asked_us = loop_now_us(a->loop);
    look_forget(&a->look);
    peer_call_cancel(&a->order.call);
}

static void feed(struct agent *a, enum sup_event e)
{
    enum sup_state before = a->sup.state;
    uint32_t actions = sup_feed(&a->sup, &a->sup_config, e, loop_now_us(a->loop));
    if (a->sup.state != before)
        log_event(LOG_INFO, "engine_state", "instance=%.*s from=%s to=%s why=%s",
                  STR_ARG(a->in.spec.instance), sup_state_text(before),
                  sup_state_text(a->sup.state), sup_event_text(e));
    carry_out(a, actions);
}

static void on_engine_end(void *arg, uint32_t events)
{
    (void)events;
    struct agent *a = arg;
    struct proc_exit how = { 0 };
    if (a->engine.child && proc_reap(&a->engine, &how) == -EAGAIN) return;
    if (!how.known)
        snprintf(a->trouble, sizeof a->trouble, "the engine ended");
    else
        snprintf(a->trouble, sizeof a->trouble, "the engine ended %s %d%s",
                 how.killed ? "by signal" : "with status", how.code,
                 proc_oom_kills() > a->oom_kills ? ": the memory limit was reached" : "");
    log_event(LOG_WARN, "engine_ended", "instance=%.*s pid=%lld how=%s",
              STR_ARG(a->in.spec.instance), (long long)a->engine.id.pid, a->trouble);
    forget_engine(a);
    feed(a, SUP_EXITED);
}

static int watch_engine(struct agent *a)
{
    a->watch = (struct loop_watch){ .fd = a->engine.pidfd, .fn = on_engine_end, .arg = a };
    return loop_watch_add(a->loop, &a->watch, EPOLLIN);
}

static void spawn_engine(struct agent *a)
{
    struct err err = { 0 };
    a->oom_kills = proc_oom_kills();
    int rc = instance_spawn(&a->in, &a->engine, &a->engine_port, &err);
    if (rc == 0 && watch_engine(a) < 0) {
        /* Its end would go unnoticed: it must not run. */
        (void)proc_signal_group(&a->engine.id, SIGKILL, NULL);
        proc_close(&a->engine);
        rc = err_set(&err, -ENOMEM, "the engine cannot be watched");
    }
    if (rc < 0) {
        a->engine = (struct proc){ 0 };
        snprintf(a->trouble, sizeof a->trouble, "%s", err_text(&err, rc));
        log_event(LOG_ERROR, "engine_not_started", "instance=%.*s error=%s",
                  STR_ARG(a->in.spec.instance), a->trouble);
        feed(a, SUP_EXITED);
        return;
    }
    log_event(LOG_INFO, "engine_started", "instance=%.*s pid=%lld port=%u",
              STR_ARG(a->in.spec.instance), (long long)a->engine.id.pid, a->engine_port);
}

static void adopt_engine(struct agent *a)
{
    if (instance_find_engine(&a->in, &a->engine, &a->engine_port) < 0) return;
    if (watch_engine(a) < 0) {
        proc_close(&a->engine);
        a->engine = (struct proc){ 0 };
        return;
    }
    a->started = true;
    a->adopted_us = loop_now_us(a->loop);
    sup_adopt(&a->sup, a->adopted_us);
    log_event(LOG_INFO, "engine_adopted", "instance=%.*s pid=%lld port=%u",
              STR_ARG(a->in.spec.instance), (long long)a->engine.id.pid, a->engine_port);
}

/* ---- actions ---- */

/* Carries out what would start or end an adopted engine. */
static void let_be(struct agent *a, uint32_t actions)
{
    forget_engine(a);
    if (actions & SUP_ACT_SPAWN) a->engine_port = a->in.adopted_port;
    if (actions & (SUP_ACT_TERM | SUP_ACT_KILL)) feed(a, SUP_EXITED);
}

static void carry_out(struct agent *a, uint32_t actions)
{
    const uint32_t on_process = SUP_ACT_SPAWN | SUP_ACT_TERM | SUP_ACT_KILL;
    if (a->in.adopts && actions & on_process) {
        let_be(a, actions);
        actions &= ~on_process;
    }
    if (actions & SUP_ACT_SPAWN) spawn_engine(a);
    /* -ESRCH: it is gone, and its pidfd says so in this turn or the next. */
    if (actions & SUP_ACT_TERM) (void)proc_signal(&a->engine.id, SIGTERM, NULL);
    if (actions & SUP_ACT_KILL) (void)proc_signal_group(&a->engine.id, SIGKILL, NULL);
    if (actions & (SUP_ACT_REPORT | SUP_ACT_END)) tell(a);
}

/* ---- time ---- */

/* Notes what was still in flight when a drain's time was over, for the person who waits for its end. */
static void note_late_drain(struct agent *a, const struct sup_view *v)
{
    if (a->sup.why != sup_event_text(SUP_DRAIN_LATE) || v->in_flight == 0) return;
    a->unfinished = v->in_flight;
    snprintf(a->trouble, sizeof a->trouble, "the drain took too long: %u requests were in flight",
             v->in_flight);
}

static void look(struct agent *a)
{
    int64_t now = loop_now_us(a->loop);
    struct sup_view v = { .now_us = now,
                          .born_us = a->in.born_us,
                          .lease_until_us = a->lease_until_us,
                          .leaves_us = a->leaves_us,
                          .healthy_us = a->healthy_us,
                          .load_known = a->load_us && now - a->load_us <= LOAD_FRESH_US,
                          .in_flight = a->info.running + a->info.waiting };
    enum sup_state before = a->sup.state;
    int64_t looked_us = a->sup.looked_us;
    uint32_t lates = a->sup.lates;
    uint32_t actions = sup_tick(&a->sup, &a->sup_config, &v);
    if (a->sup.lates != lates)
        log_event(LOG_WARN, "agent_late", "instance=%.*s seconds=%.3f",
                  STR_ARG(a->in.spec.instance), (double)(now - looked_us) * 1e-6);
    if (a->sup.state != before) note_late_drain(a, &v);
    if (a->sup.state != before)
        log_event(LOG_INFO, "engine_state", "instance=%.*s from=%s to=%s why=%s",
                  STR_ARG(a->in.spec.instance), sup_state_text(before),
                  sup_state_text(a->sup.state), a->sup.why);
    carry_out(a, actions);
}

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
    a->info.host = s->engine_host;
    a->info.port = a->engine_port;
    a->info.tls = s->engine_tls;
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

static void on_seen(void *arg, enum look_end how, enum http_end http)
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
    look(a); /* ready is reported at once: requests may be waiting for it */
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
static void ask(struct agent *a, struct question *q, struct peer_question *what,
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
                                   .deadline_us = loop_now_us(a->loop) + CALL_US };
}

static void probe(struct agent *a)
{
    if (!has_engine(a)) return;
    struct peer_question q = of_engine(a, (struct str){ 0 });
    sign_as(a, "engine", engine_traits[a->in.spec.kind].serves_itself, a->engine_id, &q.as);
    if (!look_begin(&a->look, &q, loop_now_us(a->loop) + CALL_US)) excuse(a, HTTP_END_LOCAL);
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
    if (!r->known) return; /* the controller does not know the instance yet: no wishes */
    if (r->leaves_ms > 0 && !a->leaves_us)
        log_event(LOG_WARN, "notice", "instance=%.*s leaves_in_s=%.1f",
                  STR_ARG(a->in.spec.instance), r->leaves_ms / 1e3);
    if (r->leaves_ms > 0) a->leaves_us = now + (int64_t)r->leaves_ms * 1000;
    if (r->drain != a->drain_wished) {
        a->drain_wished = r->drain;
        feed(a, r->drain ? SUP_DRAIN : SUP_KEEP);
    }
    if (r->clock > 0) a->clock_wished = r->clock;
    set_clock(a);
    if (r->stop) feed(a, SUP_WANT_DOWN);
}

/* Returns true if the reply is the leader's, and of no earlier term than the last. Otherwise another controller
 * is asked next; at once, if this one stands by and names the leader. */
static bool is_heeded(struct agent *a, const struct peer_call *call, enum http_end end,
                      struct agent_reply *reply)
{
    CLEANUP(arena_fini) struct arena arena;
    struct standby_reply standby;
    arena_init(&arena, ANSWER_BYTES_MAX);
    if (peer_call_is_good(call, end) &&
        agent_reply_decode(buf_view(&call->body), &arena, reply, NULL) == 0)
        return controllers_heard(&a->controllers, reply->epoch, loop_now_us(a->loop));
    bool stands_by = end == HTTP_END_OK && call->status == 503 &&
                     standby_reply_decode(buf_view(&call->body), &arena, &standby) == 0;
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
    struct agent_reply reply;
    bool good = is_heeded(a, call, end, &reply);
    if (a->last_words && a->report_due_us > 0) {
        loop_stop(a->loop);
        return;
    }
    a->last_words = false; /* said again, to the leader */
    if (good) heed(a, &reply);
    if (a->sup.state == SUP_ENDED) tell(a); /* ended while the last report was under way */
}

static void tell(struct agent *a)
{
    bool ended = a->sup.state == SUP_ENDED;
    if (a->tell.call.call || a->last_words) { /* the next report has it; see on_tell_reply */
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
                              .version = STR(MUSTER_VERSION),
                              .date_us = clock_wall_us(),
                              .unfinished = a->unfinished,
                              .has_engine = a->has_info,
                              .engine = a->info };
    if (a->in.adopts) {
        r.service = a->in.spec.service;
        r.pool = a->in.spec.pool;
    }
    if (a->translator) translator_fill(a->translator, &r.engine);
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
                                   .deadline_us = now + (ended ? LAST_WORDS_US : CALL_US) };
        ask(a, &a->tell, &q, on_tell_reply);
    }
    a->last_words = ended;
    if (ended && !a->tell.call.call) loop_stop(a->loop);
}

/* ---- ticks ---- */

/* Returns true while an adopted engine has not replied yet. No report is sent meanwhile: one without the
 * engine would take its endpoint from the routers, and with it their record of its cache. */
static bool is_finding_out(const struct agent *a)
{
    int64_t passed_us = loop_now_us(a->loop) - a->adopted_us;
    return a->adopted_us && !a->has_info && a->sup.state == SUP_STARTING && passed_us < CALL_US;
}

static void on_tick(void *arg)
{
    struct agent *a = arg;
    loop_assert_owner(a->loop);
    int64_t now = loop_now_us(a->loop);
    if (!a->started && now >= a->in.start_us) {
        a->started = true;
        feed(a, SUP_WANT_UP);
    }
    look(a);
    probe(a);
    if (!a->in.adopts) instance_bound_log(&a->in, (uint64_t)a->config->log_max);
    /* Before its start the instance does not report: its machine counts as not there yet. */
    if (a->started && now >= a->report_due_us && !is_finding_out(a)) tell(a);
    bool brisk =
        a->sup.state == SUP_STARTING || a->sup.state == SUP_DRAINING || a->report_due_us == 0;
    int64_t wait = brisk ? BRISK_US : a->config->report_us;
    int64_t until_start = a->in.start_us - now;
    if (!a->started && until_start < wait) wait = until_start > 0 ? until_start : 0;
    if (loop_timer_set(a->loop, &a->tick, now + wait) < 0) {
        a->rc = err_set(a->err, -ENOMEM, "the agent's clock cannot be set");
        loop_stop(a->loop);
    }
}

static void on_signal(void *arg, int signo)
{
    struct agent *a = arg;
    log_event(LOG_INFO, "told_to_end", "instance=%.*s signal=%d", STR_ARG(a->in.spec.instance),
              signo);
    notify_stopping("drains the engine, then ends");
    a->started = true;
    feed(a, SUP_WANT_DOWN);
}

/* ---- start ---- */

static int cut_address(struct str text, struct str *ret_host, uint32_t *ret_port, const char *what,
                       struct err *err)
{
    uint16_t port;
    int rc = str_host_port(text, ret_host, &port);
    if (rc < 0)
        return err_set(err, rc, "%s: want HOST:PORT, not '" STR_FMT "'", what, STR_ARG(text));
    *ret_port = port;
    return 0;
}

/* Makes the launch document that an adopted engine has not got. */
static int adopt_open(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    struct launch_spec s = { .instance = c->name,
                             .service = c->service,
                             .pool = c->pool,
                             .secret_file = c->secret_file,
                             .tls_ca = c->tls.ca,
                             .tls_certificate = c->tls.certificate,
                             .tls_key = c->tls.key,
                             .kind = (enum engine_kind)c->engine_kind,
                             .tokenizer = c->tokenizer,
                             .kv_events = c->kv_events.len > 0 };
    struct str engine = c->adopt, controller = c->controller;
    uint32_t port = 0;
    s.engine_tls = tls_url_cut(&engine);
    s.controller_tls = tls_url_cut(&controller);
    while (engine.len > 0 && engine.data[engine.len - 1] == '/')
        engine.len--;
    int rc = cut_address(engine, &s.engine_host, &port, "agent.adopt", err);
    if (rc == 0 && controller.len > 0)
        rc = cut_address(controller, &s.controller_host, &s.controller_port, "agent.controller",
                         err);
    if (rc == 0 && controller.len > 0 && (s.service.len == 0 || s.pool.len == 0))
        rc = err_set(err, -EINVAL, "agent.adopt: name the service and the pool that it serves");
    if (rc == 0) rc = instance_adopt(&a->in, &s, (uint16_t)port, err);
    a->engine_port = (uint16_t)port;
    return rc;
}

static int open_instance(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    a->in.lock_fd = -1;
    if ((c->spec.len > 0) == (c->adopt.len > 0))
        return err_set(err, -EINVAL,
                       "want agent.spec, the launch document of an instance, or "
                       "agent.adopt, the URL of an engine that runs");
    if (c->spec.len == 0) return adopt_open(a, err);
    if (c->await) instance_await(c->spec);
    return instance_open(&a->in, c->spec, err);
}

static void on_tokenizer(void *arg)
{
    ((struct agent *)arg)->report_due_us = 0; /* routers can tokenise for it from now on */
}

static bool report_of(void *arg, struct engine_report *ret)
{
    const struct agent *a = arg;
    if (!a->has_info) return false;
    *ret = a->info;
    translator_fill(a->translator, ret);
    return true;
}

static void meter(void *arg, struct metrics *m)
{
    const struct agent *a = arg;
    const struct engine_report *e = &a->info;
    const struct str kind = str_from(engine_kind_names[a->in.spec.kind]);
    const struct {
        enum agent_metric metric;
        double value;
    } list[] = {
        { AM_ENGINE_READY, a->has_info && sup_reported(a->sup.state) == AGENT_UP },
        { AM_RUNNING, e->running },
        { AM_WAITING, e->waiting },
        { AM_KV_TOKENS, (double)(e->pages_total - e->pages_free) * e->page_tokens },
        { AM_KV_TOKENS_MAX, (double)e->pages_total * e->page_tokens },
        { AM_REQUESTS, (double)e->requests_total },
        { AM_PROMPT_TOKENS, (double)e->prompt_tokens_total },
        { AM_CACHED_TOKENS, (double)e->cached_tokens_total },
        { AM_GENERATED_TOKENS, (double)e->generated_tokens_total },
    };
    for (size_t i = 0; i < COUNT_OF(list); i++)
        metric_set(metric_series(m, list[i].metric, &kind), list[i].value);
    metric_set(metric_of(m, AM_RESTARTS), sup_restarts(&a->sup));
}

/* Opens the agent's own API for an engine that serves routers only OpenAI's. */
static int open_translator(struct agent *a, tokenizer_load_fn *load, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    char events[INSTANCE_SOCKET_BYTES + 8], replay[INSTANCE_SOCKET_BYTES + 8], host[256];
    struct str at = a->in.adopts ? STR("127.0.0.1") : s->engine_host;
    uint32_t port = 0;
    if (engine_traits[s->kind].serves_itself) return 0;
    if (a->config->serve_at.len > 0) {
        int rc = cut_address(a->config->serve_at, &at, &port, "agent.serve", err);
        if (rc < 0) return rc;
    }
    snprintf(host, sizeof host, STR_FMT, STR_ARG(at));
    struct translator_config c = { .loop = a->loop,
                                   .held = &a->held,
                                   .scrapers = &a->scrapers,
                                   .tls = a->serve,
                                   .host = host,
                                   .port = (uint16_t)port,
                                   .tokenizer = s->tokenizer,
                                   .load = load,
                                   .kv_events = a->config->kv_events,
                                   .kv_replay = a->config->kv_replay,
                                   .report = report_of,
                                   .meter = meter,
                                   .arg = a,
                                   .on_ready = on_tokenizer };
    if (c.tokenizer.len == 0 && a->driver->tokenizer_in_model) c.tokenizer = s->model;
    memcpy(events, "ipc://", 6);
    memcpy(replay, "ipc://", 6);
    if (instance_kv_paths(&a->in, events + 6, replay + 6)) {
        c.kv_events = str_from(events);
        c.kv_replay = str_from(replay);
    }
    return translator_new(&c, &a->translator, err);
}

static int open_calls(struct agent *a, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    const struct tls_section tls = { .certificate = s->tls_certificate,
                                     .key = s->tls_key,
                                     .ca = s->tls_ca };
    int rc = tls_section_open(&tls, &a->serve, &a->tls, err);
    const struct http_client_config client = { .tls = a->tls };
    if (rc == 0) rc = http_client_new(a->loop, &client, &a->client, err);
    const struct signer_config signer = {
        .loop = a->loop,
        .client = a->client,
        .secret = a->config->send_secret ? str_from(a->held.secret) : (struct str){ 0 },
    };
    return rc < 0 ? rc : signer_new(&signer, &a->signer, err);
}

/* Takes the controllers that the launch document names: the one that wrote it, and all. */
static int find_controllers(struct agent *a, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    if (s->controller_host.len == 0) return 0; /* an adopted engine may have none */
    char text[CONTROLLERS_HOST_BYTES + 32];
    bool v6 = str_find(s->controller_host, STR(":")) != SIZE_MAX;
    snprintf(text, sizeof text, "%s%s" STR_FMT "%s:%u", s->controller_tls ? "https://" : "",
             v6 ? "[" : "", STR_ARG(s->controller_host), v6 ? "]" : "", s->controller_port);
    int rc = controllers_add(&a->controllers, str_from(text), err);
    for (uint32_t i = 0; rc == 0 && i < s->controller_count; i++)
        rc = controllers_add(&a->controllers, s->controllers[i], err);
    return rc == -ENOSPC ? 0 : rc; /* the first ones do */
}

static bool engine_is_ready(void *arg, const char **ret_state)
{
    const struct agent *a = arg;
    *ret_state = sup_state_text(a->sup.state);
    return a->sup.state == SUP_UP && !a->drain_wished;
}

static int build(struct agent *a, tokenizer_load_fn *load, struct err *err)
{
    const struct agent_config *c = a->config;
    const struct launch_spec *s = &a->in.spec;
    a->driver = engine_driver_of(s->kind);
    a->sup_config = (struct sup_config){
        .start_us = max_i64(c->start_us, a->driver->start_us),
        .sick_us = c->sick_us,
        .drain_us = s->drain_ms ? (int64_t)s->drain_ms * 1000 : 300000000,
        .settle_us = c->settle_us,
        .stop_us = c->stop_us,
        .back_off_min_us = c->back_off_min_us,
        .back_off_max_us = c->back_off_max_us,
        .stable_us = c->stable_us,
        .failures_max = (uint32_t)c->failures_max,
        /* Ending the instance of an adopted engine saves nothing. */
        .grace_us = a->in.adopts      ? INT64_MAX
                    : s->grace_ms > 0 ? (int64_t)s->grace_ms * 1000
                                      : 900000000,
        .age_us = (int64_t)s->age_ms * 1000,
        .leave_us = LEAVE_US,
        .late_us = c->report_us + LATE_US,
    };
    int rc = find_controllers(a, err);
    if (rc == 0 && s->secret_file.len) rc = credentials_load(s->secret_file.data, &a->held, err);
    if (rc == 0) rc = key_file_load(c->metrics_key_file, &a->scrapers, err);
    if (rc == 0 && getrandom(&a->boot, sizeof a->boot, 0) != sizeof a->boot)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc == 0) rc = loop_new(&a->loop, err);
    /* Before the translator, which takes the first port that is free. */
    if (rc == 0 && c->listen.len > 0)
        rc = face_open(a->loop, c->listen, engine_is_ready, a, &a->face, err);
    if (rc == 0) rc = open_calls(a, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGTERM, on_signal, a, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGINT, on_signal, a, err);
    if (rc < 0) return rc;
    look_init(&a->look, a->loop, a->signer, a->driver);
    a->look.on_seen = on_seen;
    a->look.arg = a;
    rc = open_translator(a, load, err);
    if (rc < 0) return rc;
    /* The lease from before this start is not known: a whole grace begins now. */
    a->lease_until_us = loop_now_us(a->loop);
    a->tick = (struct loop_timer){ .fn = on_tick, .arg = a };
    return loop_timer_set(a->loop, &a->tick, loop_now_us(a->loop));
}

static void teardown(struct agent *a)
{
    if (a->look.loop) forget_engine(a); /* closes our descriptors; an engine lives on */
    face_close(a->face);
    translator_free(a->translator);
    peer_call_fini(&a->tell.call);
    look_fini(&a->look);
    peer_call_fini(&a->order.call);
    http_client_free(a->client);
    signer_free(a->signer);
    tls_free(a->tls);
    tls_free(a->serve);
    notify_watch_stop(&a->manager);
    notify_watch_fini(&a->manager);
    loop_free(a->loop);
    key_file_fini(&a->scrapers);
    credentials_wipe(&a->held);
}

/* The agent is ready when it supervises; whether its engine is ready it tells the controller. */
static void tell_ready(const struct agent *a)
{
    char status[128];
    log_event(LOG_INFO, "agent_ready", "instance=%.*s controller=%.*s:%u",
              STR_ARG(a->in.spec.instance), STR_ARG(a->in.spec.controller_host),
              a->in.spec.controller_port);
    if (a->translator)
        log_event(LOG_INFO, "agent_serves", "instance=%.*s kind=%s", STR_ARG(a->in.spec.instance),
                  engine_kind_names[a->in.spec.kind]);
    snprintf(status, sizeof status, "supervises instance " STR_FMT, STR_ARG(a->in.spec.instance));
    notify_ready(status);
}

int agent_main(const struct agent_config *config, tokenizer_load_fn *load, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level((enum log_level)config->log_level);
    log_set_max((uint64_t)config->log_max);
    struct agent *a = calloc(1, sizeof *a);
    must(a);
    a->config = config;
    a->err = err;
    int rc = open_instance(a, err);
    if (config->engine_host.len > 0) {
        a->in.spec.engine_host = config->engine_host;
        a->in.alone = true; /* an address of its own */
    }
    a->in.shares_log = config->engine_log == ENGINE_LOG_INHERIT;
    if (rc == 0 && config->engine_port)
        rc = instance_become_engine(&a->in, (uint16_t)config->engine_port, err);
    if (rc == 0 && !a->in.adopts) rc = instance_lock(&a->in, err);
    if (rc == 0) rc = build(a, load, err);
    if (rc == 0) rc = notify_watch_start(&a->manager, a->loop, NULL, 0, err);
    if (rc == 0) {
        tell_ready(a);
        if (!a->in.adopts) adopt_engine(a);
        rc = loop_run(a->loop);
        if (a->rc < 0) rc = a->rc;
    }
    teardown(a);
    instance_close(&a->in);
    free(a);
    return rc;
}
