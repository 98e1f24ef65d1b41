/* scale_work.c - the cheapest fleet that keeps the promise when what is bought now is ready.
 *
 * Nothing that is decided now serves before now + lead. So the fleet is sized for then:
 *
 *   demand    paths on from the level of arrivals now, as it went on from moments within the last
 *             ten minutes (scale_outlook.h)
 *   lengths   the distribution of what waits and of what came lately: its moments give the work of a
 *             request, the KV it holds and the spread of prompts (scale_capacity.h); answers no
 *             shorter than the sessions there are say (scale_sessions.h)
 *   fleet     what is ready, and what starts once its own lead has passed; each pool as fast as it
 *             was in the mean of the last minutes (scale_pace.h)
 *   lateness  the share of requests that would miss the promise, fleet and demand followed as a
 *             fluid with chance about it (scale_scene.h): a buffer of free sessions counts for what
 *             it bridges
 *   need      the least capacity C, ready a lead from now, with
 *                 late(C) <= late(everything that can be had) + SHRINK_CALM (1 - attainment)
 *             in the mean of all paths; where a backlog makes all late whatever is bought, clear_s
 *             later; to shrink, over the time until then as well, since what is given up now is back
 *             no sooner. C is never below the level now at utilisation_max of an instance's time and
 *             sessions; what there is stands while KEEP_CALM parts are expected to be late with it, and
 *             nothing is given up before LEARN_BUCKETS of arrivals were watched. Where demand rose
 *             within ten minutes it may rise again: SHRINK_RISEN and KEEP_RISEN then
 *   budget    misses that the promise allows and that have not happened (scale_allowance.h), and what
 *             LENT_LEADS and HELP_S allow, lent to a fleet that is too young to have saved anything.
 *             While demand is calm it pays for more lateness than that, as long as it covers the
 *             worst paths: to keep what there is, for a lead and HELP_S; to shrink, for DWELL_S or
 *             DWELL_LEADS beyond that, else the fleet would be bought back before giving it up has
 *             paid
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
#include "policies/scale_mix.h"
#include "policies/scale_rows.h"
#include "policies/scale_scene.h"
#include "policies/scale_sessions.h"
#include "policies/scale_shape.h"

#include <float.h>
#include <math.h>

#define AGAIN_US ((int64_t)1000000)
#define ANSWER_US ((int64_t)OUTLOOK_BUCKET_S * 1000000)
#define SATURATED 0.3 /* late whatever is bought: look at when the backlog should be gone */
#define HOPELESS 0.9  /* and late even then: everything there is */
/* Requests late, in parts of what is allowed, beyond those that all there could be would make late:
 * below KEEP what there is stands, below SHRINK a smaller fleet does. */
#define KEEP_CALM 0.5
#define KEEP_RISEN 0.1
#define SHRINK_CALM 0.1
#define SHRINK_RISEN 0.02
#define HELP_S 60.0     /* after a lead: until what was bought has helped */
#define DWELL_S 600.0   /* what is given up should not be needed for so long, ... */
#define DWELL_LEADS 3.0 /* ... or so many leads */
#define LENT_LEADS 2.0
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
    double fewest; /* instances that the budget pays for, mean of a lead */
    int64_t fewest_us;
    int64_t unhelped_us; /* since when no help for expected misses is on its way */
    struct sessions sessions;
    struct pace pace;
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

/* ---- need ---- */

/* A decision under way. */
struct plan {
    struct scene scene;
    struct work *memory;
    double allowed; /* 1 - attainment: the share that may be late */
    double budget;  /* requests that may be late beyond that */
};

static bool is_calm(const struct plan *p)
{
    return outlook_is_calm(&p->memory->outlook);
}

/* How much more may be late by plan than with all there could be, in parts of what is allowed. */
struct room {
    double least; /* always */
    double paid;  /* while demand is calm, if the budget covers the worst paths */
};

static bool may_do(const struct plan *p, double n, double most, double more_late, struct room room)
{
    if (more_late <= room.least * p->allowed) return true;
    if (more_late > room.paid * p->allowed || !is_calm(p)) return false;
    return scene_worst_loss(&p->scene, n, most) <= p->budget;
}

