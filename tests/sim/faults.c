/* faults.c - draws the faults of a seed, and causes those that come by themselves. */
#include "tests/sim/faults.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "tests/sim/world.h"

#define BETWEEN_S 20.0 /* mean time between two faults of a kind that come by themselves */
#define STREAM_FIRST 1000

const char *const fault_names[FAULT_KIND_COUNT] = {
    [FAULT_LOSS] = "loss",
    [FAULT_SLOW_NET] = "slow_net",
    [FAULT_CUT_UP] = "cut_up",
    [FAULT_CUT_DOWN] = "cut_down",
    [FAULT_CUT_ALL] = "cut_all",
    [FAULT_STOCK_OUT] = "stock_out",
    [FAULT_THROTTLE] = "throttle",
    [FAULT_LOST_REPLY] = "lost_reply",
    [FAULT_LATE_SUCCESS] = "late_success",
    [FAULT_CLOUD_DOWN] = "cloud_down",
    [FAULT_LISTING_LAG] = "listing_lag",
    [FAULT_SLOW_BOOT] = "slow_boot",
    [FAULT_MACHINE_DIES] = "machine_dies",
    [FAULT_NOTICE] = "notice",
    [FAULT_PRICE_UNKNOWN] = "price_unknown",
    [FAULT_CRASH] = "crash",
    [FAULT_HANG] = "hang",
    [FAULT_START_FAILS] = "start_fails",
    [FAULT_OVERLOAD] = "overload",
    [FAULT_NO_PERF] = "no_perf",
    [FAULT_CONTROLLER_DIES] = "controller_dies",
    [FAULT_CONTROLLER_STEP] = "controller_step",
    [FAULT_DISK_FULL] = "disk_full",
    [FAULT_STORE_LOST] = "store_lost",
    [FAULT_ROUTER_RESTARTS] = "router_restarts",
    [FAULT_CLIENTS_LEAVE] = "clients_leave",
    [FAULT_CLOCK_SKEW] = "clock_skew",
    [FAULT_CLOCK_STEP] = "clock_step",
    [FAULT_STOPPED] = "stopped",
    [FAULT_STUCK] = "stuck",
    [FAULT_CUT_TO] = "cut_to",
    [FAULT_CUT_FROM] = "cut_from",
    [FAULT_SHORT] = "short",
    [FAULT_TWICE] = "twice",
    [FAULT_SLOW_STORE] = "slow_store",
    [FAULT_DAMAGE] = "damage",
    [FAULT_RESOLVER] = "resolver",
    [FAULT_SLOW_CLOUD] = "slow_cloud",
    [FAULT_TWO] = "two",
    [FAULT_STORE_AWAY] = "store_away",
    [FAULT_VERSIONS] = "versions",
};

const struct mutant_row mutant_rows[MUTANT_COUNT] = {
    [MUTANT_NONE] = { "none", "" },
    [MUTANT_ABSENT_IS_ZERO] = { "absent_is_zero", "blind_shrink" },
    [MUTANT_KEYLESS] = { "keyless", "one_per_intent" },
    [MUTANT_LOAD_IS_ZERO] = { "load_is_zero", "serving_ended" },
    [MUTANT_REMOVE_DOES_NOT] = { "remove_does_not", "no_orphan" },
    [MUTANT_LOST_END] = { "lost_end", "gaps" },
    [MUTANT_LOST_TOKENS] = { "lost_tokens", "whole_answers" },
    [MUTANT_BEGINS_ANEW] = { "begins_anew", "whole_answers" },
    [MUTANT_LEAVE_FORGOTTEN] = { "leave_forgotten", "ledger_empty" },
    [MUTANT_FREE_RETRIES] = { "free_retries", "retries" },
    [MUTANT_HOLD_FOR_EVER] = { "hold_for_ever", "held" },
    [MUTANT_SOLD_OUT] = { "sold_out", "serves" },
    [MUTANT_NEVER_READY] = { "never_ready", "converges" },
    [MUTANT_PHANTOM_HELD] = { "phantom_held", "shrinks" },
    [MUTANT_FREE_PRICE] = { "free_price", "budget" },
    [MUTANT_STORE_FORGETS] = { "store_forgets", "count_bounds" },
    [MUTANT_STORE_DAMAGED] = { "store_damaged", "restores" },
    [MUTANT_OWN_CLOCK] = { "own_clock", "repeats" },
    [MUTANT_DATES] = { "dates", "converges" },
    [MUTANT_NEVER_LATE] = { "never_late", "reasons" },
    [MUTANT_AGENT_PUNCTUAL] = { "agent_punctual", "reasons" },
    [MUTANT_TWO_ENDS] = { "two_ends", "ends_once" },
    [MUTANT_STALLED] = { "stalled", "gaps" },
    [MUTANT_DEAF] = { "deaf", "gaps" },
    [MUTANT_NO_EXCUSE] = { "no_excuse", "reasons" },
    [MUTANT_SHORT_IS_FAR] = { "short_is_far", "blameless" },
    [MUTANT_FORGED_RECORD] = { "forged_record", "reasons" },
    [MUTANT_NO_BUDGET] = { "no_budget", "spend" },
    [MUTANT_HASTY] = { "hasty", "fenced" },
    [MUTANT_UNFENCED] = { "unfenced", "fenced" },
};

