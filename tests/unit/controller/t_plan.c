/* t_plan.c - plans for small fleets whose right answer can be read off, and random ones whose
 * rules must hold. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/core/plan.h"
#include "controller/core/record.h"
#include "policies/place_rows.h"
#include "policies/scale_rows.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

/* A service with two pools: small (offers s1, s2) and large (offer l1). */
struct scene {
    struct plan_service service;
    struct offer offer[3];
    struct offer_health health[3];
    struct plan_instance instance[64];
    struct plan_demand demand;
    struct plan_view view;
    struct plan_memory memory;
    struct plan plan;
    int64_t now;
};

static void name(char to[NAME_BYTES], const char *text)
{
    snprintf(to, NAME_BYTES, "%s", text);
}

static struct scene *scene_new(void)
{
    struct scene *s = calloc(1, sizeof *s);
    must(s);
    static const struct {
        const char *name;
        double price, speed;
    } offers[3] = { { "s1", 1.0, 1 }, { "s2", 1.2, 1 }, { "l1", 1.9, 2 } };
    for (uint32_t i = 0; i < 3; i++) {
        struct offer *o = &s->offer[i];
        name(o->name, offers[i].name);
        name(o->provider, "fake");
        o->price_h = offers[i].price;
        o->price_known = true;
        o->lead_s = 20;
        o->seqs_max = 16;
        o->has_prior = true;
        o->prior = (struct perf_coef){ .a = 0.01 / offers[i].speed,
                                       .b = 0.0005 / offers[i].speed,
                                       .c = 0.001 / offers[i].speed };
    }
    s->service = (struct plan_service){
        .pool_count = 2,
        .max = 16,
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .policy = &scale_work,
        .place = &place_joint,
        .scale = SCALE_CONFIG_DEFAULT,
        .shape = { .down_window_s = 10 },
        .pool = { { .offer = { 0, 1 }, .offer_count = 2, .max = 8, .manual = -1 },
                  { .offer = { 2 }, .offer_count = 1, .max = 8, .manual = -1 } },
    };
    name(s->service.name, "chat");
    name(s->service.pool[0].name, "small");
    name(s->service.pool[1].name, "large");
    s->demand = (struct plan_demand){
        .sum = { .present = true, .prompt_tokens = 200, .output_tokens = 100, .idle_s = 1e6 },
        .all_fresh = true,
    };
    s->view = (struct plan_view){ .service = &s->service,
                                  .service_count = 1,
                                  .offer = s->offer,
                                  .health = s->health,
                                  .instance = s->instance,
                                  .demand = &s->demand,
                                  .room = 100 };
    s->now = 1000 * SECOND;
    return s;
}

static struct plan_instance *add(struct scene *s, uint32_t pool, enum phase phase)
{
    struct plan_instance *in = &s->instance[s->view.instance_count++];
    *in = (struct plan_instance){ .pool = pool,
                                  .phase = phase,
                                  .fresh = true,
                                  .offer = pool ? 2 : 0,
                                  .price_h = s->offer[pool ? 2 : 0].price_h,
                                  .since_us = (int64_t)s->view.instance_count };
    snprintf(in->id, sizeof in->id, "i-%u", s->view.instance_count - 1);
    return in;
}

static const struct plan_decision *decide(struct scene *s)
{
    struct rng rng;
    rng_seed(&rng, 1);
    plan(&s->view, &s->memory, s->now, &rng, &s->plan);
    return &s->plan.decision[0];
}

/* Decides every second for the minute of arrivals that the default row watches, the shaper's window and
 * a bucket more. */
static const struct plan_decision *decide_after_window(struct scene *s)
{
    const struct plan_decision *d = NULL;
    for (int i = 0; i < 100; i++, s->now += SECOND) {
        d = decide(s);
        if (s->plan.action_count) break;
    }
    return d;
}

static uint32_t count(const struct scene *s, enum plan_act act)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->plan.action_count; i++)
        n += s->plan.action[i].act == act;
    return n;
}

static void busy(struct scene *s, double arrivals)
{
    s->demand.sum.arrivals_s = arrivals;
    s->demand.sum.idle_s = 0;
}

static void a_held_request_starts_one(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    const struct plan_decision *d = decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    assert_non_null(d->reason);
    assert_true(d->cost_h_after > d->cost_h);
    free(s);
}

static void growth_is_at_once_and_counts_what_starts(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_READY);
    busy(s, 20);
    decide(s);
    uint32_t launched = count(s, PLAN_LAUNCH);
    assert_true(launched >= 2);
    /* the same demand, with those launches under way: nothing more */
    for (uint32_t i = 0; i < launched; i++)
        add(s, s->plan.action[i].pool, PHASE_STARTING);
    decide(s);
    assert_int_equal(s->plan.action_count, 0);
    free(s);
}

