/* lateness_model.c - pools as one kind of instance, paths of demand, and their lateness. */
#include "policies/scale/parts/lateness_model.h"

#include <math.h>

#define PATH_STRIDE 7 /* neighbours in time get unlike deviations */
_Static_assert(SCENE_PATHS % PATH_STRIDE != 0, "every deviation once: the stride is a prime");
#define LEVEL_ERROR 1.2 /* standard errors: where the level begins is a guess as well */
#define LOGISTIC_UNIT 0.551328895421792 /* sqrt(3) / pi: variance 1 */
#define WORST_PATHS 6                   /* a quarter */

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

/* Whether a pool that grows or not, at so many dollars for its rate, is rather the main one. */
static bool is_rather(bool grows, double cost, bool best_grows, double best_cost)
{
    return grows != best_grows ? grows : cost < best_cost;
}

/* The cheapest for its rate of those that can grow, or of all when none can. */
static void find_main(struct scene *s)
{
    bool best_grows = false;
    double best_cost = HUGE_VAL;
    s->main = SCENE_NO_POOL;
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        if (s->rate[i] <= 0) continue;
        bool grows = scale_reach(p) > scale_have(p);
        double cost = p->price_h / s->rate[i];
        if (!is_rather(grows, cost, best_grows, best_cost)) continue;
        best_grows = grows;
        best_cost = cost;
        s->main = i;
    }
}

void scene_pools(struct scene *s, const struct lengths *lengths, const struct pace *pace)
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
    /* A pool that cannot keep the promise even alone is used only when none can. */
    for (uint32_t i = 0; i < v->pool_count && !s->promised; i++)
        if (v->pool[i].perf_known)
            s->rate[i] = scale_load_effort(&s->load[i], s->config->utilisation_max);
    find_main(s);
}

double scene_worth(const struct scene *s, uint32_t pool)
{
    return s->rate[pool] / s->rate[s->main];
}

double scene_fleet_rate(const struct scene *s)
{
    double rate = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        rate += scale_have(&s->view->pool[i]) * s->rate[i];
    return rate;
}

double scene_ttft_s(const struct scene *s, const uint32_t want[SCALE_POOLS_MAX])
{
    double total = 0, alone_s = 0, used = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        total += want[i] * s->rate[i];
    if (total <= 0) return -1;
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_load *l = &s->load[i];
        double share = want[i] * s->rate[i] / total;
        alone_s += share * (l->step_s + l->prefill_s);
        used += share * (s->rate[i] * s->level / total) * l->work_s;
    }
    return used < 1 ? alone_s / (1 - used) : -1;
}

/* ---- the look ---- */

/* The step in which what is due in so many seconds has come; `most` if that is later. */
static uint32_t step_of(double seconds, uint32_t most)
{
    return (uint32_t)fmin(ceil(fmax(seconds, 0) / FLUID_STEP_S), most);
}

static void add_from(struct scene *s, double from_s, double n)
{
    for (uint32_t k = step_of(from_s, s->steps); k < s->steps; k++)
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
    s->lead_steps = step_of(s->lead_s, SCENE_LEAD_STEPS_MAX);
    s->clear_steps = step_of(s->config->clear_s, SCENE_CLEAR_STEPS_MAX);
    s->steps = s->lead_steps + s->clear_steps + SCENE_LOOK_STEPS;
    s->look_from = s->lead_steps;
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
    ask.steps = s->look_from + SCENE_LOOK_STEPS;
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
    float rate[SCENE_LOOK_STEPS], fleet[SCENE_LOOK_STEPS];
    double ready = 0, late, all;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        ready += s->view->pool[i].ready * scene_worth(s, i);
    for (uint32_t k = 0; k < SCENE_LOOK_STEPS; k++) {
        rate[k] = (float)(s->level * factor);
        fleet[k] = (float)ready;
    }
    struct fluid_ask ask = ask_now(s);
    ask.steps = SCENE_LOOK_STEPS;
    ask.rate = rate;
    ask.instances = fleet;
    fluid_late(&ask, 0, &late, &all);
    return all > 0 ? late / all : 0;
}
