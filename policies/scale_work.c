/* scale_work.c - the cheapest fleet that keeps the promise when what is bought now is ready.
 *
 * Nothing that is decided now serves before now + lead. So the fleet is sized for then:
 *
 *   demand    PATHS ways on from the level of arrivals now, as it went on from moments within the
 *             last ten minutes (scale_outlook.h)
 *   lengths   the distribution of what waits and of what came lately: its moments give the work of a
 *             request, the KV it holds and the spread of prompts (scale_capacity.h); answers no
 *             shorter than the sessions there are say (scale_sessions.h)
 *   fleet     what is ready, and what starts once its own lead has passed
 *   lateness  the share of requests that would miss the promise, fleet and demand followed as a
 *             fluid with chance about it (scale_fluid.h): a buffer of free sessions counts for what
 *             it bridges
 *   need      the least capacity C, ready a lead from now, with
 *                 late(C) <= late(everything that can be had) + shrink (1 - attainment)
 *             over LOOK_STEPS after the lead and the mean of all paths; where a backlog makes all
 *             late whatever is bought, clear_s later; to shrink, over the time until then as well, since
 *             what is given up now is back no sooner
 *             C is never below the level now at utilisation_max of an instance's time and sessions;
 *             what there is stands while hold (1 - attainment) are expected to miss with it, and
 *             nothing is given up before LEARN_BUCKETS of arrivals were watched
 *   shrink,   small while nothing is known, more the more of the misses that the promise allows have
 *   hold      not happened (scale_allowance.h), as long as what is saved pays for the worst paths
 *   belief    measured misses correct the model: work is multiplied by a factor that moves until the
 *             misses expected are those that are counted (scale_belief.h); it stands while help for
 *             expected misses is on its way, and after a backlog
 *   mix       the cheapest whole number of instances of all pools that does C (scale_mix.h), the
 *             lead of new ones priced in
 *
 * The lead is that of the cheapest pool that can grow. One configuration serves every lead: all that
 * depends on it is measured. Without counted arrivals the routers' rate stands for the level.
 */
#include "base/core/bits.h"
#include "policies/scale_allowance.h"
#include "policies/scale_belief.h"
#include "policies/scale_fluid.h"
#include "policies/scale_mix.h"
#include "policies/scale_outlook.h"
#include "policies/scale_rows.h"
#include "policies/scale_sessions.h"
#include "policies/scale_shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define AGAIN_US ((int64_t)1000000)
#define ANSWER_US ((int64_t)OUTLOOK_BUCKET_S * 1000000)
#define LOOK_STEPS 4 /* of FLUID_STEP_S: 20 s */
#define CLEAR_STEPS_MAX 60
#define SATURATED 0.3 /* late whatever is bought: look at when the backlog should be gone */
#define HOPELESS 0.9  /* and late even then: everything there is */
#define PATHS 24
#define PATH_STRIDE 7   /* no divisor in common with PATHS */
#define LEVEL_ERROR 1.2 /* standard errors: where the level begins is a guess as well */
#define LOGISTIC_UNIT 0.551328895421792 /* sqrt(3) / pi: variance 1 */
#define WORST_PATHS 6
#define RISKED 0.25 /* of what is saved: what the worst paths may cost */
#define BISECTIONS 24
#define AWAKE_RATE 1e-6 /* requests a second: asks for one instance, whichever is cheapest */
#define SETTLE_US ((int64_t)30000000) /* before a fleet of another size is judged */
#define LEARN_BUCKETS 12              /* of arrivals: until then nothing is given up */
#define BACKLOG 20 /* of so many requests one waits: more begins or less than comes */

struct work {
    struct outlook outlook;
    int64_t second_us; /* next reading of the counters below */
    uint64_t met_total, missed_total;
    bool counting; /* they were read before */
    struct belief belief;
    struct allowance allowance;
    uint32_t ready; /* instances, as read last */
    int64_t changed_us;
    double fewest; /* instances that what is saved pays for, mean of a lead */
    int64_t fewest_us;
    int64_t calm_us; /* since when no help for expected misses is on its way */
    struct sessions sessions;
    struct answer {
        int64_t until_us;
        uint32_t main, have, ready; /* it holds while these stay */
        double instances;           /* of main */
    } answer;
};
_Static_assert(sizeof(struct work) <= SCALE_STATE_BYTES_MAX, "state of scale_work");

