/* checks.c - compares the truth of the world with the controller's and the routers' records. */
#include "tests/sim/checks.h"

#include "base/core/bits.h"
#include "policies/scale/scale.h"
#include "router/core/dispatch.h"
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>

#define ROUTER_FRESH (3 * SECOND)
#define FAST_SLACK (50 * MS) /* in the world's time; the controller's clock may run slow */
#define MONEY_SLACK 1e-6
#define BLAME_SLACK_US (70 * SECOND) /* time to see a failure: the longest silence, and more */
#define WAKING_US (10 * MS)
#define HELD_SLACK (1 * SECOND)
#define SERVED_FROM (45 * SECOND) /* before the end of a phase; silent instances have ended */
#define SERVED_UNTIL (20 * SECOND)
/* Requests held meanwhile may fill a small fleet's queues (seed 4990: 0.894). */
#define SERVED_SHARE 0.85
#define STEADY_US (30 * SECOND) /* at its target at some tick of the last 30 s of a phase */

const char *const check_names[CHECK_COUNT] = {
    [CHECK_ENDS_ONCE] = "ends_once",
    [CHECK_WHOLE_ANSWERS] = "whole_answers",
    [CHECK_GAPS] = "gaps",
    [CHECK_KEYS] = "keys",
    [CHECK_REASONS] = "reasons",
    [CHECK_SPEND] = "spend",
    [CHECK_ONE_PER_INTENT] = "one_per_intent",
    [CHECK_NO_ORPHAN] = "no_orphan",
    [CHECK_COUNT_BOUNDS] = "count_bounds",
    [CHECK_BUDGET] = "budget",
    [CHECK_BLIND_SHRINK] = "blind_shrink",
    [CHECK_SERVING_ENDED] = "serving_ended",
    [CHECK_BLAMELESS] = "blameless",
    [CHECK_RETRIES] = "retries",
    [CHECK_HELD] = "held",
    [CHECK_LEDGER_EMPTY] = "ledger_empty",
    [CHECK_RESTORES] = "restores",
    [CHECK_CONVERGES] = "converges",
    [CHECK_SERVES] = "serves",
    [CHECK_SHRINKS] = "shrinks",
    [CHECK_FENCED] = "fenced",
    [CHECK_REPEATS] = "repeats",
};

void check_fail(struct world *w, enum check check, const char *format, ...)
{
    if (w->failed) return;
    w->failed = true;
    w->failure.check = check;
    w->failure.at_us = w->time.now_us - w->time.began_us;
    va_list ap;
    va_start(ap, format);
    vsnprintf(w->failure.text, sizeof w->failure.text, format, ap);
    va_end(ap);
    timeline_note(&w->time, "CHECK", check_names[check], 0);
}

static const struct intent *find_intent(const struct world *w, const char *id)
{
    const struct control *c = w->controller->control;
    uint32_t at = c ? control_find(c, id) : UINT32_MAX;
    return at == UINT32_MAX ? NULL : &c->money.intent[at];
}

void check_history(struct world *w)
{
    static const enum check checks[HISTORY_RULE_COUNT] = {
        [HISTORY_KEYS] = CHECK_KEYS,       [HISTORY_TOKENS] = CHECK_WHOLE_ANSWERS,
        [HISTORY_GAPS] = CHECK_GAPS,       [HISTORY_OUTCOMES] = CHECK_ENDS_ONCE,
        [HISTORY_REASONS] = CHECK_REASONS, [HISTORY_SPEND] = CHECK_SPEND,
    };
    if (w->history.violated) check_fail(w, checks[w->history.rule], "%s", w->history.text);
}

/* ---- the provider ---- */

void check_machine_made(struct world *w, uint32_t index)
{
    const char *id = w->agent[index]->id;
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(w->agent[i]->id, id) == 0 && cloud_runs(w, i))
            check_fail(w, CHECK_ONE_PER_INTENT, "machines %u and %u run under %s", i, index, id);
}

