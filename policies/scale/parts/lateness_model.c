/* lateness_model.c - counts pools in instances of the main one and computes lateness along paths of demand. */
#include "policies/scale/parts/lateness_model.h"

#include <float.h>
#include <math.h>

#define PATH_STRIDE 7 /* neighbours in time get unlike deviations */
_Static_assert(LATENESS_PATHS % PATH_STRIDE != 0, "every deviation once: the stride is a prime");
#define LEVEL_ERROR 1.2 /* standard errors: the level's beginning is a guess as well */
#define LOGISTIC_UNIT 0.551328895421792 /* sqrt(3) / pi: variance 1 */
#define WORST_PATHS 6                   /* a quarter */

void lateness_level(struct lateness_model *s, const struct scale_config *config,
                    const struct scale_view *view, const struct forecast_paths *paths)
{
    s->config = config;
    s->view = view;
    s->paths = paths;
    s->counted = paths->known && view->demand.arrivals_total;
    s->level = s->counted ? paths_level(paths) : view->demand.arrivals_s;
}

/* ---- pools ---- */

/* Returns true if the pool is a better main pool: it can grow, or is cheaper for its rate. */
static bool is_rather(bool grows, double cost, bool best_grows, double best_cost)
{
    return grows != best_grows ? grows : cost < best_cost;
}

/* Finds the pool that is cheapest for its rate among those that can grow, or among all if none can. */
static void find_main(struct lateness_model *s)
{
    bool best_grows = false;
    double best_cost = HUGE_VAL;
    s->main = LATENESS_NO_POOL;
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

void lateness_pools(struct lateness_model *s, const struct lengths *lengths,
                    const struct speed_average *speed)
{
    const struct scale_view *v = s->view;
    for (uint32_t i = 0; i < v->pool_count; i++) {
        struct scale_pool p = v->pool[i];
        if (!p.perf_known) continue;
        p.perf = speed->pool[i].perf;
        scale_load_of(&p, lengths, &s->load[i]);
        s->rate[i] =
            scale_load_rate(&s->load[i], v->ttft_slo_s, v->tpot_slo_s, s->config->utilisation_max);
        s->slo_possible |= s->rate[i] > 0;
    }
    /* A pool that cannot keep the SLO even alone is used only when none can. */
    for (uint32_t i = 0; i < v->pool_count && !s->slo_possible; i++)
        if (v->pool[i].perf_known)
            s->rate[i] = scale_load_effort(&s->load[i], s->config->utilisation_max);
    find_main(s);
}

double lateness_worth(const struct lateness_model *s, uint32_t pool)
{
    return s->rate[pool] / s->rate[s->main];
}

double lateness_fleet_rate(const struct lateness_model *s)
{
    double rate = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        rate += scale_have(&s->view->pool[i]) * s->rate[i];
    return rate;
}

double lateness_ttft_s(const struct lateness_model *s, const uint32_t want[SCALE_POOLS_MAX])
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

/* Returns the first step that begins in `seconds` from now or later, but at most `most`. */
static uint32_t step_of(double seconds, uint32_t most)
{
    return (uint32_t)fmin(ceil(fmax(seconds, 0) / FLUID_STEP_S), most);
}

static void add_from(struct lateness_model *s, double from_s, double n)
{
    for (uint32_t k = step_of(from_s, s->steps); k < s->steps; k++)
        s->existing[k] += (float)n;
}

static void fill_fleet(struct lateness_model *s)
{
    uint32_t seen[SCALE_POOLS_MAX] = { 0 };
    for (uint32_t i = 0; i < s->view->instance_count; i++) {
        const struct scale_instance *in = &s->view->instance[i];
        if (in->ready) continue;
        seen[in->pool]++;
        add_from(s, in->left_s, lateness_worth(s, in->pool));
    }
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        add_from(s, 0, p->ready * lateness_worth(s, i));
        uint32_t rest = p->starting > seen[i] ? p->starting - seen[i] : 0;
        add_from(s, p->left_s, rest * lateness_worth(s, i));
    }
}