static void shrink_waits_and_drains_the_least_valuable(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    for (int i = 0; i < 4; i++)
        add(s, 0, PHASE_READY);
    s->instance[0].in_flight = 3;
    s->instance[1].in_flight = 1, s->instance[1].pages_cached = 5;
    s->instance[2].in_flight = 1, s->instance[2].pages_cached = 2, s->instance[2].price_h = 2;
    s->instance[3].in_flight = 1, s->instance[3].pages_cached = 2;
    s->service.shape.down_step_max = 1;
    busy(s, 0.1);
    decide(s);
    assert_int_equal(s->plan.action_count, 0);
    const struct plan_decision *d = decide_after_window(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_DRAIN);
    assert_int_equal(s->plan.action[0].instance, 2); /* least cache, then dearest */
    assert_true(d->cost_h_after < d->cost_h);
    free(s);
}

static void launches_are_cancelled_before_drains(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_READY);
    add(s, 0, PHASE_STARTING);
    busy(s, 0.1);
    decide_after_window(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_CANCEL);
    assert_int_equal(s->plan.action[0].instance, 1);
    free(s);
}

static void a_drain_is_withdrawn_before_another_is_bought(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_DRAINING)->pages_cached = 1;
    add(s, 0, PHASE_DRAINING)->pages_cached = 9;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_KEEP);
    assert_int_equal(s->plan.action[0].instance, 1);
    free(s);
}

static void what_the_provider_takes_is_not_kept(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_DRAINING)->doomed = true;
    s->demand.sum.held = 1;
    decide(s);
    assert_int_equal(count(s, PLAN_KEEP), 0);
    assert_int_equal(count(s, PLAN_LAUNCH), 1);
    free(s);
}

struct zero_row {
    bool routers_fresh, present;
    uint32_t held, in_flight, stale;
    double idle_s;
    uint32_t drains;
    const char *why;
};

static void zero_needs_proof(void **state)
{
    (void)state;
    static const struct zero_row rows[] = {
        { true, true, 0, 0, 0, 1e6, 1, "nobody asked for long" },
        { true, true, 0, 0, 0, 1, 0, "somebody asked just now" },
        { true, true, 0, 1, 0, 1e6, 0, "somebody is being served" },
        { true, true, 1, 0, 0, 1e6, 0, "somebody waits" },
        { false, true, 0, 0, 0, 1e6, 0, "one of the routers is silent" },
        { true, false, 0, 0, 0, 1e6, 0, "no router has spoken" },
        { true, true, 0, 0, 1, 1e6, 0, "the agent's report is stale" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct scene *s = scene_new();
        add(s, 0, PHASE_READY)->fresh = !rows[i].stale;
        s->demand.all_fresh = rows[i].routers_fresh;
        s->demand.sum.present = rows[i].present;
        s->demand.sum.held = rows[i].held;
        s->demand.sum.in_flight = rows[i].in_flight;
        s->demand.sum.idle_s = rows[i].idle_s;
        decide_after_window(s);
        if (count(s, PLAN_DRAIN) != rows[i].drains || count(s, PLAN_LAUNCH))
            fail_msg("%s: %u drains", rows[i].why, count(s, PLAN_DRAIN));
        free(s);
    }
}

static void nine_fresh_reports_in_ten_are_enough(void **state)
{
    (void)state;
    for (uint32_t stale = 0; stale <= 2; stale++) {
        struct scene *s = scene_new();
        s->service.pool[0].max = s->service.max = 20;
        for (uint32_t i = 0; i < 10; i++)
            add(s, 0, PHASE_READY)->fresh = i >= stale;
        busy(s, 0.1);
        const struct plan_decision *d = decide_after_window(s);
        assert_int_equal(d->fresh, 10 - stale);
        if (stale <= 1)
            assert_true(count(s, PLAN_DRAIN) > 0);
        else
            assert_int_equal(count(s, PLAN_DRAIN), 0);
        if (stale == 2) assert_non_null(d->blocked);
        free(s);
    }
}

static void stock_out_falls_to_the_next_offer(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    offer_answered(&s->health[0], OFFER_CAPACITY, "sold out", s->now);
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 1);
    offer_answered(&s->health[1], OFFER_QUOTA, "quota", s->now);
    const struct plan_decision *d = decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_int_equal(d->target[0], 0); /* the signal knows that nothing can be had */
    s->now += 20 * SECOND;             /* the first may be asked again */
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    free(s);
}