void check_removal(struct world *w, const struct agent *a)
{
    /* The controller cannot know of requests that a router sent after its last sync; they continue at another
     * engine. */
    if (!agent_serves(w, a, ROUTER_FRESH)) return;
    const struct intent *i = find_intent(w, a->id);
    int64_t drain_us = w->controller->setup.merge.drain_us;
    if (i && i->drain_us && controller_now_us(w) - i->drain_us >= drain_us) return;
    check_fail(w, CHECK_SERVING_ENDED, "%s is removed (%s) with %u requests in flight", a->id,
               i ? i->why : "no intent", a->engine.count);
}

/* ---- the controller's tick ---- */

/* Empties the plan, so that a plan of this tick can be told from an older one. */
void check_before_tick(struct world *w)
{
    struct plan *plan = &w->controller->control->desired.plan;
    plan->decision_count = plan->action_count = 0;
}

static bool shrinks(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->action_count; i++) {
        const struct plan_action *a = &plan->action[i];
        if (a->act == PLAN_CANCEL || a->act == PLAN_DRAIN) return true;
    }
    return false;
}

static bool launches(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->action_count; i++)
        if (plan->action[i].act == PLAN_LAUNCH) return true;
    return false;
}

static bool has_action(const struct control *c, uint32_t at, enum plan_act act)
{
    for (uint32_t i = 0; i < c->desired.plan.action_count; i++) {
        const struct plan_action *a = &c->desired.plan.action[i];
        if (a->act == act && c->desired.view_slot[a->instance] == at) return true;
    }
    return false;
}

static void check_shrink(struct world *w)
{
    const struct control *c = w->controller->control;
    int64_t now_us = w->time.now_us;
    uint32_t heard = 0;
    for (uint32_t r = 0; r < w->router_count; r++) {
        int64_t at = w->router[r].heard_us;
        if (at < w->controller->born_us) continue; /* a router unheard of is unknown to it */
        heard++;
        if (now_us - at > ROUTER_FRESH + FAST_SLACK)
            check_fail(w, CHECK_BLIND_SHRINK, "router %u was heard %.1f s ago", r,
                       (double)(now_us - at) / 1e6);
    }
    if (heard == 0) check_fail(w, CHECK_BLIND_SHRINK, "no router was heard");
    uint32_t ready = 0, fresh = 0;
    for (uint32_t i = 0; i < c->money.count; i++) {
        const struct intent *in = &c->money.intent[i];
        /* Ready at the decision: registered and not just withdrawn from a drain, or just drained. */
        bool was_ready = in->state == INTENT_REGISTERED && !has_action(c, i, PLAN_KEEP);
        if (!was_ready && !has_action(c, i, PLAN_DRAIN)) continue;
        bool says_starting =
            sighting_is_fresh(&c->observed.seen[i], &c->setup.merge, controller_now_us(w)) &&
            !(c->observed.seen[i].state == AGENT_UP && c->observed.seen[i].engine_ready);
        if (says_starting) continue;
        const struct agent *a = agent_find(w, in->id);
        ready++;
        fresh += a && now_us - a->heard_us <= c->setup.merge.fresh_us + FAST_SLACK;
    }
    if (fresh < ready * PLAN_FRESH_SHARE)
        check_fail(w, CHECK_BLIND_SHRINK, "%u of %u ready agents were heard lately", fresh, ready);
}

/* Of one whose provider has said that it takes it another takes the place at once, although it serves for a while. */
static bool counts(const struct control *c, const struct intent *i)
{
    return i->state <= INTENT_REGISTERED && !c->observed.detail[i - c->money.intent].doomed;
}

/* Returns true if the agent has said that it stopped; the intent may not be marked as ending yet. */
static bool has_stopped(const struct sighting *s)
{
    return s->heard_us && s->state == AGENT_STOPPED;
}

/* Counts the fleet by its intents and by its running machines. A machine made late for an intent that is
 * over, or forgotten by a lost store, is about to be removed and not part of the fleet. */