/* The least that may do in place of `most`, less a twentieth of an instance at most. */
static double least(const struct plan *p, double most, bool from_now, struct room room)
{
    double late = scene_late(&p->scene, most, from_now), low = 0, high = most;
    for (int i = 0; i < BISECTIONS && high - low > 0.05; i++) {
        double mid = (low + high) / 2;
        if (may_do(p, mid, most, scene_late(&p->scene, mid, from_now) - late, room))
            high = mid;
        else
            low = mid;
    }
    return low;
}

static double fewest(const struct plan *p, double most, struct room room)
{
    double have = scene_have(&p->scene);
    bool hopeless = scene_late(&p->scene, most, false) > HOPELESS;
    double n = hopeless ? most : least(p, most, false, room);
    return n < have ? fmax(n, least(p, have, true, room)) : n;
}

static double parts_for(const struct plan *p, double seconds)
{
    return allowance_parts(p->budget, p->allowed * p->scene.level * seconds);
}

static double shrink_least(const struct plan *p)
{
    return is_calm(p) ? SHRINK_CALM : SHRINK_RISEN;
}

/* Whether what there is does until more could be ready. */
static bool keeps(const struct plan *p, double most)
{
    double have = scene_have(&p->scene);
    double late = scene_late(&p->scene, have, false) - scene_late(&p->scene, most, false);
    struct room room = { is_calm(p) ? KEEP_CALM : KEEP_RISEN,
                         parts_for(p, p->scene.lead_s + HELP_S) };
    return may_do(p, have, most, late, room);
}

/* The budget is spent on a smaller fleet that would have done now and in the mean of a whole lead:
 * for as long as what is given up is in coming back. DBL_MAX: nothing may be spent. */
static double spend(const struct plan *p, double most, int64_t now_us)
{
    struct work *w = p->memory;
    double lead_s = p->scene.lead_s, dwell_s = fmax(DWELL_S, DWELL_LEADS * lead_s);
    struct room room = { shrink_least(p), parts_for(p, lead_s + HELP_S + dwell_s) };
    double n = is_calm(p) ? fewest(p, most, room) : scene_have(&p->scene);
    if (w->fewest_us == 0) {
        w->fewest = scene_have(&p->scene);
        w->fewest_us = now_us;
    }
    double passed_s = (double)(now_us - w->fewest_us) / 1e6;
    double weight = passed_s >= 0 && passed_s < lead_s ? passed_s / lead_s : 1;
    w->fewest += weight * (n - w->fewest);
    w->fewest_us = now_us;
    return is_calm(p) ? fmax(n, w->fewest) : DBL_MAX;
}