/* serverlessllm launches where launches have been quickest, and goes elsewhere as it learns. */
static void the_lead_that_was_learned_chooses(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.place = &place_serverlessllm;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 0); /* equal leads: the cheaper */
    offer_learn_lead(&s->offer[0], 60);
    decide(s);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    assert_int_equal(s->plan.action[0].offer, 1);
    assert_string_equal(s->plan.decision[0].placed[0].reason, "where it is ready first");
    for (int i = 0; i < 4; i++)
        offer_learn_lead(&s->offer[1], 300);
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    free(s);
}

/* Two on demand where spot costs a third: both are replaced at once, none is given up before, and
 * nothing is bought twice. */
static void a_pool_moves_to_spot(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->offer[1].spot = true;
    s->offer[1].price_h = 0.35;
    add(s, 0, PHASE_READY);
    add(s, 0, PHASE_READY);
    decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 2);
    assert_int_equal(s->plan.action_count, 2);
    struct plan_instance *in[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->plan.action[i].offer, 1);
        in[i] = add(s, 0, PHASE_STARTING);
        in[i]->offer = 1;
        in[i]->price_h = 0.35;
    }
    for (int i = 0; i < 2; i++) {
        s->now += SECOND;
        decide(s);
        assert_int_equal(s->plan.action_count, 0); /* it is under way */
        in[i]->phase = PHASE_READY;
    }
    decide_after_window(s);
    assert_int_equal(s->plan.action_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->plan.action[i].act, PLAN_DRAIN);
        struct plan_instance *left = &s->instance[s->plan.action[i].instance];
        assert_int_equal(left->offer, 0);
        left->phase = PHASE_ENDING;
    }
    decide_after_window(s);
    assert_int_equal(s->plan.action_count, 0);
    free(s);
}

/* The same with room for three instances: the second moves when the first has. */
static void a_move_keeps_to_the_pools_maximum(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->service.pool[0].max = 3;
    s->offer[1].spot = true;
    s->offer[1].price_h = 0.35;
    add(s, 0, PHASE_READY);
    add(s, 0, PHASE_READY);
    decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 1);
    assert_int_equal(s->plan.action_count, 1);
    free(s);
}

/* SkyServe's row keeps one more than is needed, and no more than that. */
static void a_spare_is_bought_once(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->service.place = &place_spot;
    s->offer[0].spot = s->offer[1].spot = true;
    uint32_t bought = 0;
    for (int i = 0; i < 60; i++, s->now += SECOND) {
        decide(s);
        assert_int_equal(count(s, PLAN_DRAIN) + count(s, PLAN_CANCEL), 0);
        for (uint32_t a = 0; a < s->plan.action_count; a++, bought++) {
            uint32_t offer = s->plan.action[a].offer;
            add(s, 0, PHASE_READY)->offer = offer;
        }
    }
    assert_int_equal(bought, 3);
    free(s);
}

static void another_pool_steps_in(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    for (int i = 0; i < 3; i++) {
        memset(s->health, 0, sizeof s->health);
        uint32_t only = (uint32_t)i;
        for (uint32_t o = 0; o < 3; o++)
            if (o != only) offer_answered(&s->health[o], OFFER_AUTH, "no", s->now);
        decide(s);
        assert_int_equal(s->plan.action_count, 1);
        assert_int_equal(s->plan.action[0].offer, only);
    }
    free(s);
}

static void the_budget_counts_launches_and_drains(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.budget_h = 3.5; /* three of the first offer */
    busy(s, 500);
    const struct plan_decision *d = decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 3);
    assert_true(d->cost_h_after <= 3.5);
    memset(&s->memory, 0, sizeof s->memory);
    add(s, 0, PHASE_STARTING);
    add(s, 0, PHASE_ENDING);
    decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 1);
    s->offer[0].price_known = false; /* an unknown price fits no budget: the next offer does */
    decide(s);
    assert_int_equal(s->plan.action[0].offer, 1);
    free(s);
}

static void minimums_hold_without_demand(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[1].min = 2;
    s->demand.sum.present = false;
    decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 2);
    assert_int_equal(s->plan.action[0].pool, 1);

    s->service.pool[1].min = 0;
    s->service.min = 3;
    const struct plan_decision *d = decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 3);
    assert_int_equal(d->target[0], 3); /* the cheaper pool */
    free(s);
}

static void the_services_maximum_holds(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.max = 2;
    busy(s, 500);
    const struct plan_decision *d = decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 2);
    assert_string_equal(d->blocked, "the service's maximum");
    free(s);
}

