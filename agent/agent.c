/* agent.c - runs the loop around the supervisor: signals, time, the engine's process, the supervisor's actions.
 *
 * Once a second the agent asks the engine about itself (look.h). The reply (or its absence) and the time
 * go through sup_tick, and the actions that it returns are carried out. The agent then reports to the
 * controller, and the wishes in the reply go through sup_feed. The two calls are independent: without
 * a controller only the lease runs out. Each has one call under way at most.
 *
 * An adopted engine is nobody's child: what would start or end a process here only forgets it, so that it
 * is reported and drained and otherwise left alone. */
#include "agent/agent.h"

#include "agent/agent_state.h"
#include "agent/join.h"
#include "agent/local_disk.h"
#include "base/io/loop/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define LOAD_FRESH_US 3000000 /* age up to which a reported load is used */
#define BRISK_US 100000       /* between questions while a change of state is awaited */

static void carry_out(struct agent *a, uint32_t actions);

/* ---- the engine's process ---- */

bool agent_has_engine(const struct agent *a)
{
    enum sup_state s = a->sup.state;
    return a->engine.id.pid != 0 ||
           (a->in.adopts && (s == SUP_STARTING || s == SUP_UP || s == SUP_DRAINING));
}

void agent_forget_engine(struct agent *a)
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
        snprintf(a->trouble, sizeof a->trouble, "the engine ended %s %d%s",
                 how.killed ? "by signal" : "with status", how.code,
                 proc_oom_kills() > a->oom_kills ? ": the memory limit was reached" : "");
    log_event(LOG_WARN, "engine_ended", "instance=%.*s pid=%lld how=%s",
              STR_ARG(a->in.spec.instance), (long long)a->engine.id.pid, a->trouble);
    agent_forget_engine(a);
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
        agent_feed(a, SUP_EXITED);
        return;
    }
    a->spawned_us = loop_now_us(a->loop);
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
    agent_forget_engine(a);
    if (actions & SUP_ACT_SPAWN) a->engine_port = a->in.adopted_port;
    if (actions & (SUP_ACT_TERM | SUP_ACT_KILL)) agent_feed(a, SUP_EXITED);
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
    if (actions & (SUP_ACT_REPORT | SUP_ACT_END)) agent_tell(a);
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

void agent_look(struct agent *a)
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
    if (a->sup.state == SUP_UP && before == SUP_STARTING && a->spawned_us)
        weights_loaded(a->weights, now - a->spawned_us);
    if (a->sup.state != before)
        log_event(LOG_INFO, "engine_state", "instance=%.*s from=%s to=%s why=%s",
                  STR_ARG(a->in.spec.instance), sup_state_text(before),
                  sup_state_text(a->sup.state), a->sup.why);
    carry_out(a, actions);
}

/* ---- ticks ---- */

/* Returns true while an adopted engine has not replied yet. No report is sent meanwhile: one without the
 * engine would take its endpoint from the routers, and with it their record of its cache. */
static bool is_finding_out(const struct agent *a)
{
    int64_t passed_us = loop_now_us(a->loop) - a->adopted_us;
    return a->adopted_us && !a->has_info && a->sup.state == SUP_STARTING &&
           passed_us < AGENT_CALL_US;
}

static void on_weights(void *arg, int rc, const char *why)
{
    struct agent *a = arg;
    if (a->sup.state != SUP_DOWN) return;
    if (rc < 0) snprintf(a->trouble, sizeof a->trouble, "%s", why);
    agent_feed(a, rc < 0 ? SUP_WANT_DOWN : SUP_WANT_UP);
}

/* Starts the engine, once its model is there. */
static void begin(struct agent *a)
{
    struct err err = { 0 };
    const struct weights_config config = { .held = &a->held,
                                           .gives = a->config->give_weights,
                                           .rate = (uint64_t)a->config->give_rate };
    int rc =
        a->in.adopts ? 0 : weights_open(a->loop, &a->in, &config, on_weights, a, &a->weights, &err);
    if (rc < 0) snprintf(a->trouble, sizeof a->trouble, "%s", err_text(&err, rc));
    if (!weights_is_coming(a->weights)) agent_feed(a, SUP_WANT_UP);
}

/* Says that a driver does not answer, which is a sign of a fault and none by itself. */
static void watch_driver(struct agent *a)
{
    int64_t us = gpu_watch_silent_us(a->gpus);
    if (us > 0)
        snprintf(a->trouble, sizeof a->trouble, "the driver of the GPUs does not answer for %.0f s",
                 (double)us * 1e-6);
}

