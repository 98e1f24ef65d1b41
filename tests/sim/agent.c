/* agent.c - runs the agent's supervisor in virtual time. */
#include "tests/sim/agent.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "fleet/defaults.h"
#include "tests/sim/world.h"

#include <stdio.h>

#define TICK_US (500 * MS)
#define OFF_AFTER_END_US (5 * SECOND) /* the machine switches itself off */
#define CLOCK_SLACK_US (200 * MS)     /* over a drain, from a clock that runs fast */
#define STEP_TOKENS 2048
#define PERF_TURNS 5 /* turns after which an engine reports its coefficients */

static const struct sup_config supervision = {
    .start_us = 20 * SECOND,
    .sick_us = 5 * SECOND,
    .drain_us = SIM_DRAIN_US,
    .settle_us = 1500 * MS,
    .stop_us = 10 * SECOND,
    .back_off_min_us = 500 * MS,
    .back_off_max_us = 8 * SECOND,
    .stable_us = 20 * SECOND,
    .failures_max = 5,
    .grace_us = SIM_GRACE_US,
    .late_us = 2 * TICK_US,
};

static int64_t now_us(const struct world *w, const struct agent *a)
{
    return node_mono_us(w, &a->node);
}

static bool is_well(const struct world *w, const struct agent *a)
{
    if (a->engine.stuck || a->engine.failing) return false;
    return a->engine.phase == ENGINE_SERVING && w->time.now_us >= a->engine.woke_us + 3 * TICK_US;
}

/* Returns true if a router still waits for a request that it sent until sent_until_us. A request that its
 * router has given up does not count, although its cancellation may still be on the way. */
static bool has_clients(const struct engine *e, int64_t sent_until_us)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct request *r = e->seq[i].request;
        bool waits = r->attempt == e->seq[i].attempt && !r->over;
        if (waits && r->routed_us <= sent_until_us) return true;
    }
    return false;
}

bool agent_serves(const struct world *w, const struct agent *a, int64_t for_us)
{
    return !a->gone && is_well(w, a) && has_clients(&a->engine, w->time.now_us - for_us);
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

void agent_blame(struct agent *a, uint32_t router, int64_t until_us)
{
    for (uint32_t r = 0; r < SIM_ROUTERS_MAX; r++)
        if (r == router || router == SIM_ROUTERS_MAX)
            a->blamed_us[r] = max_i64(a->blamed_us[r], until_us);
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
        .kind = w->continues ? ENGINE_MUSTER : ENGINE_OPENAI,
        .step_tokens = STEP_TOKENS,
        .health = a->engine.phase == ENGINE_HUNG || a->engine.failing ? ENGINE_FAILING
                  : up                                                ? ENGINE_READY
                                                                      : ENGINE_LOADING,
        .model = STR("chat"),
        .boot = a->engine_boot,
        .running = running,
        .running_max = ENGINE_SEQS_MAX,
        .waiting = a->engine.count - running,
        .has_perf = a->engine.turns >= PERF_TURNS && !faults_are_on(w, FAULT_NO_PERF),
        .perf = { .step_s = p->step_s,
                  .prefill_token_s = p->prefill_token_s,
                  .decode_seq_s = p->decode_seq_s,
                  .kv_read_s = p->kv_read_s,
                  .samples = (double)a->engine.turns,
                  .ratio_p90 = 1 },
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
    return a->draining_us && w->time.now_us - a->draining_us >= SIM_DRAIN_US - CLOCK_SLACK_US;
}

static void carry_out(struct world *w, struct agent *a, uint32_t actions)
{
    bool sick = strcmp(a->sup.why ? a->sup.why : "", sup_event_text(SUP_SICK)) == 0;
    if (actions & SUP_ACT_KILL && sick && is_well(w, a))
        check_fail(w, CHECK_REASONS, "%s: a well engine is killed as sick", a->id);
    uint32_t stops = SUP_ACT_TERM | SUP_ACT_KILL | SUP_ACT_END;
    /* An agent that has just woken may not know yet that its engine is ready: told to end, it sends
     * SIGTERM, and the engine finishes its requests. */
    bool finishes = actions & SUP_ACT_TERM && w->time.now_us < a->node.stopped_until + SECOND;
    bool excused = a->engine.closing || finishes || drain_is_over(w, a);
    if (actions & stops && agent_serves(w, a, 0) && !excused)
        check_fail(w, CHECK_SERVING_ENDED, "%s: %s, with %u requests in flight", a->id, a->sup.why,
                   a->engine.count);
    if (actions & ~(uint32_t)SUP_ACT_REPORT)
        timeline_note(&w->time, sup_state_text(a->sup.state), a->id, actions);
    if (actions & SUP_ACT_SPAWN) {
        bool fails = w->mutant == MUTANT_NEVER_READY || faults_hit(w, FAULT_START_FAILS, 0.4);
        a->engine_boot = rng_u64(&w->rng_engine);
        a->healthy_us = 0;
        a->asked_us = now_us(w, a);
        engine_start(w, &a->engine, (int64_t)(rng_exp(&w->rng_engine, 1.5) * 1e6) + 500 * MS,
                     fails);
    }
    if (actions & SUP_ACT_TERM) engine_close(w, &a->engine);
    if (actions & SUP_ACT_KILL) engine_die(w, &a->engine);
    if (actions & SUP_ACT_END) reasons_self_end(w, a);
    if (actions & SUP_ACT_END)
        timeline_at(&w->time, w->time.now_us + OFF_AFTER_END_US, switched_off, a, 0);
    if (actions & SUP_ACT_REPORT) report(w, a);
}

static void feed(struct world *w, struct agent *a, enum sup_event e)
{
    uint32_t actions = sup_feed(&a->sup, &supervision, e, now_us(w, a));
    if (a->sup.state == SUP_DRAINING && !a->draining_us) a->draining_us = w->time.now_us;
    if (a->sup.state == SUP_UP) a->draining_us = 0;
    carry_out(w, a, actions);
}

/* Moves the engine's deadlines on by the time in which the agent itself could not ask, as excuse() of
 * agent/agent.c does. */
static void excuse(struct world *w, struct agent *a)
{
    int64_t seen_us = max_i64(a->healthy_us, a->sup.since_us);
    if (a->sup.state == SUP_UP || a->sup.state == SUP_DRAINING)
        a->healthy_us = min_i64(now_us(w, a), seen_us + now_us(w, a) - a->asked_us);
    if (a->sup.state == SUP_STARTING)
        a->sup.since_us = min_i64(now_us(w, a), a->sup.since_us + now_us(w, a) -
                                                    max_i64(a->asked_us, a->sup.since_us));
    a->asked_us = now_us(w, a);
}

/* Asks the engine for its health; the reply always comes before the next look. */
static void probe(struct world *w, struct agent *a)
{
    if (w->time.now_us < a->short_until && w->mutant != MUTANT_NO_EXCUSE) {
        excuse(w, a);
        return;
    }
    if (w->time.now_us < a->short_until) return;
    if (a->engine.phase != ENGINE_HUNG) a->asked_us = now_us(w, a);
    if (a->engine.phase == ENGINE_SERVING && !a->engine.failing) a->healthy_us = now_us(w, a);
}

static void tick(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone || node_defers(w, &a->node, true)) return;
    bool blind = w->mutant == MUTANT_LOAD_IS_ZERO;
    struct sup_view v = { .now_us = now_us(w, a),
                          .born_us = a->born_us,
                          .lease_until_us = a->lease_until_us,
                          .healthy_us = a->healthy_us,
                          .load_known = a->engine.phase != ENGINE_HUNG,
                          .in_flight = blind ? 0 : a->engine.count };
    struct sup_config config = supervision;
    if (w->mutant == MUTANT_AGENT_PUNCTUAL) config.late_us = 0;
    carry_out(w, a, sup_tick(&a->sup, &config, &v));
    probe(w, a);
    timeline_at(&w->time, w->time.now_us + TICK_US, tick, a, 0);
}

