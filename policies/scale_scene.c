/* scale_scene.c - pools as one kind of instance, paths of demand, and their lateness. */
#include "policies/scale_scene.h"

#include <float.h>
#include <math.h>

#define LOOK_STEPS 4 /* of FLUID_STEP_S: 20 s */
#define CLEAR_STEPS_MAX 60
#define PATH_STRIDE 7   /* no divisor in common with SCENE_PATHS */
#define LEVEL_ERROR 1.2 /* standard errors: where the level begins is a guess as well */
#define LOGISTIC_UNIT 0.551328895421792 /* sqrt(3) / pi: variance 1 */
#define WORST_PATHS 6

void scene_level(struct scene *s, const struct scale_config *config, const struct scale_view *view,
                 const struct outlook *outlook)
{
    s->config = config;
    s->view = view;
    s->outlook = outlook;
    s->counted = outlook->known && view->demand.arrivals_total;
    s->level = s->counted ? outlook_level(outlook) : view->demand.arrivals_s;
}

/* ---- pools ---- */

/* A pool that cannot keep the promise even alone is used only when none can: then its rate is what
 * it does at utilisation_max, late but as fast as it goes. */
static double effort_rate(const struct scene *s, const struct scale_load *l)
{
    double own = l->step_s * l->output / l->seqs_max;
    return s->config->utilisation_max / fmax(l->work_s + own, DBL_MIN);
}

/* The one that would grow: cheapest for its rate. */
static void find_main(struct scene *s)
{
    double best = DBL_MAX;
    s->main = UINT32_MAX;
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        bool grows = scale_reach(p) > scale_have(p) || s->main == UINT32_MAX;
        if (s->rate[i] <= 0 || !grows || p->price_h / s->rate[i] >= best) continue;
        best = p->price_h / s->rate[i];
        s->main = i;
    }
}

void scene_pools(struct scene *s, const struct scale_lengths *lengths, const struct pace *pace)
{
    const struct scale_view *v = s->view;
    for (uint32_t i = 0; i < v->pool_count; i++) {
        struct scale_pool p = v->pool[i];
        if (!p.perf_known) continue;
        p.perf = pace->pool[i].perf;
        scale_load_of(&p, lengths, &s->load[i]);
        s->rate[i] =
            scale_load_rate(&s->load[i], v->ttft_slo_s, v->tpot_slo_s, s->config->utilisation_max);
        s->promised |= s->rate[i] > 0;
    }
    for (uint32_t i = 0; i < v->pool_count; i++)
        if (v->pool[i].perf_known && !s->promised) s->rate[i] = effort_rate(s, &s->load[i]);
    find_main(s);
}

double scene_worth(const struct scene *s, uint32_t pool)
{
    return s->rate[pool] / s->rate[s->main];
}

/* ---- the look ---- */

static void add_from(struct scene *s, double from_s, double n)
{
    for (uint32_t k = (uint32_t)ceil(fmax(from_s, 0) / FLUID_STEP_S); k < s->steps; k++)
        s->existing[k] += (float)n;
}

static void fill_fleet(struct scene *s)
{
    uint32_t seen[SCALE_POOLS_MAX] = { 0 };
    for (uint32_t i = 0; i < s->view->instance_count; i++) {
        const struct scale_instance *in = &s->view->instance[i];
        if (in->ready) continue;
        seen[in->pool]++;
        add_from(s, in->left_s, scene_worth(s, in->pool));
    }
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        add_from(s, 0, p->ready * scene_worth(s, i));
        uint32_t rest = p->starting > seen[i] ? p->starting - seen[i] : 0;
        add_from(s, p->left_s, rest * scene_worth(s, i));
    }
}

/* Of the level from what was counted, on path p, in standard errors: quantiles of the logistic
 * distribution, whatever moment the path begins at. */
static double deviation(uint32_t p)
{
    double u = (p * PATH_STRIDE % SCENE_PATHS + 0.5) / SCENE_PATHS;
    return log(u / (1 - u)) * LOGISTIC_UNIT;
}

