/* lateness_model.c - counts pools in instances of the main one and computes lateness along paths of demand. */
#include "policies/scale/parts/lateness_model.h"

#include <float.h>
#include <math.h>
#include <string.h>

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
    s->seen_count = 0;
    s->lead_known = false;
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

static void flow_advance(const struct fluid_ask *a, struct flow *f, double n, double rate);
static void flow_late(const struct fluid_ask *ask, struct flow f, uint32_t first, uint32_t from,
                      double *ret_late, double *ret_all);

/* Fills the steps' instances with a fleet of n. */
static void fill_instances(const struct lateness_model *s, double n, float ret[FLUID_STEPS_MAX])
{
    double have = lateness_have(s);
    for (uint32_t k = 0; k < s->steps; k++) {
        double at = (double)s->existing[k];
        if (n < have) at = fmax(0, fmin(at, n));
        if (n > have && k >= s->lead_steps) at += n - have;
        ret[k] = (float)at;
    }
}

/* Follows each path until new instances could be ready. */
static void find_lead(struct lateness_model *s)
{
    struct fluid_ask ask = ask_now(s);
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        struct flow f = { ask.sessions, ask.waiting, 0 };
        for (uint32_t k = 0; k < s->lead_steps; k++)
            flow_advance(&ask, &f, (double)s->existing[k], (double)s->demand[p][k]);
        s->at_lead[p] = f;
    }
    s->lead_known = true;
}

/* Returns what was computed of a fleet in this look; NULL: nothing. */
static const struct lateness_seen *find_seen(const struct lateness_model *s, double n,
                                             bool from_now)
{
    uint32_t count = s->seen_count < LATENESS_SEEN_MAX ? s->seen_count : LATENESS_SEEN_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct lateness_seen *seen = &s->seen[i];
        bool same_look = seen->from_now == from_now && seen->look_from == s->look_from;
        if (same_look && seen->n == n) return seen;
    }
    return NULL;
}

/* Returns the requests of all paths from step `from` on. */
static double arrivals_from(const struct lateness_model *s, uint32_t from)
{
    double all = 0;
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        double arrived = 0;
        for (uint32_t k = from; k < s->look_from + LATENESS_LOOK_STEPS; k++)
            arrived += (double)s->demand[p][k] * FLUID_STEP_S;
        all += arrived;
    }
    return all;
}

/* Computes the late requests of each path. Returns NULL as soon as their share is sure to be more than
 * `enough` above `base`: each path only adds to it. */
static const struct lateness_seen *late_by_path(struct lateness_model *s, double n, bool from_now,
                                                double base, double enough)
{
    const struct lateness_seen *known = find_seen(s, n, from_now);
    if (known) return known;
    float fleet[FLUID_STEPS_MAX];
    fill_instances(s, n, fleet);
    bool leaps = !from_now && n >= lateness_have(s);
    if (leaps && !s->lead_known) find_lead(s);
    struct fluid_ask ask = ask_now(s);
    ask.steps = s->look_from + LATENESS_LOOK_STEPS;
    ask.instances = fleet;
    uint32_t from = from_now ? 0 : s->look_from;
    double late = 0, all = arrivals_from(s, from);
    struct lateness_seen now = { .n = n, .from_now = from_now, .look_from = s->look_from };
    for (uint32_t p = 0; p < LATENESS_PATHS; p++) {
        struct flow f = leaps ? s->at_lead[p] : (struct flow){ ask.sessions, ask.waiting, 0 };
        double arrived;
        ask.rate = s->demand[p];
        flow_late(&ask, f, leaps ? s->lead_steps : 0, from, &now.late[p], &arrived);
        late += now.late[p];
        if (all > 0 && late / all - base > enough) return NULL;
    }
    now.share = all > 0 ? late / all : 0;
    struct lateness_seen *place = &s->seen[s->seen_count++ % LATENESS_SEEN_MAX];
    *place = now;
    return place;
}

double lateness_share(struct lateness_model *s, double n, bool from_now)
{
    return late_by_path(s, n, from_now, 0, DBL_MAX)->share;
}

double lateness_more(struct lateness_model *s, double n, bool from_now, double base, double enough)
{
    const struct lateness_seen *seen = late_by_path(s, n, from_now, base, enough);
    return seen ? seen->share - base : HUGE_VAL;
}

