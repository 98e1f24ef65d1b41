/* controller.c - runs the controller without its sockets, in virtual time. */
#include "tests/sim/controller.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/loop/clock.h"
#include "controller/fleet_clock.h"
#include "fleet/defaults.h"
#include "policies/scale/scale.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES_MAX ((size_t)1 << 20)
#define STORE_ENTRIES_MAX 4096

static const struct str engine_args[] = { { "muster", 6 }, { "engine", 6 } };

static void tick(struct world *w, const struct event *e);

int64_t controller_clock_us(const struct world *w, const struct controller_node *n)
{
    if (w->mutant == MUTANT_DATES) return node_date_us(w, &n->node);
    return node_mono_us(w, &n->node) + n->ahead_us;
}

int64_t controller_now_us(const struct world *w)
{
    return controller_clock_us(w, w->controller);
}

/* ---- fleet time, kept as in controller/fleet_clock.c ---- */

static void keep_time(struct world *w, struct controller_node *n)
{
    if (n->kept_us && controller_clock_us(w, n) - n->kept_us < FLEET_CLOCK_KEEP_US) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint64_t version;
    const struct fleet_moment now = node_moment(w, &n->node);
    struct fleet_record r = fleet_record_at(n->ahead_us, &now);
    must(fleet_record_encode(&r, &text) == 0);
    n->kept_us = r.seen_us;
    (void)store_put_if(n->store, STR("clock"), buf_view(&text), STORE_ANY, &version, NULL);
}

static void open_time(struct world *w, struct controller_node *n)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, MESSAGE_BYTES_MAX);
    struct fleet_record last;
    const struct fleet_moment now = node_moment(w, &n->node);
    bool known = store_get(n->store, STR("clock"), &text, NULL, NULL) == 0 &&
                 fleet_record_decode(buf_view(&text), &arena, &last, NULL) == 0;
    n->ahead_us = fleet_time_ahead(known ? &last : NULL, &now);
    n->kept_us = 0;
    keep_time(w, n);
}

/* ---- life ---- */

static void new_store(struct controller_node *n)
{
    if (n->store) store_close(n->store);
    must(store_memory_open(STORE_ENTRIES_MAX, &n->store, NULL) == 0);
    n->setup.store = n->store;
}

bool controller_begin_control(struct world *w, struct controller_node *n)
{
    struct err err = { 0 };
    open_time(w, n);
    n->setup.seed = rng_u64(&w->rng_controller);
    if (w->mutant == MUTANT_OWN_CLOCK) n->setup.seed += (uint64_t)clock_mono_us();
    int rc = control_new(&n->setup, controller_clock_us(w, n), &n->control, &err);
    /* An unreadable record is copied before it is overwritten: without room for the copy there is no start. */
    if (rc == -ENOSPC && faults_are_on(w, FAULT_DISK_FULL)) return false;
    if (rc < 0) {
        check_fail(w, CHECK_RESTORES, "%s", err_text(&err, rc));
        return true;
    }
    if (control_is_degraded(n->control) && !n->was_damaged)
        check_fail(w, CHECK_RESTORES, "a record is unreadable");
    if (damage_of_intents(w) > 0 && !control_is_degraded(n->control))
        check_fail(w, CHECK_RESTORES, "intents cannot be read, and all is said to be well");
    n->older = faults_hit(w, FAULT_VERSIONS, 0.5);
    n->born_us = w->time.now_us;
    n->node.stopped_us = 0;
    n->hurried = false;
    timeline_note(&w->time, "controller_up", w->name, (int64_t)n->life);
    timeline_at(&w->time, w->time.now_us, tick, n, n->life << 1);
    return true;
}

static void start(struct world *w, const struct event *e)
{
    struct controller_node *n = e->who;
    if (e->what != n->life || n->control) return;
    if (w->controller_count > 1)
        leaders_start(w, n);
    else if (!controller_begin_control(w, n)) /* the controller is started again */
        timeline_at(&w->time, w->time.now_us + SECOND, start, n, n->life);
}

static void damage(struct controller_node *n)
{
    uint64_t version;
    must(store_put_if(n->store, STR("intent/i-000000000000"), STR("{\"v\":1,\"id\":"), STORE_ANY,
                      &version, NULL) == 0);
}