/* Requests a second to plan for, in units of the pools' rates. */
static double needed_rate(struct plan *p, int64_t now_us)
{
    struct scene *s = &p->scene;
    double have = scene_have(s), most = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        most += scale_reach(&s->view->pool[i]) * scene_worth(s, i);
    most = fmax(most, have);
    if (scene_late(s, most, false) > SATURATED) s->look_from += s->clear_steps;
    double n = fewest(p, most, (struct room){ shrink_least(p), 0 });
    n = fmin(n, spend(p, most, now_us));
    if (n > have && keeps(p, most)) n = have;
    double now = s->config->margin * belief_factor(&p->memory->belief) * s->level;
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
static double planned_rate(struct plan *p, int64_t now_us)
{
    const struct scene *s = &p->scene;
    struct answer *a = &p->memory->answer;
    uint32_t have = scale_have_all(s->view), ready = scale_ready_all(s->view);
    bool same = a->main == s->main && a->have == have && a->ready == ready;
    if (!same || now_us >= a->until_us || now_us < a->until_us - ANSWER_US) {
        *a = (struct answer){ now_us + ANSWER_US, s->main, have, ready,
                              needed_rate(p, now_us) / s->rate[s->main] };
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
        r.ready += s->view->pool[i].ready * scene_worth(s, i);
    sessions_observe(sessions, &s->load[s->main], &r);
}

static void believe(const struct plan *p, int64_t now_us)
{
    struct work *w = p->memory;
    const struct scene *s = &p->scene;
    const struct scale_demand *d = &s->view->demand;
    if (!d->slo_known || !scale_due(&w->second_us, 1, now_us)) return;
    struct belief_reading r;
    read_misses(w, d, &r);
    read_sessions(s, &w->sessions);
    allowance_observe(&w->allowance, r.ended, r.missed, s->level, p->allowed);
    if (scale_ready_all(s->view) != w->ready || has_backlog(d)) {
        w->ready = scale_ready_all(s->view);
        w->changed_us = now_us;
    }
    r.expected_share = scene_late_now(s, belief_factor(&w->belief));
    r.allowed_share = p->allowed;
    r.unsettled = now_us - w->changed_us < SETTLE_US;
    r.judge = now_us - w->unhelped_us >= BELIEF_S * AGAIN_US;
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
        const struct scale_load *l = &s->load[i];
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

static void keep(const struct scale_view *view, bool awake, struct scale_verdict *ret)
{
    scale_keep(view,
               view->demand.present ? "no pool's speed is known yet: one instance to learn from"
                                    : "no router has reported its demand: keep what there is",
               ret);
    if (awake && scale_have_all(view) == 0) scale_spread(view, 1, &ret->choice);
}

/* Everything that was seen goes into the memory, and what the decision needs of it into the plan. */
static void perceive(struct plan *p, const struct scale_config *config,
                     const struct scale_view *view, int64_t now_us)
{
    struct work *w = p->memory;
    struct scale_lengths lengths;
    outlook_observe(&w->outlook, view->demand.arrivals_total, now_us);
    pace_observe(&w->pace, view, now_us);
    plan_lengths(&view->demand, &w->sessions, &lengths);
    scene_level(&p->scene, config, view, &w->outlook);
    scene_pools(&p->scene, &lengths, &w->pace);
    if (p->scene.main != UINT32_MAX) believe(p, now_us);
}

static double look(struct plan *p, int64_t now_us)
{
    struct work *w = p->memory;
    struct scene *s = &p->scene;
    scene_look(s, s->config->margin * belief_factor(&w->belief));
    p->budget = w->allowance.saved + p->allowed * s->level * (LENT_LEADS * s->lead_s + HELP_S);
    double need = planned_rate(p, now_us);
    bool helped = scene_late_now(s, 1) > p->allowed && scale_starting_all(s->view) > 0;
    if (helped) w->unhelped_us = now_us;
    return need;
}

static void answer(const struct plan *p, double need, struct scale_verdict *ret)
{
    const struct scene *s = &p->scene;
    struct scale_mixed m;
    scale_mix(s->config, s->view, s->rate, need, &m);
    *ret = (struct scale_verdict){ .choice = m.best,
                                   .runner_up = m.second,
                                   .has_runner_up = m.has_second,
                                   .reason = reason_of(s, &m),
                                   .estimate_s = estimate_ttft_s(s, m.best.want) };
    if (s->main != UINT32_MAX) ret->load = need / s->rate[s->main];
    if (m.has_second)
        ret->runner_why = m.second_covers ? "it costs more, the lead of new instances included"
                                          : "it does not cover the work";
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct plan p = { .scene = { .main = UINT32_MAX },
                      .memory = state,
                      .allowed = 1 - config->attainment };
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (view->demand.present) perceive(&p, config, view, now_us);
    if (!view->demand.present || (awake && p.scene.main == UINT32_MAX)) {
        keep(view, awake, ret);
    } else {
        double need = awake ? look(&p, now_us) : 0;
        bool young = awake && p.memory->outlook.known < LEARN_BUCKETS;
        if (young && need < fleet_rate(&p.scene))
            scale_keep(view, "arrivals are watched for a minute before an instance is given up",
                       ret);
        else
            answer(&p, need, ret);
    }
    ret->again_us = now_us + AGAIN_US;
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
