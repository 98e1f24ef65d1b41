/* plan_scene.h - builds one service with two pools for tests of plan.c, and decides its plan each
 * second. */
#pragma once
#include "controller/core/plan.h"

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

struct scene *scene_new(void); /* without demand; the caller frees */
struct plan_instance *scene_add(struct scene *s, uint32_t pool, enum phase phase);
void scene_busy(struct scene *s, double arrivals);

const struct plan_decision *scene_decide(struct scene *s);
/* Decides every second for the minute of arrivals that the default policy watches, the shaper's
 * window and one bucket more; returns the first decision with an action. */
const struct plan_decision *scene_decide_after_window(struct scene *s);

/* Returns how many of the last plan's actions are `act`. */
uint32_t scene_count(const struct scene *s, enum plan_act act);