/* Each kind has a stream of its own, so that a world stays the same when kinds are added. */
void faults_draw(struct faults *f, uint64_t seed, uint32_t kinds)
{
    for (uint32_t k = 0; k < FAULT_KIND_COUNT; k++) {
        rng_stream(&f->rng[k], seed, STREAM_FIRST + k, 0);
        f->on[k] = rng_below(&f->rng[k], 2) == 1 && k < kinds;
    }
}

bool faults_are_on(const struct world *w, enum fault_kind kind)
{
    return w->faults.on[kind] && w->time.now_us < w->heal_us;
}

bool faults_hit(struct world *w, enum fault_kind kind, double p)
{
    return faults_are_on(w, kind) && rng_f64(&w->rng_chaos) < p;
}

/* ---- the effect of each kind of fault ---- */

static int64_t some_us(struct world *w, int64_t most_us)
{
    /* Never beyond the end of the faults: cuts heal with the rest. */
    int64_t us = (int64_t)rng_below(&w->rng_chaos, (uint64_t)most_us);
    return min_i64(us, max_i64(w->heal_us - w->time.now_us, 1));
}

static struct agent *some_agent(struct world *w)
{
    uint32_t alive = 0;
    struct agent *found = NULL;
    for (uint32_t i = 0; i < w->agent_count; i++)
        if (!w->agent[i]->gone && rng_below(&w->rng_chaos, ++alive) == 0) found = w->agent[i];
    return found;
}

static struct router_node *some_router(struct world *w)
{
    return &w->router[rng_below(&w->rng_chaos, w->router_count)];
}

static void cut(struct world *w, bool up)
{
    int64_t until_us = w->time.now_us + some_us(w, 40 * SECOND);
    struct agent *a = rng_below(&w->rng_chaos, 3) ? some_agent(w) : NULL;
    struct router_node *r = some_router(w);
    if (up)
        *(a ? &a->cut_up_us : &r->cut_up_us) = until_us;
    else
        *(a ? &a->cut_down_us : &r->cut_down_us) = until_us;
}

static void cut_up(struct world *w)
{
    cut(w, true);
}

static void cut_down(struct world *w)
{
    cut(w, false);
}

static void cut_all(struct world *w)
{
    if (rng_below(&w->rng_chaos, 4) == 0) w->cut_all_us = w->time.now_us + some_us(w, 90 * SECOND);
}

static void machine_dies(struct world *w)
{
    struct agent *a = some_agent(w);
    if (a) cloud_machine_dies(w, a->index);
}

static void notice(struct world *w)
{
    struct agent *a = some_agent(w);
    if (a) cloud_gives_notice(w, a->index, some_us(w, 40 * SECOND));
}

static void price_unknown(struct world *w)
{
    w->cloud.price_unknown_us = w->time.now_us + some_us(w, 20 * SECOND);
}

static void crash(struct world *w)
{
    struct agent *a = some_agent(w);
    if (a) engine_die(w, &a->engine);
}

static void hang(struct world *w)
{
    struct agent *a = some_agent(w);
    if (!a) return;
    int64_t for_us = some_us(w, 20 * SECOND);
    engine_hang(w, &a->engine, for_us);
    agent_blame(a, SIM_ROUTERS_MAX, w->time.now_us + for_us);
}

static void controller_killed(struct world *w)
{
    if (rng_below(&w->rng_chaos, 2) == 0) controller_dies(w, some_us(w, 20 * SECOND));
}

static void controller_step(struct world *w)
{
    fault_arm(control_steps[rng_below(&w->rng_chaos, control_step_count)],
              1 + rng_below(&w->rng_chaos, 2));
}

static void disk_full(struct world *w)
{
    fault_arm("store.write", 1 + rng_below(&w->rng_chaos, 3));
}

static void store_lost(struct world *w)
{
    if (rng_below(&w->rng_chaos, 8) == 0) controller_loses_store(w);
}

static void router_restarts(struct world *w)
{
    if (rng_below(&w->rng_chaos, 4) == 0) router_restart(w, some_router(w));
}

/* Steps a date; often the controller's, because the controller is the one with records. */
static void clock_step(struct world *w)
{
    int64_t by_us = (int64_t)rng_below(&w->rng_chaos, 7200) * SECOND - 3600 * SECOND;
    struct agent *a = some_agent(w);
    struct node *n = rng_below(&w->rng_chaos, 2) ? &w->controller->node : &some_router(w)->node;
    if (a && rng_below(&w->rng_chaos, 4) == 0) n = &a->node;
    node_step_date(w, n, by_us);
}

