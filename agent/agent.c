/* agent.c - the loop around the supervisor: ask the engine, tell the controller, obey the table.
 *
 * Once a second: the engine is asked for /internal/info; its answer (or its silence) and the clock
 * go through sup_tick, whose actions are carried out; the controller is told, and its wishes go
 * through sup_feed. The two calls are independent: a controller that is away changes nothing but
 * the lease. Both are in questions.c. */
#include "agent/agent_part.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LOAD_FRESH_US 3000000 /* an engine's word about its load is good for so long */
#define BRISK_US 100000       /* between questions while somebody waits for the answer */
#define LATE_US 1000000       /* a turn that comes later than this was late */

static void carry_out(struct agent *a, uint32_t actions);

/* ---- the engine's process ---- */

static void forget_engine(struct agent *a)
{
    if (a->engine.id.pid == 0) return;
    loop_watch_del(a->loop, &a->watch);
    proc_close(&a->engine);
    a->engine = (struct proc){ 0 };
    a->has_info = false;
    a->healthy_us = a->load_us = 0;
    a->asked_us = loop_now_us(a->loop);
    if (a->probe.call) signed_call_cancel(a->probe.call);
    if (a->order.call) signed_call_cancel(a->order.call);
    a->probe.call = a->order.call = NULL;
}

void agent_feed(struct agent *a, enum sup_event e)
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
        snprintf(a->trouble, sizeof a->trouble, "the engine ended %s %d",
                 how.killed ? "by signal" : "with status", how.code);
    log_event(LOG_WARN, "engine_ended", "instance=%.*s pid=%lld how=%s",
              STR_ARG(a->in.spec.instance), (long long)a->engine.id.pid, a->trouble);
    forget_engine(a);
    agent_feed(a, SUP_EXITED);
}

static int watch_engine(struct agent *a)
{
    a->watch = (struct loop_watch){ .fd = a->engine.pidfd, .fn = on_engine_end, .arg = a };
    return loop_watch_add(a->loop, &a->watch, EPOLLIN);
}