/* The lengths to plan with: what waits and what came lately; else the means. */
static void plan_lengths(const struct scale_demand *d, const struct sessions *sessions,
                         struct scale_lengths *ret)
{
    if (d->expected.count > 0 || d->queued.count > 0) {
        scale_lengths_join(&d->expected, &d->queued, ret);
    } else {
        *ret = (struct scale_lengths){ 0 };
        scale_lengths_add(ret, d->prompt_tokens, fmax(d->output_tokens, 1), 1);
    }
    double factor = sessions_factor(sessions, ret->output);
    ret->output *= factor;
    ret->cross *= factor;
    ret->output_sq *= factor * factor;
}

/* One pool's instance as the plan sees it. */
struct lane {
    struct scale_load load;
    double rate; /* within the promise, or as fast as it goes */
};

struct scene {
    const struct scale_config *config;
    const struct scale_view *view;
    const struct work *memory;
    struct lane lane[SCALE_POOLS_MAX];
    double rate[SCALE_POOLS_MAX];
    bool any_known, promised;
    uint32_t main; /* the pool that stands for all in the fluid */
    double level, lead_s;
    double shrink;  /* parts of what is allowed that a smaller fleet may miss */
    double allowed; /* 1 - attainment: the share that may be late */
    bool counted;
    uint32_t steps, lead_steps, clear_steps, look_from;
    float demand[PATHS][FLUID_STEPS_MAX]; /* by step */
    float existing[FLUID_STEPS_MAX];      /* instances of the main pool's kind that will serve */
};

static double capacity_rate(const struct scene *s, const struct scale_load *l)
{
    return scale_load_rate(l, s->view->ttft_slo_s, s->view->tpot_slo_s, s->config->utilisation_max);
}

/* A pool that cannot keep the promise even alone is used only when none can: then its rate is what
 * it does at utilisation_max, late but as fast as it goes. */
static void fill_lanes(struct scene *s, const struct scale_lengths *lengths)
{
    double best = DBL_MAX;
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        if (!p->perf_known) continue;
        s->any_known = true;
        scale_load_of(p, lengths, &s->lane[i].load);
        s->rate[i] = capacity_rate(s, &s->lane[i].load);
        s->promised |= s->rate[i] > 0;
    }
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        const struct scale_load *l = &s->lane[i].load;
        if (!p->perf_known) continue;
        if (!s->promised) {
            double own = l->step_s * l->output / l->seqs_max;
            s->rate[i] = s->config->utilisation_max / fmax(l->work_s + own, DBL_MIN);
        }
        /* The one that would grow: cheapest for its rate. */
        bool grows = scale_reach(p) > scale_have(p) || s->main == UINT32_MAX;
        if (s->rate[i] <= 0 || !grows || p->price_h / s->rate[i] >= best) continue;
        best = p->price_h / s->rate[i];
        s->main = i;
    }
}

/* Instances of the main pool that do what these do. */
static double worth(const struct scene *s, uint32_t pool)
{
    return s->rate[pool] / s->rate[s->main];
}

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
        add_from(s, in->left_s, worth(s, in->pool));
    }
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_pool *p = &s->view->pool[i];
        add_from(s, 0, p->ready * worth(s, i));
        uint32_t rest = p->starting > seen[i] ? p->starting - seen[i] : 0;
        add_from(s, p->left_s, rest * worth(s, i));
    }
}

/* Of the level from what was counted, on path p, in standard errors: quantiles of the logistic
 * distribution, whatever moment the path begins at. */
static double deviation(uint32_t p)
{
    double u = (p * PATH_STRIDE % PATHS + 0.5) / PATHS;
    return log(u / (1 - u)) * LOGISTIC_UNIT;
}

static void fill_demand(struct scene *s)
{
    double scale = s->config->margin * belief_factor(&s->memory->belief);
    double error = s->counted ? outlook_error(&s->memory->outlook) : 0;
    for (uint32_t p = 0; p < PATHS; p++) {
        double factor = scale * fmax(0, 1 + LEVEL_ERROR * error * deviation(p));
        outlook_path(&s->memory->outlook, p, PATHS, s->steps, s->demand[p]);
        for (uint32_t k = 0; k < s->steps; k++) {
            if (!s->counted) s->demand[p][k] = (float)s->level;
            s->demand[p][k] *= (float)factor;
        }
    }
}