void controller_dies(struct world *w, int64_t away_us)
{
    struct controller_node *n = w->controller;
    if (!n->control) return;
    timeline_note(&w->time, "controller_dies", w->name, away_us);
    control_free(n->control);
    n->control = NULL;
    n->alive = false;
    cloud_cut(w, n);
    n->deaths++;
    bool elsewhere = rng_below(&w->rng_nodes, 4) == 0;
    if (elsewhere) node_start(w, &n->node);
    n->life++;
    fault_disarm();
    if (w->controller_count > 1) { /* the store goes on without it */
        timeline_at(&w->time, w->time.now_us + away_us, start, n, n->life);
        return;
    }
    if (w->mutant == MUTANT_STORE_DAMAGED) damage(n);
    if (faults_hit(w, FAULT_DAMAGE, 0.5) || w->mutant == MUTANT_FORGED_RECORD) {
        damage_one(w);
        n->was_damaged = true;
    }
    if (w->mutant == MUTANT_STORE_FORGETS) {
        new_store(n);
        w->cloud.list_empty_us = w->time.now_us + away_us + 10 * SECOND;
    }
    timeline_at(&w->time, w->time.now_us + away_us, start, n, n->life);
}

void controller_loses_store(struct world *w)
{
    struct controller_node *n = w->controller;
    if (!n->control) return;
    if (w->controller_count > 1) {
        leaders_lose_store(w);
        return;
    }
    controller_dies(w, 3 * SECOND);
    new_store(n);
    damage_end(w);
    w->damage = (struct damage){ 0 };
    n->store_was_lost = true;
    timeline_note(&w->time, "store_lost", w->name, 0);
}

/* Runs one tick of the controller. The lowest bit of `what` marks a hurried tick, which does not repeat. */
static void tick(struct world *w, const struct event *e)
{
    struct controller_node *n = e->who;
    if (e->what >> 1 != n->life || !n->control) return;
    if (node_defers(w, &n->node, true)) return;
    bool hurried = e->what & 1;
    if (hurried) n->hurried = false;
    if (w->controller_count > 1 && !leaders_may_tick(w, n)) return;
    check_before_tick(w);
    keep_time(w, n);
    control_date(n->control, node_date_us(w, &n->node) - controller_now_us(w));
    int rc = control_tick(n->control, controller_now_us(w));
    check_after_tick(w);
    if (rc < 0) {
        must(rc == -ECANCELED);
        controller_dies(w, 1 * SECOND + (int64_t)rng_below(&w->rng_chaos, 10 * SECOND));
        return;
    }
    if (w->controller_count > 1 && !leaders_after_tick(w, n)) return;
    if (faults_hit(w, FAULT_SLOW_STORE, 0.1)) /* its writes held up the loop */
        node_stop(w, &n->node, (int64_t)rng_below(&w->rng_nodes, 12 * SECOND));
    if (!hurried) timeline_at(&w->time, w->time.now_us + TICK_PERIOD_US, tick, n, e->what);
}

static void hurry(struct world *w)
{
    struct controller_node *n = w->controller;
    if (!control_is_urgent(n->control) || n->hurried) return;
    n->hurried = true;
    timeline_at(&w->time, w->time.now_us + URGENT_TICK_US, tick, n, n->life << 1 | 1);
}

bool controller_report(struct world *w, struct str text, struct agent_reply *ret)
{
    struct controller_node *n = w->controller;
    if (!n->control) return false;
    CLEANUP(arena_fini) struct arena arena;
    struct agent_report r;
    struct err err = { 0 };
    arena_init(&arena, MESSAGE_BYTES_MAX);
    if (agent_report_decode(text, &arena, &r, &err) < 0) must_failed(err.text, __FILE__, __LINE__);
    control_report(n->control, &r, controller_now_us(w), ret);
    hurry(w);
    return true;
}