static void report_turn(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone || node_defers(w, &a->node, true)) return;
    report(w, a);
    timeline_at(&w->time, w->time.now_us + REPORT_PERIOD_US, report_turn, a, 0);
}

static void boot(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone) return;
    a->booted = true;
    node_start(w, &a->node);
    a->told_us = w->time.now_us;
    a->born_us = now_us(w, a);
    a->lease_until_us = now_us(w, a) + SIM_LEASE_MS * MS;
    a->boot = rng_u64(&w->rng_engine);
    feed(w, a, SUP_WANT_UP);
    tick(w, e);
    timeline_at(&w->time, w->time.now_us + (int64_t)rng_below(&w->rng_engine, REPORT_PERIOD_US),
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
    a->made_us = w->time.now_us;
    leaders_known(w, &a->controllers);
    a->heard_stopped_us = w->controller->node.stopped_us;
    a->late = reasons_is_late(w, a);
    a->engine.owner = a;
    double s = speed * (0.7 + 0.7 * rng_f64(&w->rng_engine));
    a->engine.hidden = (struct perf_coef){ .step_s = 0.01 / s,
                                           .prefill_token_s = 0.0005 / s,
                                           .decode_seq_s = 0.001 / s };
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
    a->told_us = w->time.now_us;
    a->lease_until_us = now_us(w, a) + (int64_t)reply->lease_ms * MS;
    if (!reply->known) return;
    if (reply->stop)
        feed(w, a, SUP_WANT_DOWN);
    else
        feed(w, a, reply->drain ? SUP_DRAIN : SUP_KEEP);
}

/* ---- the engine's side ---- */

static void exit_seen(struct world *w, const struct event *e)
{
    struct agent *a = e->who;
    if (a->gone || node_defers(w, &a->node, true)) return;
    if (e->what == a->engine.life) feed(w, a, SUP_EXITED);
}

void agent_engine_exited(struct world *w, struct engine *e)
{
    struct agent *a = e->owner;
    if (!a->gone) timeline_at(&w->time, w->time.now_us, exit_seen, a, e->life);
}

void agent_engine_out(struct world *w, struct engine *e, const struct seq *s, enum engine_out out,
                      uint32_t count)
{
    network_answer(w, e->owner, s, out, count);
}

void agent_engine_beats(struct world *w, struct engine *e)
{
    if (e->count > 0 && w->continues) network_beat(w, e->owner);
}