/* The fluid's beginning: what runs and waits now. */
static struct fluid_ask ask_now(const struct scene *s)
{
    const struct scale_demand *d = &s->view->demand;
    return (struct fluid_ask){ .load = &s->lane[s->main].load,
                               .sessions =
                                   d->in_flight > d->waiting ? d->in_flight - d->waiting : 0,
                               .waiting = (double)d->waiting + d->held,
                               .ttft_slo_s = s->view->ttft_slo_s,
                               .tpot_slo_s = s->view->tpot_slo_s };
}

/* Requests that are late with `n` instances (of the main kind) from the lead on, by path, and all;
 * fewer than there are leave at once. Over the look, or from now. */
struct lateness {
    double late[PATHS];
    double share; /* over all paths */
};

static void late_of(const struct scene *s, double n, bool from_now, struct lateness *ret)
{
    float fleet[FLUID_STEPS_MAX];
    double have = (double)s->existing[s->steps - 1];
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
    for (uint32_t p = 0; p < PATHS; p++) {
        double arrived;
        ask.rate = s->demand[p];
        fluid_late(&ask, from_now ? 0 : s->look_from, &ret->late[p], &arrived);
        late += ret->late[p];
        all += arrived;
    }
    ret->share = all > 0 ? late / all : 0;
}

static double late_share(const struct scene *s, double n, bool from_now)
{
    struct lateness l;
    late_of(s, n, from_now, &l);
    return l.share;
}

