/* agent.c - the supervisor's shell, in virtual time. */
#include "tests/sim/agent.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "tests/sim/world.h"

#include <stdio.h>

#define TICK_US (500 * MS)
#define REPORT_US SECOND
#define OFF_AFTER_END_US (5 * SECOND) /* the machine switches itself off */
#define PERF_TURNS 5                  /* turns after which an engine knows its speed */

static const struct sup_config config = {
    .start_us = 20 * SECOND,
    .sick_us = 5 * SECOND,
    .drain_us = SIM_DRAIN_US,
    .settle_us = 1500 * MS,
    .stop_us = 10 * SECOND,
    .back_off_min_us = 500 * MS,
    .back_off_max_us = 8 * SECOND,
    .stable_us = 20 * SECOND,
    .failures_max = 5,
    .grace_us = 60 * SECOND,
};

bool agent_serves(const struct agent *a)
{
    return !a->gone && a->engine.phase == ENGINE_SERVING && a->engine.count > 0;
}

struct agent *agent_find(struct world *w, const char *id)
{
    struct agent *found = NULL;
    for (uint32_t i = 0; i < w->agent_count; i++) {
        if (strcmp(w->agent[i]->id, id) != 0) continue;
        if (!found || found->gone) found = w->agent[i];
    }
    return found;
}

/* ---- reports ---- */

static void fill_engine(struct world *w, const struct agent *a, struct engine_report *ret)
{
    const struct perf_coef *p = &a->engine.hidden;
    bool up = a->engine.phase == ENGINE_SERVING;
    uint32_t running = engine_running(&a->engine);
    *ret = (struct engine_report){
        .host = STR("127.0.0.1"),
        .port = 8200 + a->index,
        .health = up                               ? ENGINE_READY
                  : a->engine.phase == ENGINE_HUNG ? ENGINE_FAILING
                                                   : ENGINE_LOADING,
        .model = STR("chat"),
        .boot = a->engine_boot,
        .running = running,
        .running_max = ENGINE_SEQS_MAX,
        .waiting = a->engine.count - running,
        .has_perf = a->engine.turns >= PERF_TURNS && !faults_are_on(w, FAULT_NO_PERF),
        .perf = { p->a, p->b, p->c, p->d, (double)a->engine.turns, 1 },
    };
}

static void report(struct world *w, struct agent *a)
{
    struct agent_report r = { .instance = str_from(a->id),
                              .intent = str_from(a->id),
                              .boot = a->boot,
                              .seq = ++a->seq,
                              .state = sup_reported(a->sup.state),
                              .restarts = sup_restarts(&a->sup),
                              .has_engine = a->engine.phase != ENGINE_OFF };
    if (r.has_engine) fill_engine(w, a, &r.engine);
    network_report(w, a, &r);
}

/* ---- actions ---- */

static void switched_off(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone) return;
    cloud_machine_dies(w, a->index);
}

static bool drain_is_over(const struct world *w, const struct agent *a)
{
    return a->draining_us && w->time.now_us - a->draining_us >= SIM_DRAIN_US;
}

static void carry_out(struct world *w, struct agent *a, uint32_t actions)
{
    uint32_t stops = SUP_ACT_TERM | SUP_ACT_KILL | SUP_ACT_END;
    if (actions & stops && agent_serves(a) && !a->engine.closing && !drain_is_over(w, a))
        check_fail(w, CHECK_SERVING_ENDED, "%s: %s, with %u requests in flight", a->id, a->sup.why,
                   a->engine.count);
    if (actions & ~(uint32_t)SUP_ACT_REPORT)
        timeline_note(&w->time, sup_state_text(a->sup.state), a->id, actions);
    if (actions & SUP_ACT_SPAWN) {
        bool fails = w->mutant == MUTANT_NEVER_READY || faults_hit(w, FAULT_START_FAILS, 0.4);
        a->engine_boot = rng_u64(&w->rng_engine);
        a->healthy_us = 0;
        engine_start(w, &a->engine, (int64_t)(rng_exp(&w->rng_engine, 1.5) * 1e6) + 500 * MS,
                     fails);
    }
    if (actions & SUP_ACT_TERM) engine_close(w, &a->engine);
    if (actions & SUP_ACT_KILL) engine_die(w, &a->engine);
    if (actions & SUP_ACT_END)
        timeline_at(&w->time, w->time.now_us + OFF_AFTER_END_US, switched_off, a, 0);
    if (actions & SUP_ACT_REPORT) report(w, a);
}