/* The window holds one pool up while the minimum asks for the other. */
static void growth_waits_for_room_below_the_services_maximum(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.min = s->service.max = 2;
    for (int i = 0; i < 2; i++)
        add(s, 1, PHASE_READY);
    for (int i = 0; i < 30; i++, s->now += SECOND) {
        const struct plan_decision *d = decide(s);
        assert_true(d->target[0] + d->target[1] <= 2);
        if (count(s, PLAN_DRAIN)) break;
        assert_int_equal(count(s, PLAN_LAUNCH), 0);
    }
    assert_int_equal(count(s, PLAN_DRAIN), 2); /* and then one mix takes the other's place */
    assert_int_equal(count(s, PLAN_LAUNCH), 2);
    free(s);
}

static void hands_are_stronger_than_signals(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_READY);
    busy(s, 500);
    s->service.paused = true;
    const struct plan_decision *d = decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_string_equal(d->reason, "paused by hand");

    s->service.paused = false;
    s->service.pool[0].manual = 3;
    s->service.pool[1].manual = 0;
    decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 2);

    s->service.pool[0].manual = 0; /* down at once, and without proof: a person answers for it */
    s->demand.sum.present = false;
    decide(s);
    assert_int_equal(count(s, PLAN_DRAIN), 1);

    s->service.pool[0].manual = 100; /* not beyond the maximum */
    d = decide(s);
    assert_int_equal(d->target[0], 8);
    free(s);
}

static void what_is_configured_no_more_is_drained(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    add(s, 0, PHASE_READY)->service = PLAN_NONE;
    add(s, 0, PHASE_STARTING)->pool = PLAN_NONE;
    add(s, 0, PHASE_DRAINING)->pool = PLAN_NONE;
    decide(s);
    assert_int_equal(count(s, PLAN_DRAIN), 1);
    assert_int_equal(count(s, PLAN_CANCEL), 1);
    free(s);
}

static void learned_speed_replaces_the_prior(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    busy(s, 4);
    struct plan_instance *in = add(s, 0, PHASE_READY);
    decide(s);
    uint32_t by_prior = s->plan.decision[0].target[0];
    in->has_perf = true;
    in->perf = s->offer[0].prior;
    in->perf.b /= 4, in->perf.c /= 4, in->perf.a /= 4;
    memset(&s->memory, 0, sizeof s->memory);
    decide(s);
    assert_true(s->plan.decision[0].target[0] < by_prior);
    free(s);
}

static void actions_are_bounded(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[0].max = s->service.pool[1].max = s->service.max = 200;
    s->service.min = 200;
    s->view.room = 1000;
    decide(s);
    assert_int_equal(s->plan.action_count, PLAN_ACTIONS_MAX);
    assert_true(s->plan.dropped > 0);
    s->view.room = 5;
    const struct plan_decision *d = decide(s);
    assert_int_equal(count(s, PLAN_LAUNCH), 5);
    assert_non_null(d->blocked);
    free(s);
}

static void records_are_json_and_only_news(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    busy(s, 20);
    s->demand.sum.age_s = 0.5;
    const struct plan_decision *d = decide(s);
    double priced = 0; /* a row's price is of what should stand: nothing stands yet, all starts */
    for (uint32_t p = 0; p < s->service.pool_count; p++) {
        assert_non_null(d->placed[p].reason);
        priced += d->placed[p].cost_h;
    }
    assert_true(priced > 0 && fabs(priced - (d->cost_h_after - d->cost_h)) < 1e-9);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { "i-new" };
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    assert_int_equal(record_encode(&s->view, &s->plan, d, ids, 5, &text), 0);
    struct json_reader r;
    json_reader_init(&r, buf_view(&text));
    assert_int_equal(json_next(&r), JSON_OBJECT);
    assert_int_equal(json_skip_rest(&r), JSON_OBJECT_END);
    assert_int_equal(json_next(&r), JSON_END);
    static const char *const members[] = { "\"reason\":",
                                           "\"runner_up\":",
                                           "\"i-new\"",
                                           "\"cost_per_h_after\":",
                                           "\"arrivals_per_s\":20",
                                           "\"place\":\"joint\",\"placed\":[{\"pool\":\"",
                                           "\"short_share\":0}",
                                           "\"demand_age_s\":0.5" };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (!strstr(text.data, members[i])) fail_msg("no %s in %s", members[i], text.data);

    struct record_last last = { 0 };
    assert_true(record_is_news(&last, d));
    struct plan_decision quiet = { .reason = d->reason };
    assert_false(record_is_news(&last, &quiet));
    quiet.blocked = "a";
    assert_true(record_is_news(&last, &quiet));
    assert_false(record_is_news(&last, &quiet));
    free(s);
}