/* Requests that are late from now on with `n` and not with `most`, on the worst paths. */
static double worst_loss(const struct scene *s, double n, double most)
{
    struct lateness few, many;
    double worst[WORST_PATHS] = { 0 }, sum = 0; /* largest first */
    late_of(s, n, true, &few);
    late_of(s, most, true, &many);
    for (uint32_t p = 0; p < PATHS; p++) {
        double loss = few.late[p] - many.late[p];
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

/* Whether n may stand in for `most` when `late` more requests of all are late by plan: within
 * `least` parts of what is allowed always, within `parts` when what is saved pays for it. */
static bool may_be_late(const struct scene *s, double n, double most, double late, double least,
                        double parts)
{
    if (late <= least * s->allowed) return true;
    if (late > parts * s->allowed || !outlook_is_steady(&s->memory->outlook)) return false;
    return worst_loss(s, n, most) <= RISKED * s->memory->allowance.saved;
}

/* Share of requests that the model expects to be late with what runs now at the level of now, their
 * work multiplied by `factor`. */
static double late_now(const struct scene *s, double factor)
{
    float rate[LOOK_STEPS], fleet[LOOK_STEPS];
    double ready = 0, late, all;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        ready += s->view->pool[i].ready * worth(s, i);
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

/* The least n in (low, high] that is as good as high, less a twentieth of an instance at most. */
static double least(const struct scene *s, double low, double high, bool from_now)
{
    double best = late_share(s, high, from_now), most = high;
    for (int i = 0; i < BISECTIONS && high - low > 0.05; i++) {
        double mid = (low + high) / 2, late = late_share(s, mid, from_now) - best;
        if (may_be_late(s, mid, most, late, ALLOWANCE_SHRINK_MIN, s->shrink))
            high = mid;
        else
            low = mid;
    }
    return low;
}

/* Whether `n` is nearly as good as all there is: more is not bought for less than what is allowed. */
static bool keeps(const struct scene *s, double n, double most)
{
    double late = late_share(s, n, false) - late_share(s, most, false);
    double parts = allowance_to_hold(&s->memory->allowance, s->level, s->allowed);
    return may_be_late(s, n, most, late, ALLOWANCE_HOLD_MIN, parts);
}

static double fewest(struct scene *s, double have, double most, double shrink)
{
    s->shrink = shrink;
    double n = late_share(s, most, false) > HOPELESS ? most : least(s, 0, most, false);
    return n < have ? fmax(n, least(s, 0, have, true)) : n;
}

/* What is saved is spent on a smaller fleet that would have done now and in the mean of a whole lead:
 * for as long as what is given up is in coming back. DBL_MAX: nothing may be spent. */
static double spend(struct scene *s, struct work *w, double have, double most, int64_t now_us)
{
    double parts = allowance_to_shrink(&w->allowance, s->level, s->allowed);
    bool steady = outlook_is_steady(&w->outlook);
    double n = steady ? fewest(s, have, most, parts) : have;
    double passed_s = (double)(now_us - w->fewest_us) / 1e6;
    double weight = passed_s >= 0 && passed_s < s->lead_s ? passed_s / s->lead_s : 1;
    w->fewest += weight * (n - w->fewest);
    w->fewest_us = now_us;
    return steady ? fmax(n, w->fewest) : DBL_MAX;
}

/* Requests a second to plan for, in units of the lanes' rates. */
static double needed_rate(struct scene *s, struct work *w, int64_t now_us)
{
    double most = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        most += scale_reach(&s->view->pool[i]) * worth(s, i);
    double have = (double)s->existing[s->steps - 1];
    most = fmax(most, have);
    if (late_share(s, most, false) > SATURATED) s->look_from += s->clear_steps;
    double n = fewest(s, have, most, ALLOWANCE_SHRINK_MIN);
    n = fmin(n, spend(s, w, have, most, now_us));
    if (n > have && keeps(s, have, most)) n = have;
    double now = s->config->margin * belief_factor(&w->belief) * s->level;
    return fmax(fmax(n * s->rate[s->main], now), AWAKE_RATE);
}

/* What there is does so much. */
static double fleet_rate(const struct scene *s)
{
    double rate = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        rate += scale_have(&s->view->pool[i]) * s->rate[i];
    return rate;
}

/* The answer stands until there is another count of arrivals or another fleet. */
static double planned_rate(struct scene *s, struct work *w, int64_t now_us)
{
    struct answer *a = &w->answer;
    uint32_t have = scale_have_all(s->view), ready = scale_ready_all(s->view);
    bool same = a->main == s->main && a->have == have && a->ready == ready;
    if (!same || now_us >= a->until_us || now_us < a->until_us - ANSWER_US) {
        *a = (struct answer){ now_us + ANSWER_US, s->main, have, ready,
                              needed_rate(s, w, now_us) / s->rate[s->main] };
    }
    return a->instances * s->rate[s->main];
}

/* ---- measured misses ---- */

/* What ended since the last reading; nothing when the counters began anew. */
static void read_misses(struct work *w, const struct scale_demand *d, struct belief_reading *ret)
{
    bool reset =
        !w->counting || d->slo_met_total < w->met_total || d->slo_missed_total < w->missed_total;
    ret->missed = reset ? 0 : (uint32_t)(d->slo_missed_total - w->missed_total);
    ret->ended = reset ? 0 : (uint32_t)(d->slo_met_total - w->met_total) + ret->missed;
    w->met_total = d->slo_met_total;
    w->missed_total = d->slo_missed_total;
    w->counting = true;
}

static bool has_backlog(const struct scale_demand *d)
{
    return (d->waiting + d->held) * BACKLOG > d->in_flight;
}

static void read_sessions(const struct scene *s, struct sessions *sessions)
{
    const struct scale_demand *d = &s->view->demand;
    struct sessions_reading r = { .arrived = d->arrivals_total,
                                  .ended = d->slo_met_total + d->slo_missed_total,
                                  .running = d->in_flight - fmin(d->waiting, d->in_flight),
                                  .dt_s = 1,
                                  .backlog = has_backlog(d) };
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        r.ready += s->view->pool[i].ready * worth(s, i);
    sessions_observe(sessions, &s->lane[s->main].load, &r);
}

static void believe(struct work *w, const struct scene *s, int64_t now_us)
{
    const struct scale_demand *d = &s->view->demand;
    if (!d->slo_known || !scale_due(&w->second_us, 1, now_us)) return;
    struct belief_reading r;
    read_misses(w, d, &r);
    read_sessions(s, &w->sessions);
    allowance_observe(&w->allowance, r.ended, r.missed, s->level, s->allowed);
    if (scale_ready_all(s->view) != w->ready || has_backlog(d)) {
        w->ready = scale_ready_all(s->view);
        w->changed_us = now_us;
    }
    r.expected_share = late_now(s, belief_factor(&w->belief));
    r.allowed_share = s->allowed;
    r.unsettled = now_us - w->changed_us < SETTLE_US;
    r.judge = now_us - w->calm_us >= BELIEF_S * AGAIN_US;
    belief_observe(&w->belief, &r);
}

/* Predicted TTFT when arrivals are spread over the choice in proportion to its rates. */
static double estimate_ttft_s(const struct scene *s, const uint32_t want[SCALE_POOLS_MAX])
{
    double total = 0, alone_s = 0, used = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        total += want[i] * s->rate[i];
    if (total <= 0) return -1;
    for (uint32_t i = 0; i < s->view->pool_count; i++) {
        const struct scale_load *l = &s->lane[i].load;
        double share = want[i] * s->rate[i] / total;
        alone_s += share * (l->step_s + l->prefill_s);
        used += share * (s->rate[i] * s->level / total) * l->work_s;
    }
    return used < 1 ? alone_s / (1 - used) : -1;
}

static const char *reason_of(const struct scene *s, const struct scale_mixed *m)
{
    uint32_t have = scale_have_all(s->view), want = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        want += m->best.want[i];
    if (!s->promised) return "no pool can keep the promise at these lengths: best effort";
    if (!m->covers) return "the pools, their offers or the budget give no more than this";
    if (want == 0) return "no request for longer than zero_after_s";
    if (have == 0) return "requests came and nothing runs";
    if (want > have) return "too many would be late once what is bought now is ready";
    if (want < have) return "a smaller fleet keeps the promise until another could be ready";
    return "the fleet fits the work";
}

static void keep(const struct scale_view *view, bool awake, int64_t now_us,
                 struct scale_verdict *ret)
{
    scale_keep(view,
               view->demand.present ? "no pool's speed is known yet: one instance to learn from"
                                    : "no router has reported its demand: keep what there is",
               ret);
    if (awake && scale_have_all(view) == 0) scale_spread(view, 1, &ret->choice);
    ret->again_us = now_us + AGAIN_US;
}

static void fill_level(struct scene *s)
{
    const struct scale_demand *d = &s->view->demand;
    s->counted = s->memory->outlook.known && d->arrivals_total;
    s->level = s->counted ? outlook_level(&s->memory->outlook) : d->arrivals_s;
}

static void fill_scene(struct scene *s)
{
    s->lead_s = s->view->pool[s->main].lead_s;
    s->lead_steps = (uint32_t)fmin(ceil(s->lead_s / FLUID_STEP_S),
                                   FLUID_STEPS_MAX - LOOK_STEPS - CLEAR_STEPS_MAX);
    s->look_from = s->lead_steps;
    s->clear_steps = (uint32_t)fmin(ceil(s->config->clear_s / FLUID_STEP_S), CLEAR_STEPS_MAX);
    s->steps = s->lead_steps + s->clear_steps + LOOK_STEPS;
    fill_demand(s);
    fill_fleet(s);
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct work *memory = state;
    const struct scale_demand *d = &view->demand;
    bool awake = d->present && scale_is_awake(config, view);
    if (d->present) outlook_observe(&memory->outlook, d->arrivals_total, now_us);
    struct scene s = { .config = config,
                       .view = view,
                       .memory = memory,
                       .main = UINT32_MAX,
                       .allowed = 1 - config->attainment };
    fill_level(&s);
    struct scale_lengths lengths;
    plan_lengths(d, &memory->sessions, &lengths);
    if (d->present) fill_lanes(&s, &lengths);
    if (d->present && s.main != UINT32_MAX) believe(memory, &s, now_us);
    if (!d->present || (awake && (!s.any_known || s.main == UINT32_MAX))) {
        keep(view, awake, now_us, ret);
        return;
    }
    double need = 0;
    if (awake) {
        fill_scene(&s);
        need = planned_rate(&s, memory, now_us);
        if (late_now(&s, 1) > s.allowed && scale_starting_all(view) > 0) memory->calm_us = now_us;
    }
    if (awake && memory->outlook.known < LEARN_BUCKETS && need < fleet_rate(&s)) {
        scale_keep(view, "arrivals are watched for a minute before an instance is given up", ret);
        ret->again_us = now_us + AGAIN_US;
        return;
    }
    struct scale_mixed m;
    scale_mix(config, view, s.rate, need, &m);
    *ret = (struct scale_verdict){ .choice = m.best,
                                   .runner_up = m.second,
                                   .has_runner_up = m.has_second,
                                   .reason = reason_of(&s, &m),
                                   .estimate_s = estimate_ttft_s(&s, m.best.want),
                                   .again_us = now_us + AGAIN_US };
    if (s.main != UINT32_MAX) ret->load = need / s.rate[s.main];
    if (m.has_second)
        ret->runner_why = m.second_covers ? "it costs more, the lead of new instances included"
                                          : "it does not cover the work";
}

/* The planner looks ahead by itself: the window only bridges the noise of its inputs. */
static const struct scale_shape_config shape = { .down_window_s = 20 };

const struct scale_policy scale_work = {
    .name = "work",
    .about = "the cheapest mix that keeps the promise a lead time from now",
    .source = "this project; the mix as in Melange, the lead time as a decision variable",
    .shaper = "window",
    .shape = &shape,
    .needs = SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct work),
    .decide = decide,
};