bool controller_sync(struct world *w, struct str text, struct buf *ret_rules)
{
    struct controller_node *n = w->controller;
    if (!n->control) return false;
    CLEANUP(arena_fini) struct arena arena;
    struct router_sync s;
    struct router_rules rules;
    struct err err = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    if (router_sync_decode(text, &arena, &s, &err) < 0) must_failed(err.text, __FILE__, __LINE__);
    must(control_sync(n->control, &s, controller_now_us(w), &arena, &rules, &err) == 0);
    if (n->older) rules.has_complete = false;
    must(router_rules_encode(&rules, ret_rules) == 0);
    hurry(w);
    return true;
}

/* ---- the service, drawn from the seed ---- */

static void draw_service(struct world *w, struct plan_service *s)
{
    struct rng *rng = &w->rng_controller;
    /* Policies that settle in the time without faults; others wait up to twenty minutes before they
     * shrink. */
    static const struct scale_policy *const rows[] = { &scale_work, &scale_work, &scale_kpa,
                                                       &scale_static };
    *s = (struct plan_service){
        .name = "chat",
        .pool_count = 1 + (uint32_t)rng_below(rng, 2),
        .min = (uint32_t)rng_below(rng, 3),
        .max = 3 + (uint32_t)rng_below(rng, 6),
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .policy = rows[rng_below(rng, COUNT_OF(rows))],
        .place = place_table[rng_below(rng, place_count)],
        .scale = SCALE_CONFIG_DEFAULT,
        .shape = { .down_window_s = 10, .down_step_max = (uint32_t)rng_below(rng, 2) },
        .pool = { { .name = "small",
                    .provider = "sim",
                    .offer = { 0, 1 },
                    .offer_count = 2,
                    .max = 6,
                    .manual = -1 },
                  { .name = "large",
                    .provider = "sim",
                    .offer = { 2 },
                    .offer_count = 1,
                    .max = 4,
                    .manual = -1 } },
    };
    s->scale.zero_after_s = 10;
    s->scale.count = max_u32(s->min, 1);
    if (rng_below(rng, 2) == 0) s->budget_h = 4 + (double)rng_below(rng, 6);
}

static void begin_node(struct world *w, struct controller_node *n)
{
    n->world = w;
    n->index = (uint32_t)(n - w->controllers);
    n->service = w->controllers[0].service;
    if (w->mutant == MUTANT_NO_BUDGET) n->service.budget_h = 0;
    n->cloud = cloud_outer(w, n);
    for (uint32_t p = 0; p < SCALE_POOLS_MAX; p++)
        n->launch[0][p] =
            (struct control_launch){ .engine_args = engine_args, .engine_arg_count = 2 };
    n->setup =
        (struct control_setup){ .service = &n->service,
                                .service_count = 1,
                                .launch =
                                    (const struct control_launch(*)[SCALE_POOLS_MAX])n->launch,
                                .cloud = &n->cloud,
                                .cloud_count = 1,
                                .merge = MERGE_CONFIG_DEFAULT,
                                .host = STR("127.0.0.1"),
                                .port = 8090,
                                .engine_host = STR("127.0.0.1"),
                                .tick_us = w->mutant == MUTANT_NEVER_LATE ? 0 : TICK_PERIOD_US,
                                .lease_ms = SIM_LEASE_MS,
                                .decisions_max = 200 };
    n->setup.merge.boot_us = SIM_BOOT_US;
    n->setup.merge.drain_us = SIM_DRAIN_US + 10 * SECOND;
    n->setup.merge.silent_us = SIM_SILENT_US;
    n->setup.merge.retry_us = 3 * SECOND;
    n->setup.merge.orphan_us = SIM_ORPHAN_US;
    if (n->index == 0)
        new_store(n);
    else
        must(store_memory_join(w->controllers[0].store, &n->store, NULL) == 0);
    n->setup.store = n->store;
    node_start(w, &n->node);
    timeline_at(&w->time, w->time.now_us, start, n, n->life);
}

void controller_begin(struct world *w)
{
    draw_service(w, &w->controllers[0].service);
    w->budget_h = w->controllers[0].service.budget_h;
    for (uint32_t i = 0; i < w->controller_count; i++)
        begin_node(w, &w->controllers[i]);
}

void controller_end(struct world *w)
{
    fault_disarm();
    for (uint32_t i = 0; i < w->controller_count; i++) {
        control_free(w->controllers[i].control);
        store_close(w->controllers[i].store);
    }
}