static void random_fleets_keep_the_rules(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 17);
    for (uint32_t round = 0; round < 3000; round++) {
        struct scene *s = scene_new();
        uint32_t n = (uint32_t)rng_below(&rng, 12);
        for (uint32_t i = 0; i < n; i++) {
            struct plan_instance *in =
                add(s, (uint32_t)rng_below(&rng, 2), (enum phase)rng_below(&rng, PHASE_COUNT));
            in->fresh = rng_below(&rng, 4) != 0;
            in->in_flight = (uint32_t)rng_below(&rng, 3);
        }
        s->service.policy = scale_table[rng_below(&rng, scale_count)];
        s->service.pool[0].manual = rng_below(&rng, 5) ? -1 : (int32_t)rng_below(&rng, 4);
        s->service.budget_h = rng_below(&rng, 2) ? rng_f64(&rng) * 12 : 0;
        s->service.min = (uint32_t)rng_below(&rng, 3);
        s->demand.all_fresh = rng_below(&rng, 3) != 0;
        s->demand.sum.present = rng_below(&rng, 3) != 0;
        for (uint32_t o = 0; o < 3; o++)
            if (rng_below(&rng, 3) == 0)
                offer_answered(&s->health[o], OFFER_CAPACITY, NULL, s->now);
        busy(s, rng_f64(&rng) * 30);

        double cost = 0;
        for (uint32_t i = 0; i < n; i++)
            cost += s->instance[i].price_h;
        for (int tick = 0; tick < 13; tick++, s->now += SECOND) {
            const struct plan_decision *d = decide(s);
            bool hit[64] = { false };
            double bought = 0;
            for (uint32_t i = 0; i < s->plan.action_count; i++) {
                const struct plan_action *a = &s->plan.action[i];
                if (a->act == PLAN_LAUNCH) {
                    assert_true(offer_may_be_asked(&s->health[a->offer], s->now));
                    bought += s->offer[a->offer].price_h;
                    continue;
                }
                assert_false(hit[a->instance]); /* one action an instance */
                hit[a->instance] = true;
                enum phase p = s->instance[a->instance].phase;
                assert_int_equal(p, a->act == PLAN_DRAIN    ? PHASE_READY
                                    : a->act == PLAN_CANCEL ? PHASE_STARTING
                                                            : PHASE_DRAINING);
                bool shrinks = a->act == PLAN_DRAIN || a->act == PLAN_CANCEL;
                bool by_hand = s->service.pool[a->pool].manual >= 0;
                if (shrinks && !by_hand)
                    assert_true(d->routers_fresh && d->fresh >= d->expected * PLAN_FRESH_SHARE);
            }
            if (s->service.budget_h > 0 && bought > 0)
                assert_true(cost + bought <= s->service.budget_h * (1 + 1e-6));
        }
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_request_starts_one),
        cmocka_unit_test(growth_is_at_once_and_counts_what_starts),
        cmocka_unit_test(shrink_waits_and_drains_the_least_valuable),
        cmocka_unit_test(launches_are_cancelled_before_drains),
        cmocka_unit_test(a_drain_is_withdrawn_before_another_is_bought),
        cmocka_unit_test(zero_needs_proof),
        cmocka_unit_test(nine_fresh_reports_in_ten_are_enough),
        cmocka_unit_test(stock_out_falls_to_the_next_offer),
        cmocka_unit_test(the_lead_that_was_learned_chooses),
        cmocka_unit_test(a_pool_moves_to_spot),
        cmocka_unit_test(a_move_keeps_to_the_pools_maximum),
        cmocka_unit_test(a_spare_is_bought_once),
        cmocka_unit_test(another_pool_steps_in),
        cmocka_unit_test(the_budget_counts_launches_and_drains),
        cmocka_unit_test(minimums_hold_without_demand),
        cmocka_unit_test(the_services_maximum_holds),
        cmocka_unit_test(growth_waits_for_room_below_the_services_maximum),
        cmocka_unit_test(what_the_provider_takes_is_not_kept),
        cmocka_unit_test(hands_are_stronger_than_signals),
        cmocka_unit_test(what_is_configured_no_more_is_drained),
        cmocka_unit_test(learned_speed_replaces_the_prior),
        cmocka_unit_test(actions_are_bounded),
        cmocka_unit_test(records_are_json_and_only_news),
        cmocka_unit_test(random_fleets_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