static void check_counts(struct world *w)
{
    const struct control *c = w->controller->control;
    const struct plan_service *s = &w->controller->service;
    uint32_t total = 0, runs = 0;
    for (uint32_t i = 0; i < c->money.count; i++)
        total += counts(c, &c->money.intent[i]) && !c->money.intent[i].adopted &&
                 !has_stopped(&c->observed.seen[i]);
    for (uint32_t i = 0; i < w->agent_count; i++) {
        const struct intent *in = find_intent(w, w->agent[i]->id);
        bool stopped = w->agent[i]->sup.state == SUP_ENDED;
        runs += cloud_runs(w, i) && !stopped && (in ? counts(c, in) : w->agent[i]->booted);
    }
    /* An unreadable intent counts again once a person has put it back. */
    bool put_back = w->controller->was_damaged && w->time.now_us < w->heal_us + STEADY_US;
    if (total > s->max && !put_back)
        check_fail(w, CHECK_COUNT_BOUNDS, "%u intents, at most %u", total, s->max);
    if (runs > s->max && !w->controller->store_was_lost && !put_back)
        check_fail(w, CHECK_COUNT_BOUNDS, "%u machines run, at most %u", runs, s->max);
}

static void check_budget(struct world *w)
{
    const struct control *c = w->controller->control;
    double budget_h = w->budget_h, sum = 0;
    if (budget_h <= 0) return;
    for (uint32_t i = 0; i < c->money.count; i++)
        if (intent_is_live(&c->money.intent[i])) sum += cloud_price(w, c->money.intent[i].offer);
    if (sum > budget_h + MONEY_SLACK)
        check_fail(w, CHECK_BUDGET, "a launch brings $%.2f/h, at most $%.2f/h", sum, budget_h);
}

/* Adds up the prices of the running machines. Machines that were made late, or run beside a store that was
 * lost, are about to be removed and do not count. */
void check_spend(struct world *w)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->agent_count; i++)
        if (cloud_runs(w, i) && !w->agent[i]->late) sum += cloud_machine_price(w, i);
    if (!w->controller->store_was_lost) history_spend(&w->history, sum, w->time.now_us);
    check_history(w);
}

/* Finds machines without a live intent, once the controller has had the time to see and remove them. */
static void check_orphans(struct world *w)
{
    const struct merge_config *m = &w->controller->setup.merge;
    int64_t grace_us = w->cloud.lag_us + m->settle_us + m->orphan_us + 10 * SECOND;
    /* The last slow calls from before the healing, one after the other: a listing and a removal. */
    if (w->faults.on[FAULT_SLOW_CLOUD]) grace_us += 2 * SIM_CALL_US;
    if (w->time.now_us < w->heal_us + grace_us) return;
    for (uint32_t i = 0; i < w->agent_count; i++) {
        const struct intent *in = find_intent(w, w->agent[i]->id);
        bool known = in && intent_is_live(in);
        if (known && in->state == INTENT_ENDING && controller_now_us(w) - in->state_us > grace_us)
            known = false;
        if (cloud_runs(w, i) && !known)
            check_fail(w, CHECK_NO_ORPHAN, "machine %u (%s) runs for nobody", i, w->agent[i]->id);
    }
}

static uint32_t serving(const struct world *w, uint32_t pool)
{
    const struct control *c = w->controller->control;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->agent_count; i++) {
        const struct agent *a = w->agent[i];
        const struct intent *in = find_intent(w, a->id);
        if (!in || in->state != INTENT_REGISTERED || a->gone) continue;
        if (strcmp(in->pool, c->desired.service[0].pool[pool].name) != 0) continue;
        n += a->sup.state == SUP_UP && a->engine.phase == ENGINE_SERVING;
    }
    return n;
}

static void watch_convergence(struct world *w)
{
    const struct control *c = w->controller->control;
    if (c->desired.plan.decision_count == 0) return;
    const struct plan_decision *d = &c->desired.plan.decision[0];
    bool poor = d->blocked && strcmp(d->blocked, "the budget") == 0; /* spent already */
    for (uint32_t p = 0; p < w->controller->service.pool_count; p++)
        if (serving(w, p) != d->target[p] && !(poor && serving(w, p) < d->target[p])) return;
    w->converged_us = w->time.now_us;
}

void check_after_tick(struct world *w)
{
    const struct plan *plan = &w->controller->control->desired.plan;
    reasons_after_tick(w);
    for (uint32_t i = 0; i < plan->action_count; i++)
        timeline_note(&w->time, plan_act_names[plan->action[i].act], plan->action[i].why,
                      plan->action[i].pool);
    if (shrinks(plan)) check_shrink(w);
    check_counts(w);
    if (launches(plan)) check_budget(w);
    check_orphans(w);
    watch_convergence(w);
}

