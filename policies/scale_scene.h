/* scale_scene.h - how many requests would be late with a fleet of n, over the paths that demand may take.
 *
 * Layer: policies (base/core)
 * Rules: a scene is built anew for each decision and keeps nothing
 *
 * One pool stands for all in the fluid (scale_fluid.h), the one that would grow: what others do is
 * counted in its instances. A fleet of n "from the lead on" is what there is until the lead of new
 * instances has passed, and n then; fewer than there are leave at once.
 *
 * A scene is filled in three steps, each of which needs what the one before found: scene_level,
 * scene_pools, scene_look.
 */
#pragma once
#include "policies/scale.h"
#include "policies/scale_fluid.h"
#include "policies/scale_outlook.h"
#include "policies/scale_pace.h"

#define SCENE_PATHS 24

struct scene {
    const struct scale_config *config;
    const struct scale_view *view;
    const struct outlook *outlook;
    double level; /* requests a second now */
    bool
        counted; /* the level and the paths are from counts; else the routers' rate stands for them */

    struct scale_load load[SCALE_POOLS_MAX];
    double
        rate[SCALE_POOLS_MAX]; /* requests a second within the promise; 0: the pool is of no use */
    bool promised;             /* some pool can keep the promise; else rates are best effort */
    uint32_t main;             /* the pool that stands for all; UINT32_MAX: none */

    double lead_s;
    uint32_t steps, lead_steps, clear_steps, look_from;
    float demand[SCENE_PATHS][FLUID_STEPS_MAX]; /* by step */
    float existing[FLUID_STEPS_MAX];            /* instances of the main pool's kind that serve */
};

void scene_level(struct scene *s, const struct scale_config *config, const struct scale_view *view,
                 const struct outlook *outlook);
void scene_pools(struct scene *s, const struct scale_lengths *lengths, const struct pace *pace);

/* `factor`: what the work of a request is multiplied by. */
void scene_look(struct scene *s, double factor);

/* Instances of the main pool that do what one of `pool` does. */
double scene_worth(const struct scene *s, uint32_t pool);

/* Of the main pool's kind, when all that starts has started. */
double scene_have(const struct scene *s);

/* Share of requests late with n over the look: a lead from now, or from now on. */
double scene_late(const struct scene *s, double n, bool from_now);

/* Requests that are late from now on with `n` and not with `most`, on the worst paths. */
double scene_worst_loss(const struct scene *s, double n, double most);

/* Share of requests that are late with what is ready at the level of now, work multiplied by
 * `factor`. Needs no scene_look. */
double scene_late_now(const struct scene *s, double factor);