/* Returns the deviation of path p from the counted level, in standard errors: quantiles of the logistic
 * distribution, unrelated to the moment that the path is from. */
static double deviation(uint32_t p)
{
    double u = (p * PATH_STRIDE % LATENESS_PATHS + 0.5) / LATENESS_PATHS;
    return log(u / (1 - u)) * LOGISTIC_UNIT;
}

double lateness_forecast(const struct lateness_model *s)
{
    float path[LATENESS_LEAD_STEPS_MAX + 1];
    double sum = 0;
    if (!s->counted) return s->level;
    uint32_t lead = step_of(s->view->pool[s->main].lead_s, LATENESS_LEAD_STEPS_MAX);
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        paths_draw(s->paths, p, LATENESS_PATHS, lead + 1, path);
        sum += (double)path[lead];
    }
    return sum / LATENESS_PATHS;
}

static void fill_demand(struct lateness_model *s, double factor)
{
    double error = s->counted ? paths_error(s->paths) : 0;
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        double scale = factor * fmax(0, 1 + LEVEL_ERROR * error * deviation(p));
        paths_draw(s->paths, p, LATENESS_PATHS, s->steps, s->demand[p]);
        for (uint32_t k = 0; k < s->steps; k++) {
            if (!s->counted) s->demand[p][k] = (float)s->level;
            s->demand[p][k] *= (float)scale;
        }
    }
}

void lateness_look(struct lateness_model *s, double factor)
{
    s->lead_s = s->view->pool[s->main].lead_s;
    s->lead_steps = step_of(s->lead_s, LATENESS_LEAD_STEPS_MAX);
    s->clear_steps = step_of(s->config->clear_s, LATENESS_CLEAR_STEPS_MAX);
    s->steps = s->lead_steps + s->clear_steps + LATENESS_LOOK_STEPS;
    s->look_from = s->lead_steps;
    fill_demand(s, factor);
    fill_fleet(s);
}

double lateness_have(const struct lateness_model *s)
{
    return (double)s->existing[s->steps - 1];
}

/* ---- lateness ---- */

/* Returns the state that the fluid begins from: the sessions and waiting requests of now. */
static struct fluid_ask ask_now(const struct lateness_model *s)
{
    const struct scale_demand *d = &s->view->demand;
    return (struct fluid_ask){ .load = &s->load[s->main],
                               .sessions =
                                   d->in_flight > d->waiting ? d->in_flight - d->waiting : 0,
                               .waiting = (double)d->waiting + d->held,
                               .ttft_slo_s = s->view->ttft_slo_s,
                               .tpot_slo_s = s->view->tpot_slo_s };
}

/* Computes the late requests of each path and returns their share of all requests. */
static double late_by_path(const struct lateness_model *s, double n, bool from_now,
                           double ret_late[LATENESS_PATHS])
{
    float fleet[FLUID_STEPS_MAX];
    double have = lateness_have(s);
    for (uint32_t k = 0; k < s->steps; k++) {
        double at = (double)s->existing[k];
        if (n < have) at = fmax(0, fmin(at, n));
        if (n > have && k >= s->lead_steps) at += n - have;
        fleet[k] = (float)at;
    }
    struct fluid_ask ask = ask_now(s);
    ask.steps = s->look_from + LATENESS_LOOK_STEPS;
    ask.instances = fleet;
    double late = 0, all = 0;
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        double arrived;
        ask.rate = s->demand[p];
        fluid_late(&ask, from_now ? 0 : s->look_from, &ret_late[p], &arrived);
        late += ret_late[p];
        all += arrived;
    }
    return all > 0 ? late / all : 0;
}

double lateness_share(const struct lateness_model *s, double n, bool from_now)
{
    double late[LATENESS_PATHS];
    return late_by_path(s, n, from_now, late);
}