/* Stops a process: the controller for up to longer than an instance may be silent, the others for as long
 * as clients and agents would tolerate a starved machine. */
static void stopped(struct world *w)
{
    struct agent *a = some_agent(w);
    switch (rng_below(&w->rng_chaos, 4)) {
    case 0:
        node_stop(w, &some_router(w)->node, some_us(w, 15 * SECOND));
        break;
    case 1:
        if (a) node_stop(w, &a->node, some_us(w, 40 * SECOND));
        break;
    default:
        node_stop(w, &w->controller->node, some_us(w, SIM_SILENT_US + 60 * SECOND));
    }
}

static void stuck(struct world *w)
{
    struct agent *a = some_agent(w);
    if (!a) return;
    bool ever = rng_below(&w->rng_chaos, 2) == 0;
    int64_t for_us = ever ? w->heal_us - w->time.now_us : some_us(w, 60 * SECOND);
    if (w->mutant == MUTANT_STALLED) for_us += SIM_GAP_US; /* undetected, so not cured */
    engine_stick(w, &a->engine, for_us);
    agent_blame(a, SIM_ROUTERS_MAX, w->time.now_us + for_us);
}

static void cut_data(struct world *w, bool to)
{
    struct agent *a = some_agent(w);
    uint32_t router = some_router(w)->index;
    int64_t until_us = w->time.now_us + some_us(w, 40 * SECOND);
    if (!a) return;
    *(to ? &a->cut_to_us[router] : &a->cut_from_us[router]) = until_us;
    agent_blame(a, router, until_us);
}

static void cut_to(struct world *w)
{
    cut_data(w, true);
}

static void cut_from(struct world *w)
{
    cut_data(w, false);
}

static void runs_short(struct world *w)
{
    int64_t until_us = w->time.now_us + some_us(w, 20 * SECOND);
    struct agent *a = some_agent(w);
    switch (rng_below(&w->rng_chaos, 3)) {
    case 0:
        w->controller->short_until = until_us;
        break;
    case 1:
        some_router(w)->short_until = until_us;
        break;
    default:
        if (a) a->short_until = until_us;
    }
}

static void no_names(struct world *w)
{
    w->no_names_us = w->time.now_us + some_us(w, 60 * SECOND);
}

static void store_away(struct world *w)
{
    struct controller_node *n = &w->controllers[rng_below(&w->rng_chaos, w->controller_count)];
    if (w->controller_count == 1) return;
    n->away_until = w->time.now_us + some_us(w, 40 * SECOND);
    store_memory_cut(n->store, true);
}

/* The kinds that strike by themselves; the others are drawn at the calls that they affect. */
static void (*const on_time[FAULT_KIND_COUNT])(struct world *w) = {
    [FAULT_CUT_UP] = cut_up,
    [FAULT_CUT_DOWN] = cut_down,
    [FAULT_CUT_ALL] = cut_all,
    [FAULT_MACHINE_DIES] = machine_dies,
    [FAULT_NOTICE] = notice,
    [FAULT_PRICE_UNKNOWN] = price_unknown,
    [FAULT_CRASH] = crash,
    [FAULT_HANG] = hang,
    [FAULT_CONTROLLER_DIES] = controller_killed,
    [FAULT_CONTROLLER_STEP] = controller_step,
    [FAULT_DISK_FULL] = disk_full,
    [FAULT_STORE_LOST] = store_lost,
    [FAULT_ROUTER_RESTARTS] = router_restarts,
    [FAULT_CLOCK_STEP] = clock_step,
    [FAULT_STOPPED] = stopped,
    [FAULT_STUCK] = stuck,
    [FAULT_CUT_TO] = cut_to,
    [FAULT_CUT_FROM] = cut_from,
    [FAULT_SHORT] = runs_short,
    [FAULT_RESOLVER] = no_names,
    [FAULT_STORE_AWAY] = store_away,
};

static void strike_later(struct world *w, uint32_t kind);

static void strike(struct world *w, const struct event *e)
{
    uint32_t kind = (uint32_t)e->what;
    if (w->time.now_us >= w->heal_us) return;
    timeline_note(&w->time, "fault", fault_names[kind], 0);
    on_time[kind](w);
    strike_later(w, kind);
}

static void strike_later(struct world *w, uint32_t kind)
{
    int64_t in_us = (int64_t)(rng_exp(&w->faults.rng[kind], BETWEEN_S) * 1e6);
    timeline_at(&w->time, w->time.now_us + in_us, strike, w, kind);
}

static void healed(struct world *w, const struct event *e)
{
    (void)e;
    fault_disarm();
    damage_repair(w);
}

void faults_begin(struct world *w)
{
    for (uint32_t k = 0; k < FAULT_KIND_COUNT; k++)
        if (on_time[k] && w->faults.on[k]) strike_later(w, k);
    timeline_at(&w->time, w->heal_us, healed, w, 0);
}