void agent_on_tick(void *arg)
{
    struct agent *a = arg;
    loop_assert_owner(a->loop);
    int64_t now = loop_now_us(a->loop);
    if (!a->started && now >= a->in.start_us) {
        a->started = true;
        begin(a);
    }
    agent_look(a);
    agent_probe(a);
    watch_driver(a);
    if (!a->in.adopts) instance_bound_log(&a->in, (uint64_t)a->config->log_max);
    /* Before its start the instance does not report: its machine counts as not there yet. */
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

void agent_on_signal(void *arg, int signo)
{
    struct agent *a = arg;
    log_event(LOG_INFO, "told_to_end", "instance=%.*s signal=%d", STR_ARG(a->in.spec.instance),
              signo);
    notify_stopping("drains the engine, then ends");
    a->started = true;
    agent_feed(a, SUP_WANT_DOWN);
}

/* Reports the notice at once: what runs here has this long to go elsewhere. */
void agent_on_notice(void *arg, int64_t left_us, const char *why)
{
    struct agent *a = arg;
    if (left_us < 0 && (a->at_risk || a->noticed_us)) return;
    if (left_us < 0) {
        log_event(LOG_WARN, "at_risk", "instance=%.*s source=%s why=%s",
                  STR_ARG(a->in.spec.instance), notice_source_names[a->config->notice], why);
        a->at_risk = true;
        snprintf(a->notice_why, sizeof a->notice_why, "%s", why);
        agent_tell(a);
        return;
    }
    int64_t leaves_us = loop_now_us(a->loop) + left_us;
    if (a->noticed_us && a->noticed_us <= leaves_us) return;
    log_event(LOG_WARN, "notice", "instance=%.*s leaves_in_s=%.1f source=%s why=%s",
              STR_ARG(a->in.spec.instance), (double)left_us * 1e-6,
              notice_source_names[a->config->notice], why);
    a->noticed_us = leaves_us;
    if (!a->leaves_us || leaves_us < a->leaves_us) a->leaves_us = leaves_us;
    snprintf(a->notice_why, sizeof a->notice_why, "%s", why);
    agent_tell(a);
}

void agent_on_gpus(void *arg)
{
    ((struct agent *)arg)->report_due_us = 0;
}

/* Does what a fault of a GPU calls for. An engine that somebody else started is theirs to start again or to take
 * away: its machine's state is reported. A machine that is broken is given up without being told to: nothing runs
 * there, and a controller that is away must not keep it billed. */
void agent_on_fault(void *arg, const struct gpu_event *e)
{
    struct agent *a = arg;
    if (e->action != GPU_IGNORE) snprintf(a->trouble, sizeof a->trouble, "%s", e->why);
    if (e->action == GPU_IGNORE)
        a->report_due_us = 0;
    else
        agent_tell(a);
    if (a->in.adopts) return;
    if (e->action == GPU_RESTART) agent_feed(a, SUP_FAULT);
    if (e->action == GPU_BROKEN) agent_feed(a, SUP_DRAIN);
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

/* Lets an engine of another kind download to a disk of this machine's own. What its environment says already holds. */
static void use_local_disk(const struct agent_config *c, const struct instance *in)
{
    struct local_disks disks = { 0 };
    char sysfs[LOCAL_DISK_PATH_BYTES], home[LOCAL_DISK_PATH_BYTES + 32];
    struct str folder = c->local_disk;
    if (str_eq(folder, STR("none")) || engine_traits[in->spec.kind].serves_itself) return;
    if (str_eq(folder, STR("auto"))) {
        snprintf(sysfs, sizeof sysfs, STR_FMT, STR_ARG(c->sysfs));
        local_disks_find(sysfs, "/proc/self/mountinfo", &disks);
        if (disks.count > disks.mounted)
            log_event(LOG_WARN, "local_disk_unused", "disks=%u mounted=%u", disks.count,
                      disks.mounted);
        folder = str_from(disks.folder);
    }
    if (folder.len == 0) return;
    snprintf(home, sizeof home, STR_FMT "/huggingface", STR_ARG(folder));
    log_event(LOG_INFO, "local_disk", "folder=%s bytes=%llu", home,
              (unsigned long long)disks.bytes);
    if (setenv("HF_HOME", home, 0) < 0) log_event(LOG_WARN, "local_disk_unused", "why=no memory");
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
    int rc = agent_open_instance(a, err);
    if (config->engine_host.len > 0) {
        a->in.spec.engine_host = config->engine_host;
        a->in.alone = true; /* an address of its own */
    }
    a->in.spec.tunnel |= config->tunnel;
    if (a->in.spec.tunnel && !a->in.adopts) a->in.spec.engine_host = STR("127.0.0.1");
    a->in.shares_log = config->engine_log == ENGINE_LOG_INHERIT;
    if (rc == 0 && config->engine_port) use_local_disk(config, &a->in);
    if (rc == 0 && config->engine_port)
        rc = instance_become_engine(&a->in, (uint16_t)config->engine_port, err);
    if (rc == 0 && !a->in.adopts) rc = instance_lock(&a->in, err);
    if (rc == 0) first_boot_open(&a->first_boot, a->in.spec.folder, clock_mono_us());
    if (rc == 0) rc = agent_find_controllers(a, err);
    if (rc == 0) rc = join_fleet(&a->in, &a->controllers, err);
    bool stays_out = rc == -EACCES || rc == -ETIMEDOUT || rc == -ECANCELED;
    if (stays_out) log_event(LOG_ERROR, "not_joined", "why=%s", err_text(err, rc));
    if (rc == 0) rc = agent_build(a, load, err);
    if (rc == 0) rc = notify_watch_start(&a->manager, a->loop, NULL, 0, err);
    if (rc == 0) {
        tell_ready(a);
        if (!a->in.adopts) adopt_engine(a);
        rc = loop_run(a->loop);
        if (a->rc < 0) rc = a->rc;
    }
    agent_teardown(a);
    instance_close(&a->in);
    free(a);
    return stays_out ? 0 : rc;
}