static void feed(struct world *w, struct agent *a, enum sup_event e)
{
    uint32_t actions = sup_feed(&a->sup, &config, e, w->time.now_us);
    if (a->sup.state == SUP_DRAINING && !a->draining_us) a->draining_us = w->time.now_us;
    if (a->sup.state == SUP_UP) a->draining_us = 0;
    carry_out(w, a, actions);
}

static void tick(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone) return;
    if (a->engine.phase == ENGINE_SERVING) a->healthy_us = w->time.now_us;
    bool blind = w->mutant == MUTANT_LOAD_IS_ZERO;
    struct sup_view v = { .now_us = w->time.now_us,
                          .born_us = a->born_us,
                          .lease_until_us = a->lease_until_us,
                          .healthy_us = a->healthy_us,
                          .load_known = a->engine.phase != ENGINE_HUNG,
                          .in_flight = blind ? 0 : a->engine.count };
    carry_out(w, a, sup_tick(&a->sup, &config, &v));
    timeline_at(&w->time, w->time.now_us + TICK_US, tick, a, 0);
}

static void report_turn(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone) return;
    report(w, a);
    timeline_at(&w->time, w->time.now_us + REPORT_US, report_turn, a, 0);
}

static void boot(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone) return;
    a->booted = true;
    a->born_us = w->time.now_us;
    a->lease_until_us = w->time.now_us + SIM_LEASE_MS * MS;
    a->boot = rng_u64(&w->rng_engine);
    feed(w, a, SUP_WANT_UP);
    tick(w, e);
    timeline_at(&w->time, w->time.now_us + (int64_t)rng_below(&w->rng_engine, REPORT_US),
                report_turn, a, 0);
}

void agent_made(struct world *w, uint32_t index, const char *id, double speed, int64_t ready_us)
{
    must(index == w->agent_count && w->agent_count < FAKE_INSTANCES_MAX);
    struct agent *a = calloc(1, sizeof *a);
    must(a);
    w->agent[w->agent_count++] = a;
    a->index = index;
    snprintf(a->id, sizeof a->id, "%s", id);
    a->engine.owner = a;
    double s = speed * (0.7 + 0.7 * rng_f64(&w->rng_engine));
    a->engine.hidden = (struct perf_coef){ .a = 0.01 / s, .b = 0.0005 / s, .c = 0.001 / s };
    timeline_note(&w->time, "machine_made", a->id, index);
    timeline_at(&w->time, ready_us, boot, a, 0);
}

void agent_machine_gone(struct world *w, struct agent *a)
{
    if (a->gone) return;
    timeline_note(&w->time, "machine_gone", a->id, a->engine.count);
    a->gone = true;
    engine_die(w, &a->engine);
}

void agent_hears(struct world *w, struct agent *a, const struct agent_reply *reply)
{
    if (a->gone) return;
    a->lease_until_us = w->time.now_us + (int64_t)reply->lease_ms * MS;
    if (!reply->known) return;
    if (reply->stop)
        feed(w, a, SUP_WANT_DOWN);
    else
        feed(w, a, reply->drain ? SUP_DRAIN : SUP_KEEP);
}

/* ---- the engine's side ---- */

void agent_engine_exited(struct world *w, struct engine *e)
{
    struct agent *a = e->owner;
    if (!a->gone) feed(w, a, SUP_EXITED);
}

void agent_engine_out(struct world *w, struct engine *e, const struct seq *s, enum engine_out out,
                      uint32_t count)
{
    (void)e;
    network_answer(w, s, out, count);
}