/* ---- routers ---- */

/* A router suspends an engine for DISPATCH_SUSPEND_US_MAX at most, and only after a failure of the engine
 * itself or of the link to it. */
static void check_rests(struct world *w, struct router_node *n)
{
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++) {
        const struct dispatch_endpoint *ep = dispatch_endpoint_at(n->dispatch, i);
        if (!ep || dispatch_rests_until_us(n->dispatch, i) <= node_mono_us(w, &n->node)) continue;
        const struct agent *a = agent_find(w, ep->name);
        int64_t since_us = w->time.now_us - DISPATCH_SUSPEND_US_MAX - BLAME_SLACK_US;
        if (a && a->blamed_us[n->index] < max_i64(since_us, a->made_us))
            check_fail(w, CHECK_BLAMELESS, "%s rests in router %u, which it gave no cause", a->id,
                       n->index);
    }
}

void check_router(struct world *w, struct router_node *n)
{
    struct dispatch_demand d;
    if (w->time.now_us < n->node.stopped_until + WAKING_US) return; /* its timers are just firing */
    dispatch_demand(n->dispatch, node_mono_us(w, &n->node), &d);
    check_rests(w, n);
    if (d.held > SIM_HELD_MAX) check_fail(w, CHECK_HELD, "%u requests are held", d.held);
    if (d.held_oldest_us > SIM_HOLD_US + HELD_SLACK)
        check_fail(w, CHECK_HELD, "a request is held for %.1f s", (double)d.held_oldest_us / 1e6);
}

void check_retries(struct world *w, struct router_node *n)
{
    uint64_t most = router_arrivals(n) / RETRY_REQUESTS + RETRY_FLOOR;
    if (n->attempts_charged > most)
        check_fail(w, CHECK_RETRIES, "%llu retries for %llu requests",
                   (unsigned long long)n->attempts_charged, (unsigned long long)router_arrivals(n));
}

/* ---- phases without faults ---- */

void check_converged(struct world *w)
{
    if (w->time.now_us - w->converged_us > STEADY_US)
        check_fail(w, CHECK_CONVERGES, "last equal to the target %.0f s ago: %u and %u serve",
                   (double)(w->time.now_us - w->converged_us) / 1e6, serving(w, 0), serving(w, 1));
    uint32_t asked = 0, answered = 0;
    for (uint32_t i = 0; i < w->request_count; i++) {
        const struct request *r = &w->request[i];
        int64_t arrived_us = r->sent_us;
        bool in_time =
            arrived_us > w->time.now_us - SERVED_FROM && arrived_us < w->time.now_us - SERVED_UNTIL;
        if (!r->accepted || !in_time) continue;
        asked++;
        answered += r->ok;
    }
    bool adapts = w->controller->service.policy != &scale_static;
    if (answered == 0 || (adapts && answered < asked * SERVED_SHARE))
        check_fail(w, CHECK_SERVES, "%u of %u requests were answered", answered, asked);
}

void check_shrunk(struct world *w)
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < w->agent_count; i++)
        runs += cloud_runs(w, i);
    const struct plan_service *s = &w->controller->service;
    uint32_t least = s->policy == &scale_static ? s->scale.count : s->min;
    if (runs != least) check_fail(w, CHECK_SHRINKS, "%u machines run, %u are wanted", runs, least);
}

void check_end(struct world *w)
{
    history_judge(&w->history, w->time.now_us);
    check_history(w);
    for (uint32_t i = 0; i < w->request_count; i++)
        if (!w->request[i].over)
            check_fail(w, CHECK_ENDS_ONCE, "request %u has no end in its router", i);
    for (uint32_t r = 0; r < w->router_count; r++) {
        struct dispatch_demand d;
        dispatch_demand(w->router[r].dispatch, node_mono_us(w, &w->router[r].node), &d);
        if (d.in_flight || d.held)
            check_fail(w, CHECK_LEDGER_EMPTY, "router %u: %u in flight, %u held", r, d.in_flight,
                       d.held);
    }
}