double lateness_worst_loss(struct lateness_model *s, double n, double most)
{
    double worst[WORST_PATHS] = { 0 }, sum = 0; /* largest first */
    double few[LATENESS_PATHS];
    memcpy(few, late_by_path(s, n, true, 0, DBL_MAX)->late, sizeof few);
    const double *many = late_by_path(s, most, true, 0, DBL_MAX)->late;
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

/* fmax and fmin are calls, a tenth of a decision's time; here the bound is never NaN. */
static double at_least(double x, double least)
{
    return x > least ? x : least;
}

static double at_most(double x, double most)
{
    return x < most ? x : most;
}

/* Beyond these a share is below 1e-18: most steps of a fleet that suffices. */
#define NEVER_SD 9.0
#define NEVER_EXP 42.0

/* Returns the sessions an instance may have before its steps exceed the TPOT SLO, at r prompts a
 * second. */
static double tpot_sessions(const struct scale_load *l, double tpot_slo_s, double r)
{
    double left = at_least(1 - r * l->prefill_s, 1 - RHO_MAX);
    return at_least((tpot_slo_s * left - l->step_s) / at_least(l->seq_s, DBL_MIN), 0);
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
    double life_s = at_least(SHORT_SHARE * l->output * a->tpot_slo_s, DBL_MIN);
    double spread = a->tpot_slo_s * sqrt(prompts / life_s / sqrt(at_least(n, 1)));
    return tail(left / at_least(spread, DBL_MIN));
}

/* Returns the share of requests with a prompt that waits longer than the TTFT SLO allows. */
static double prompt_late(const struct fluid_ask *a, double n, double r, double batch)
{
    const struct scale_load *l = a->load;
    double s = scale_load_prompt_s(l, batch, HALF_STEP);
    double rho = at_most(r * s, RHO_MAX), x = a->ttft_slo_s - s;
    if (x <= 0) return 1;
    double patience = x * 2 * n * (1 - rho) / (s * (1 + l->prefill_scv));
    return patience > NEVER_EXP ? 0 : pow(rho, sqrt(2 * (n + 1))) * exp(-patience);
}

/* Returns the sessions that n instances have room for within the TPOT SLO. */
static double room_of(const struct fluid_ask *a, double n, double r)
{
    return n * at_most(tpot_sessions(a->load, a->tpot_slo_s, r), a->load->seqs_max);
}

/* Advances the fluid by a step in which `rate` requests a second arrive at n instances. */
static void flow_advance(const struct fluid_ask *a, struct flow *f, double n, double rate)
{
    const struct scale_load *l = a->load;
    if (n < NOBODY) {
        f->waiting += rate * FLUID_STEP_S;
        return;
    }
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double step =
        scale_load_step_s(l, batch, at_most(r, RHO_MAX / at_least(l->prefill_s, DBL_MIN)));
    /* Sessions approach their steady number at the pace of a session's duration. That is stable for
     * sessions shorter than FLUID_STEP_S too. */
    double session_s = at_least(l->output * step, DBL_MIN), decay = exp(-FLUID_STEP_S / session_s);
    double each = scale_load_prompt_s(l, batch, 0);
    double prompts = n * RHO_MAX / at_least(each, DBL_MIN);
    double in = at_most(rate + f->waiting / FLUID_STEP_S, prompts);
    double fits = at_least(room - f->sessions * decay, 0) / (session_s * (1 - decay));
    in = at_most(fits, in); /* without sessions that end, fits is NaN */
    f->waiting = at_least(f->waiting + (rate - in) * FLUID_STEP_S, 0);
    f->sessions = in * session_s * (1 - decay) + f->sessions * decay;
    f->out = f->sessions / session_s;
}

/* Returns the late share of the requests that arrived in the step that ends with f. */
static double late_of(const struct fluid_ask *a, const struct flow *f, double n, double rate)
{
    if (n < NOBODY) return 1;
    const struct scale_load *l = a->load;
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double spread = f->sessions * (l->step_s + l->seq_s * batch) / at_least(l->step_s, DBL_MIN);
    double slack =
        room + f->out * at_least(a->ttft_slo_s - l->prefill_s, 0) - f->sessions - f->waiting;
    double p = tail(slack / sqrt(at_least(spread, 1))) + prompt_late(a, n, r, batch);
    p += answer_late(a, n, r, batch);
    return at_most(p, 1);
}

/* Follows the fluid from step `first` on and sums up the requests from `from` on. */
static void flow_late(const struct fluid_ask *ask, struct flow f, uint32_t first, uint32_t from,
                      double *ret_late, double *ret_all)
{
    double late = 0, all = 0;
    for (uint32_t k = first; k < ask->steps; k++) {
        double rate = (double)ask->rate[k], n = (double)ask->instances[k];
        flow_advance(ask, &f, n, rate);
        if (k < from) continue;
        late += late_of(ask, &f, n, rate) * rate * FLUID_STEP_S;
        all += rate * FLUID_STEP_S;
    }
    *ret_late = late;
    *ret_all = all;
}

void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all)
{
    struct flow f = { ask->sessions, ask->waiting, 0 };
    flow_late(ask, f, 0, from, ret_late, ret_all);
}