static void spawn_engine(struct agent *a)
{
    struct err err = { 0 };
    int rc = instance_spawn(&a->in, &a->engine, &a->engine_port, &err);
    if (rc == 0 && watch_engine(a) < 0) {
        /* Nobody would notice its end: it must not run. */
        (void)proc_signal_group(&a->engine.id, SIGKILL, NULL);
        proc_close(&a->engine);
        rc = err_set(&err, -ENOMEM, "the engine cannot be watched");
    }
    if (rc < 0) {
        a->engine = (struct proc){ 0 };
        snprintf(a->trouble, sizeof a->trouble, "%s", err_text(&err, rc));
        log_event(LOG_ERROR, "engine_not_started", "instance=%.*s error=%s",
                  STR_ARG(a->in.spec.instance), a->trouble);
        agent_feed(a, SUP_EXITED);
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

static void carry_out(struct agent *a, uint32_t actions)
{
    if (actions & SUP_ACT_SPAWN) spawn_engine(a);
    /* -ESRCH: it is gone, and its pidfd says so in this turn or the next. */
    if (actions & SUP_ACT_TERM) (void)proc_signal(&a->engine.id, SIGTERM, NULL);
    if (actions & SUP_ACT_KILL) (void)proc_signal_group(&a->engine.id, SIGKILL, NULL);
    if (actions & (SUP_ACT_REPORT | SUP_ACT_END)) agent_tell(a);
}

/* ---- time ---- */

void agent_look(struct agent *a)
{
    int64_t now = loop_now_us(a->loop);
    struct sup_view v = { .now_us = now,
                          .born_us = a->in.born_us,
                          .lease_until_us = a->lease_until_us,
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
    if (a->sup.state != before)
        log_event(LOG_INFO, "engine_state", "instance=%.*s from=%s to=%s why=%s",
                  STR_ARG(a->in.spec.instance), sup_state_text(before),
                  sup_state_text(a->sup.state), a->sup.why);
    carry_out(a, actions);
}

/* An engine that was adopted is as it was until it has answered: a report without it would take its
 * endpoint from the routers, and with it what they know of its cache. */
static bool is_finding_out(const struct agent *a)
{
    int64_t passed_us = loop_now_us(a->loop) - a->adopted_us;
    return a->adopted_us && !a->has_info && a->sup.state == SUP_STARTING && passed_us < CALL_US;
}

static void on_tick(void *arg)
{
    struct agent *a = arg;
    int64_t now = loop_now_us(a->loop);
    if (!a->started && now >= a->in.start_us) {
        a->started = true;
        agent_feed(a, SUP_WANT_UP);
    }
    agent_look(a);
    agent_probe(a);
    instance_bound_log(&a->in, (uint64_t)a->config->log_max);
    /* Before its start the machine is not there yet, as far as anybody can see. */
    if (a->started && now >= a->report_due_us && !is_finding_out(a)) agent_tell(a);
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
    a->started = true;
    agent_feed(a, SUP_WANT_DOWN);
}

/* ---- start ---- */

static int build(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    const struct launch_spec *s = &a->in.spec;
    a->sup_config = (struct sup_config){
        .start_us = c->start_us,
        .sick_us = c->sick_us,
        .drain_us = s->drain_ms ? (int64_t)s->drain_ms * 1000 : 300000000,
        .settle_us = c->settle_us,
        .stop_us = c->stop_us,
        .back_off_min_us = c->back_off_min_us,
        .back_off_max_us = c->back_off_max_us,
        .stable_us = c->stable_us,
        .failures_max = (uint32_t)c->failures_max,
        .grace_us = s->grace_ms ? (int64_t)s->grace_ms * 1000 : 900000000,
        .age_us = (int64_t)s->age_ms * 1000,
        .late_us = c->report_us + LATE_US,
    };
    int rc = 0;
    if (s->secret_file.len) rc = credentials_load(s->secret_file.data, &a->held, err);
    if (rc == 0 && getrandom(&a->boot, sizeof a->boot, 0) != sizeof a->boot)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc == 0) rc = loop_new(&a->loop, err);
    const struct tls_section tls = { .certificate = s->tls_certificate,
                                     .key = s->tls_key,
                                     .ca = s->tls_ca };
    if (rc == 0) rc = tls_section_open(&tls, NULL, &a->tls, err);
    const struct http_client_config client = { .tls = a->tls };
    if (rc == 0) rc = http_client_new(a->loop, &client, &a->client, err);
    const struct signer_config signer = {
        .loop = a->loop,
        .client = a->client,
        .secret = c->send_secret ? str_from(a->held.secret) : (struct str){ 0 },
    };
    if (rc == 0) rc = signer_new(&signer, &a->signer, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGTERM, on_signal, a, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGINT, on_signal, a, err);
    if (rc < 0) return rc;
    for (int i = 0; i < 2; i++)
        arena_init(&a->info_arena[i], ANSWER_BYTES_MAX);
    buf_init(&a->probe.body, ANSWER_BYTES_MAX);
    buf_init(&a->tell.body, ANSWER_BYTES_MAX);
    buf_init(&a->order.body, ANSWER_BYTES_MAX);
    /* The lease of before our start is not known: a whole grace begins now. */
    a->lease_until_us = loop_now_us(a->loop);
    a->tick = (struct loop_timer){ .fn = on_tick, .arg = a };
    return loop_timer_set(a->loop, &a->tick, loop_now_us(a->loop));
}

static void teardown(struct agent *a)
{
    if (a->loop) forget_engine(a); /* our descriptors; an engine lives on */
    http_client_free(a->client);
    signer_free(a->signer);
    tls_free(a->tls);
    loop_free(a->loop);
    for (int i = 0; i < 2; i++)
        arena_fini(&a->info_arena[i]);
    buf_fini(&a->probe.body);
    buf_fini(&a->tell.body);
    buf_fini(&a->order.body);
    credentials_wipe(&a->held);
}

int agent_main(const struct agent_config *config, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level((enum log_level)config->log_level);
    log_set_max((uint64_t)config->log_max);
    struct agent *a = calloc(1, sizeof *a);
    must(a);
    a->config = config;
    a->err = err;
    int rc = instance_open(&a->in, config->spec, err);
    if (rc == 0 && config->engine_port)
        rc = instance_become_engine(&a->in, (uint16_t)config->engine_port, err);
    if (rc == 0) rc = instance_lock(&a->in, err);
    if (rc == 0) rc = build(a, err);
    if (rc == 0) {
        log_event(LOG_INFO, "agent_ready", "instance=%.*s controller=%.*s:%u",
                  STR_ARG(a->in.spec.instance), STR_ARG(a->in.spec.controller_host),
                  a->in.spec.controller_port);
        adopt_engine(a);
        rc = loop_run(a->loop);
        if (a->rc < 0) rc = a->rc;
    }
    teardown(a);
    instance_close(&a->in);
    free(a);
    return rc;
}