double lateness_worst_loss(const struct lateness_model *s, double n, double most)
{
    double few[LATENESS_PATHS], many[LATENESS_PATHS];
    double worst[WORST_PATHS] = { 0 }, sum = 0; /* largest first */
    late_by_path(s, n, true, few);
    late_by_path(s, most, true, many);
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
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

double lateness_late_now(const struct lateness_model *s, double factor)
{
    float rate[LATENESS_LOOK_STEPS], fleet[LATENESS_LOOK_STEPS];
    double ready = 0, late, all;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        ready += s->view->pool[i].ready * lateness_worth(s, i);
    for (uint32_t k = 0; k < LATENESS_LOOK_STEPS; k++) {
        rate[k] = (float)(s->level * factor);
        fleet[k] = (float)ready;
    }
    struct fluid_ask ask = ask_now(s);
    ask.steps = LATENESS_LOOK_STEPS;
    ask.rate = rate;
    ask.instances = fleet;
    fluid_late(&ask, 0, &late, &all);
    return all > 0 ? late / all : 0;
}

/* Speeds are running means in which each reading is weighted by the time that it stands for. */

#define SPEED_AVERAGE_S 120.0 /* a speed that changed for good is followed within minutes */
#define FIRST_S 1.0           /* time of the first reading, or if the wall clock went back */
#define LEAST_S 1e-6          /* time of a reading at the same moment as the last */

static void follow(double *mean, double value, double weight)
{
    *mean += weight * (value - *mean);
}

static void follow_pool(struct speed_mean *m, const struct perf_coef *now, double passed_s)
{
    m->seen_s += passed_s;
    double weight = passed_s / fmin(m->seen_s, SPEED_AVERAGE_S);
    follow(&m->perf.step_s, now->step_s, weight);
    follow(&m->perf.prefill_token_s, now->prefill_token_s, weight);
    follow(&m->perf.decode_seq_s, now->decode_seq_s, weight);
    follow(&m->perf.kv_read_s, now->kv_read_s, weight);
    follow(&m->perf.attend_s, now->attend_s, weight);
}

void speed_average_observe(struct speed_average *p, const struct scale_view *view, int64_t now_us)
{
    double passed_s = (double)(now_us - p->read_us) / 1e6;
    if (p->read_us == 0 || passed_s < 0) passed_s = FIRST_S;
    p->read_us = now_us;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *pool = &view->pool[i];
        struct speed_mean *m = &p->pool[i];
        if (!pool->perf_known) continue;
        bool learned = pool->perf.samples > 0;
        if (m->seen_s <= 0 || learned != m->learned)
            *m = (struct speed_mean){ .learned = learned, .perf = pool->perf };
        follow_pool(m, &pool->perf, fmin(fmax(passed_s, LEAST_S), SPEED_AVERAGE_S));
    }
}

/* The fluid follows a fleet step by step, with chance added. */

#define RHO_MAX 0.98    /* share of its time that an instance may give to prompts */
#define SHORT_SHARE 0.5 /* of the mean output: short outputs are late first */
#define NOBODY 1e-3     /* instances; fractions above it serve in proportion */
#define HALF_STEP 0.5   /* of a step, which passes before the first chunk */

/* Beyond these a share is below 1e-18: most steps of a fleet that suffices. */
#define NEVER_SD 9.0
#define NEVER_EXP 42.0

/* Returns the sessions an instance may have before its steps exceed the TPOT SLO, at r prompts a
 * second. */
static double tpot_sessions(const struct scale_load *l, double tpot_slo_s, double r)
{
    double left = fmax(1 - r * l->prefill_s, 1 - RHO_MAX);
    return fmax((tpot_slo_s * left - l->step_s) / fmax(l->seq_s, DBL_MIN), 0);
}

/* Returns Phi(-z). */
static double tail(double z)
{
    if (z > NEVER_SD) return 0;
    return z < -NEVER_SD ? 1 : 0.5 * erfc(z * M_SQRT1_2);
}

/* Returns the share of requests that meet more prompts of others during their decode than the TPOT SLO
 * allows. */
