/* plan_scene.c - see plan_scene.h. */
#include "tests/unit/controller/plan_scene.h"

#include "base/core/own.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"

#include <stdio.h>
#include <stdlib.h>

static void name(char to[NAME_BYTES], const char *text)
{
    snprintf(to, NAME_BYTES, "%s", text);
}

struct scene *scene_new(void)
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
        o->prior = (struct perf_coef){ .step_s = 0.01 / offers[i].speed,
                                       .prefill_token_s = 0.0005 / offers[i].speed,
                                       .decode_seq_s = 0.001 / offers[i].speed };
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

struct plan_instance *scene_add(struct scene *s, uint32_t pool, enum phase phase)
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

const struct plan_decision *scene_decide(struct scene *s)
{
    struct rng rng;
    rng_seed(&rng, 1);
    plan(&s->view, &s->memory, s->now, &rng, &s->plan);
    return &s->plan.decision[0];
}

const struct plan_decision *scene_decide_after_window(struct scene *s)
{
    const struct plan_decision *d = NULL;
    for (int i = 0; i < 100; i++, s->now += SECOND) {
        d = scene_decide(s);
        if (s->plan.action_count) break;
    }
    return d;
}

uint32_t scene_count(const struct scene *s, enum plan_act act)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->plan.action_count; i++)
        n += s->plan.action[i].act == act;
    return n;
}

void scene_busy(struct scene *s, double arrivals)
{
    s->demand.sum.arrivals_s = arrivals;
    s->demand.sum.idle_s = 0;
}