static void fill_demand(struct scene *s, double factor)
{
    double error = s->counted ? outlook_error(s->outlook) : 0;
    for (uint32_t p = 0; p < SCENE_PATHS; p++) {
        double scale = factor * fmax(0, 1 + LEVEL_ERROR * error * deviation(p));
        outlook_path(s->outlook, p, SCENE_PATHS, s->steps, s->demand[p]);
        for (uint32_t k = 0; k < s->steps; k++) {
            if (!s->counted) s->demand[p][k] = (float)s->level;
            s->demand[p][k] *= (float)scale;
        }
    }
}

void scene_look(struct scene *s, double factor)
{
    s->lead_s = s->view->pool[s->main].lead_s;
    s->lead_steps = (uint32_t)fmin(ceil(s->lead_s / FLUID_STEP_S),
                                   FLUID_STEPS_MAX - LOOK_STEPS - CLEAR_STEPS_MAX);
    s->look_from = s->lead_steps;
    s->clear_steps = (uint32_t)fmin(ceil(s->config->clear_s / FLUID_STEP_S), CLEAR_STEPS_MAX);
    s->steps = s->lead_steps + s->clear_steps + LOOK_STEPS;
    fill_demand(s, factor);
    fill_fleet(s);
}

double scene_have(const struct scene *s)
{
    return (double)s->existing[s->steps - 1];
}

/* ---- lateness ---- */

/* The fluid's beginning: what runs and waits now. */
static struct fluid_ask ask_now(const struct scene *s)
{
    const struct scale_demand *d = &s->view->demand;
    return (struct fluid_ask){ .load = &s->load[s->main],
                               .sessions =
                                   d->in_flight > d->waiting ? d->in_flight - d->waiting : 0,
                               .waiting = (double)d->waiting + d->held,
                               .ttft_slo_s = s->view->ttft_slo_s,
                               .tpot_slo_s = s->view->tpot_slo_s };
}

/* Requests that are late, by path; their share of all is returned. */
static double late_by_path(const struct scene *s, double n, bool from_now,
                           double ret_late[SCENE_PATHS])
{
    float fleet[FLUID_STEPS_MAX];
    double have = scene_have(s);
    for (uint32_t k = 0; k < s->steps; k++) {
        double at = (double)s->existing[k];
        if (n < have) at = fmax(0, fmin(at, n));
        if (n > have && k >= s->lead_steps) at += n - have;
        fleet[k] = (float)at;
    }
    struct fluid_ask ask = ask_now(s);
    ask.steps = s->look_from + LOOK_STEPS;
    ask.instances = fleet;
    double late = 0, all = 0;
    for (uint32_t p = 0; p < SCENE_PATHS; p++) {
        double arrived;
        ask.rate = s->demand[p];
        fluid_late(&ask, from_now ? 0 : s->look_from, &ret_late[p], &arrived);
        late += ret_late[p];
        all += arrived;
    }
    return all > 0 ? late / all : 0;
}

double scene_late(const struct scene *s, double n, bool from_now)
{
    double late[SCENE_PATHS];
    return late_by_path(s, n, from_now, late);
}

double scene_worst_loss(const struct scene *s, double n, double most)
{
    double few[SCENE_PATHS], many[SCENE_PATHS];
    double worst[WORST_PATHS] = { 0 }, sum = 0; /* largest first */
    late_by_path(s, n, true, few);
    late_by_path(s, most, true, many);
    for (uint32_t p = 0; p < SCENE_PATHS; p++) {
        double loss = few[p] - many[p];
        for (uint32_t i = 0; i < WORST_PATHS; i++) {
            if (loss <= worst[i]) continue;
            double smaller = worst[i];
            worst[i] = loss;
            loss = smaller;
        }
    }
    for (uint32_t i = 0; i < WORST_PATHS; i++)
        sum += worst[i];
    return sum / WORST_PATHS;
}

double scene_late_now(const struct scene *s, double factor)
{
    float rate[LOOK_STEPS], fleet[LOOK_STEPS];
    double ready = 0, late, all;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        ready += s->view->pool[i].ready * scene_worth(s, i);
    for (uint32_t k = 0; k < LOOK_STEPS; k++) {
        rate[k] = (float)(s->level * factor);
        fleet[k] = (float)ready;
    }
    struct fluid_ask ask = ask_now(s);
    ask.steps = LOOK_STEPS;
    ask.rate = rate;
    ask.instances = fleet;
    fluid_late(&ask, 0, &late, &all);
    return all > 0 ? late / all : 0;
}