static double answer_late(const struct fluid_ask *a, double n, double r, double batch)
{
    const struct scale_load *l = a->load;
    double left = a->tpot_slo_s * (1 - r * l->prefill_s) - l->step_s - l->seq_s * batch;
    double prompts = r * l->prefill_s * l->prefill_s * (1 + l->prefill_scv);
    double life_s = fmax(SHORT_SHARE * l->output * a->tpot_slo_s, DBL_MIN);
    double spread = a->tpot_slo_s * sqrt(prompts / life_s / sqrt(fmax(n, 1)));
    return tail(left / fmax(spread, DBL_MIN));
}

/* Returns the share of requests with a prompt that waits longer than the TTFT SLO allows. */
static double prompt_late(const struct fluid_ask *a, double n, double r, double batch)
{
    const struct scale_load *l = a->load;
    double s = scale_load_prompt_s(l, batch, HALF_STEP);
    double rho = fmin(r * s, RHO_MAX), x = a->ttft_slo_s - s;
    if (x <= 0) return 1;
    double patience = x * 2 * n * (1 - rho) / (s * (1 + l->prefill_scv));
    return patience > NEVER_EXP ? 0 : pow(rho, sqrt(2 * (n + 1))) * exp(-patience);
}

/* The state of the fluid at the end of a step. */
struct flow {
    double sessions, waiting;
    double out; /* ended a second */
};

/* Returns the sessions that n instances have room for within the TPOT SLO. */
static double room_of(const struct fluid_ask *a, double n, double r)
{
    return n * fmin(a->load->seqs_max, tpot_sessions(a->load, a->tpot_slo_s, r));
}

/* Advances the fluid by a step in which `rate` requests a second arrive at n instances. */
static void advance(const struct fluid_ask *a, struct flow *f, double n, double rate)
{
    const struct scale_load *l = a->load;
    if (n < NOBODY) {
        f->waiting += rate * FLUID_STEP_S;
        return;
    }
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double step = scale_load_step_s(l, batch, fmin(r, RHO_MAX / fmax(l->prefill_s, DBL_MIN)));
    /* Sessions approach their steady number at the pace of a session's duration. That is stable for
     * sessions shorter than FLUID_STEP_S too. */
    double session_s = fmax(l->output * step, DBL_MIN), decay = exp(-FLUID_STEP_S / session_s);
    double each = scale_load_prompt_s(l, batch, 0);
    double prompts = n * RHO_MAX / fmax(each, DBL_MIN);
    double in = fmin(rate + f->waiting / FLUID_STEP_S, prompts);
    double fits = fmax(0, room - f->sessions * decay) / (session_s * (1 - decay));
    in = fmin(in, fits);
    f->waiting = fmax(0, f->waiting + (rate - in) * FLUID_STEP_S);
    f->sessions = in * session_s * (1 - decay) + f->sessions * decay;
    f->out = f->sessions / session_s;
}

/* Returns the late share of the requests that arrived in the step that ends with f. */
static double late_of(const struct fluid_ask *a, const struct flow *f, double n, double rate)
{
    if (n < NOBODY) return 1;
    const struct scale_load *l = a->load;
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double spread = f->sessions * (l->step_s + l->seq_s * batch) / fmax(l->step_s, DBL_MIN);
    double slack = room + f->out * fmax(0, a->ttft_slo_s - l->prefill_s) - f->sessions - f->waiting;
    double p = tail(slack / sqrt(fmax(spread, 1))) + prompt_late(a, n, r, batch);
    p += answer_late(a, n, r, batch);
    return fmin(p, 1);
}

void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all)
{
    struct flow f = { ask->sessions, ask->waiting, 0 };
    double late = 0, all = 0;
    for (uint32_t k = 0; k < ask->steps; k++) {
        double rate = (double)ask->rate[k], n = (double)ask->instances[k];
        advance(ask, &f, n, rate);
        if (k < from) continue;
        late += late_of(ask, &f, n, rate) * rate * FLUID_STEP_S;
        all += rate * FLUID_STEP_S;
    }
    *ret_late = late;
    *ret_all = all;
}
