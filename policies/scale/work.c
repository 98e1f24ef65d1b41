/* work.c - the policy `work`: keep the SLO at least cost by the time that instances bought now are ready.
 *
 * An instance bought now serves no request before now + lead, so the fleet is sized for that time. A
 * decision takes these steps:
 *
 *   1 see      reads arrivals, speeds and lengths. Arrivals: the present level and paths from it
 *              (parts/forecast_paths.h). Speeds: the mean of each pool over minutes
 *              (parts/lateness_model.h). Lengths: the moments of waiting and recent requests, with
 *              outputs at least as long as the running sessions imply (parts/load_correction.h)
 *   2 pools    computes the rate that an instance of each pool serves within the SLO (capacity.h). The
 *              main pool, the cheapest that can grow, stands for all, and its lead is the lead
 *              (parts/lateness_model.h)
 *   3 learn    learns each second from the requests that ended (parts/load_correction.h). Correction:
 *              work is multiplied by a factor that moves until the expected misses equal the counted
 *              ones; it does not move while help for expected misses is on its way, nor after a
 *              backlog or a change of the fleet. Error budget: misses that the SLO allows and that
 *              have not happened are saved
 *   4 need     finds the capacity C, defined below, from the share of requests that would be late.
 *              Fleet and demand are followed as a fluid with chance added (parts/lateness_model.h),
 *              so free sessions count for the time that they bridge. C stands for five seconds of an
 *              unchanged fleet
 *   5 mix      finds the cheapest whole numbers of instances of all pools that serve C, with the lead
 *              of new instances priced in (parts/mix.h)
 *   6 shaper   `window`, 20 s, removes the noise that the inputs leave
 *
 * C is the least capacity, ready a lead from now, with
 *
 *     late(C) <= late(everything that can be had) + SHRINK (1 - attainment)
 *
 * in the mean of all paths, a lead from now; or clear_s later where a backlog makes requests late
 * whatever is bought. Four rules change it:
 *
 *   shrink     an instance given up now is back no sooner than a lead from now: a C below the present
 *              fleet has to suffice from now on as well
 *   keep       the present fleet stays while its lateness is at most KEEP (1 - attainment) above that
 *              of everything that can be had
 *   calm       SHRINK and KEEP are larger while demand is calm than after a rise within ten minutes,
 *              because it may rise again
 *   budget     the saved misses, and those that LENT_LEADS leads and HELP_S allow, which every fleet
 *              is lent: without them a fleet that has saved nothing yet would buy instances for noise.
 *              While demand is calm the budget pays for more lateness, as long as it covers the worst
 *              paths: to keep the present fleet, for a lead and HELP_S; to shrink, also for the time in
 *              which the instances given up should not be needed, or they would be bought back before
 *              giving them up has paid
 *
 * C is never below the present level at utilisation_max of an instance's time and sessions, and no
 * instance is given up before LEARN_BUCKETS of arrivals were counted. One configuration serves every
 * lead: the policy measures all values that depend on it. Without counted arrivals the routers' rate
 * stands for level and paths.
 */
#include "base/core/bits.h"
#include "policies/scale/parts/lateness_model.h"
#include "policies/scale/parts/load_correction.h"
#include "policies/scale/parts/mix.h"
#include "policies/scale/scale.h"
#include "policies/scale/shape/shape.h"

#include <float.h>
#include <math.h>

#define SECOND_US ((int64_t)1000000)
#define AGAIN_US SECOND_US
#define ANSWER_US (PATHS_BUCKET_S * SECOND_US) /* until another count of arrivals is there */

/* Shares of requests that are late whatever is bought. */
#define SATURATED 0.3 /* above it there is a backlog: the look is moved to when it should be gone */
#define HOPELESS 0.9  /* above it even then: ask for everything that can be had */

/* Further late requests that are accepted, in parts of the allowed misses. With SHRINK_RISEN at a
 * twentieth llm-d's episode fell below its 99 % at a lead of 100 s. */
#define SHRINK_CALM 0.1
#define SHRINK_RISEN 0.02
#define KEEP_CALM 0.5
#define KEEP_RISEN 0.1

#define LENT_LEADS 2.0
#define HELP_S 60.0     /* after a lead: until new instances have helped */
#define DWELL_S 600.0   /* an instance given up should not be needed for so long ... */
#define DWELL_LEADS 3.0 /* ... or so many leads */

#define BISECTIONS 24
#define NEAR_INSTANCES 0.05 /* precision of the bisection: noise moves the result by more */
#define AWAKE_RATE 1e-6     /* requests a second: asks for one instance, whichever is cheapest */
#define LEARN_BUCKETS 12    /* a minute */
#define SETTLE_US (30 * SECOND_US) /* before a fleet of another size is judged */
#define BACKLOG 20 /* if more than one in so many waits, requests do not begin as they arrive */

struct work {
    struct forecast_paths paths;
    struct speed_average speed;
    struct littles_law sessions;
    struct load_correction correction;
    struct error_budget error_budget;

    bool reading; /* the counters below were read before */
    int64_t read_us;
    uint64_t met_total, missed_total;

    uint32_t ready;      /* instances, as read last */
    int64_t changed_us;  /* of the last change of their number, backlog or gap in readings */
    int64_t unhelped_us; /* since when no help for expected misses is on its way */

    bool has_fewest;
    int64_t fewest_us;
    double fewest; /* least instances that the budget pays for, mean over a lead */

    struct answer {
        int64_t until_us;
        uint32_t main, have, ready; /* it holds while these stay */
        double instances;           /* of main */
    } answer;
};
_Static_assert(sizeof(struct work) <= SCALE_STATE_BYTES_MAX, "state of scale_work");

/* The values of one decision. */
struct plan {
    struct lateness_model lateness;
    struct work *memory;
    double allowed; /* 1 - attainment: the share that may be late */
    double budget;  /* requests that may be late beyond that */
};

static bool is_calm(const struct plan *p)
{
    return paths_is_calm(&p->memory->paths);
}

/* Returns the time since *then_us; a wall clock that went back begins it anew. */
static int64_t since_us(int64_t *then_us, int64_t now_us)
{
    if (*then_us > now_us) *then_us = now_us;
    return now_us - *then_us;
}

/* ---- 1, 2: see, pools ---- */

/* Joins the lengths of waiting and recent requests, or takes the demand's means if there are none, and
 * lengthens the outputs by the sessions' factor. */
static void plan_lengths(const struct scale_demand *d, const struct littles_law *sessions,
                         struct lengths *ret)
{
    if (d->expected.count > 0 || d->queued.count > 0) {
        lengths_join(&d->expected, &d->queued, ret);
    } else {
        *ret = (struct lengths){ 0 };
        lengths_add(ret, d->prompt_tokens, fmax(d->output_tokens, 1), 1);
    }
    double factor = littles_law_factor(sessions, ret->output);
    ret->output *= factor;
    ret->cross *= factor;
    ret->output_sq *= factor * factor;
}

static void see(struct plan *p, const struct scale_config *config, const struct scale_view *view,
                int64_t now_us)
{
    struct work *w = p->memory;
    struct lengths lengths;
    paths_observe(&w->paths, view->demand.arrivals_total, now_us);
    speed_average_observe(&w->speed, view, now_us);
    plan_lengths(&view->demand, &w->sessions, &lengths);
    lateness_level(&p->lateness, config, view, &w->paths);
    lateness_pools(&p->lateness, &lengths, &w->speed);
}

/* ---- 3: learn ---- */

static uint32_t gained(uint64_t total, uint64_t before)
{
    return (uint32_t)min_u64(total - before, UINT32_MAX / 2);
}

/* Counts the requests that ended since the last reading; none if the counters began anew. */
static void read_misses(struct work *w, const struct scale_demand *d,
                        struct load_correction_reading *ret)
{
    bool reset =
        !w->reading || d->slo_met_total < w->met_total || d->slo_missed_total < w->missed_total;
    ret->missed = reset ? 0 : gained(d->slo_missed_total, w->missed_total);
    ret->ended = reset ? 0 : gained(d->slo_met_total, w->met_total) + ret->missed;
    w->met_total = d->slo_met_total;
    w->missed_total = d->slo_missed_total;
}

static bool has_backlog(const struct scale_demand *d)
{
    return ((uint64_t)d->waiting + d->held) * BACKLOG > d->in_flight;
}

static void read_sessions(const struct lateness_model *s, double passed_s,
                          struct littles_law *sessions)
{
    const struct scale_demand *d = &s->view->demand;
    struct littles_law_reading r = { .arrived = d->arrivals_total,
                                     .ended = d->slo_met_total + d->slo_missed_total,
                                     .running = d->in_flight - min_u32(d->waiting, d->in_flight),
                                     .dt_s = passed_s,
                                     .backlog = has_backlog(d) };
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        r.ready += s->view->pool[i].ready * lateness_worth(s, i);
    littles_law_observe(sessions, &s->load[s->main], &r);
}

/* Returns true within SETTLE_US after a change of the fleet, a backlog or a gap in the readings. */
static bool is_unsettled(struct work *w, const struct scale_view *view, double passed_s,
                         int64_t now_us)
{
    uint32_t ready = scale_ready_all(view);
    if (ready != w->ready || has_backlog(&view->demand) || passed_s > SESSIONS_GAP_S) {
        w->ready = ready;
        w->changed_us = now_us;
    }
    return since_us(&w->changed_us, now_us) < SETTLE_US;
}

/* Takes a reading once a second. Nothing is learned unless the routers count misses. */
static void learn(const struct plan *p, int64_t now_us)
{
    struct work *w = p->memory;
    const struct lateness_model *s = &p->lateness;
    const struct scale_demand *d = &s->view->demand;
    bool is_first = !w->reading;
    if (!d->slo_known || (!is_first && since_us(&w->read_us, now_us) < SECOND_US)) return;
    if (is_first) w->unhelped_us = w->read_us = now_us;
    double passed_s = (double)(now_us - w->read_us) / 1e6;
    struct load_correction_reading r = {
        .expected_share = lateness_late_now(s, load_correction_factor(&w->correction)),
        .allowed_share = p->allowed,
        .unsettled = is_unsettled(w, s->view, passed_s, now_us),
        .judge = since_us(&w->unhelped_us, now_us) >= LOAD_CORRECTION_READINGS * SECOND_US
    };
    read_misses(w, d, &r);
    read_sessions(s, passed_s, &w->sessions);
    error_budget_observe(&w->error_budget, r.ended, r.missed, s->level, p->allowed);
    load_correction_observe(&w->correction, &r);
    w->reading = true;
    w->read_us = now_us;
}

/* ---- 4: need ---- */

/* The parts of the allowed misses by which a plan may be later than the largest possible fleet. */
struct room {
    double least; /* always */
    double paid;  /* while demand is calm, if the budget covers the worst paths */
};

/* Returns true if n instances suffice in place of `most`, given how much more is late with n. */
static bool suffices(struct plan *p, double n, double most, double more_late, struct room room)
{
    if (more_late <= room.least * p->allowed) return true;
    if (more_late > room.paid * p->allowed || !is_calm(p)) return false;
    return lateness_worst_loss(&p->lateness, n, most) <= p->budget;
}

/* Returns the least fleet that suffices in place of `most`, to NEAR_INSTANCES. */
static double least_of(struct plan *p, double most, bool from_now, struct room room)
{
    double late = lateness_share(&p->lateness, most, from_now), low = 0, high = most;
    double enough = fmax(room.least, room.paid) * p->allowed; /* above it nothing suffices */
    for (int i = 0; i < BISECTIONS && high - low > NEAR_INSTANCES; i++) {
        double mid = (low + high) / 2;
        double more = lateness_more(&p->lateness, mid, from_now, late, enough);
        if (suffices(p, mid, most, more, room))
            high = mid;
        else
            low = mid;
    }
    return low;
}

/* Returns the least fleet that suffices a lead from now and, if it is smaller than the present one, also
 * from now on. */
static double least_need(struct plan *p, double most, struct room room)
{
    double have = lateness_have(&p->lateness);
    bool hopeless = lateness_share(&p->lateness, most, false) > HOPELESS;
    double n = hopeless ? most : least_of(p, most, false, room);
    return n < have ? fmax(n, least_of(p, have, true, room)) : n;
}

/* Returns how many times the allowed misses the budget pays for over so many seconds. */
static double parts_for(const struct plan *p, double seconds)
{
    return error_budget_parts(p->budget, p->allowed * p->lateness.level * seconds);
}

static double shrink_parts(const struct plan *p)
{
    return is_calm(p) ? SHRINK_CALM : SHRINK_RISEN;
}

/* Returns true if the present fleet suffices until more could be ready. */
static bool have_does(struct plan *p, double most)
{
    double have = lateness_have(&p->lateness);
    double late =
        lateness_share(&p->lateness, have, false) - lateness_share(&p->lateness, most, false);
    struct room room = { is_calm(p) ? KEEP_CALM : KEEP_RISEN,
                         parts_for(p, p->lateness.lead_s + HELP_S) };
    return suffices(p, have, most, late, room);
}

/* Takes n into the running mean over a lead, which begins with the present fleet. */
static void note_fewest(struct work *w, const struct lateness_model *s, double n, int64_t now_us)
{
    if (!w->has_fewest) {
        w->has_fewest = true;
        w->fewest = lateness_have(s);
        w->fewest_us = now_us;
    }
    double passed_s = (double)since_us(&w->fewest_us, now_us) / 1e6;
    w->fewest += (passed_s < s->lead_s ? passed_s / s->lead_s : 1) * (n - w->fewest);
    w->fewest_us = now_us;
}

/* Returns the least fleet that the budget pays for: it suffices now, and is no smaller than its mean over
 * a lead, the time that an instance given up takes to come back. DBL_MAX: nothing may be spent. */
static double spent_need(struct plan *p, double most, int64_t now_us)
{
    double lead_s = p->lateness.lead_s, dwell_s = fmax(DWELL_S, DWELL_LEADS * lead_s);
    struct room room = { shrink_parts(p), parts_for(p, lead_s + HELP_S + dwell_s) };
    double n = is_calm(p) ? least_need(p, most, room) : lateness_have(&p->lateness);
    note_fewest(p->memory, &p->lateness, n, now_us);
    return is_calm(p) ? fmax(n, p->memory->fewest) : DBL_MAX;
}

/* Returns C in instances of the main pool. If a backlog makes requests late whatever is bought, the look
 * is moved by clear_s from here on. */
static double needed(struct plan *p, int64_t now_us)
{
    struct lateness_model *s = &p->lateness;
    double have = lateness_have(s), most = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        most += scale_reach(&s->view->pool[i]) * lateness_worth(s, i);
    most = fmax(most, have);
    if (lateness_share(s, most, false) > SATURATED) s->look_from += s->clear_steps;
    double n = least_need(p, most, (struct room){ shrink_parts(p), 0 });
    n = fmin(n, spent_need(p, most, now_us));
    return n > have && have_does(p, most) ? have : n;
}

static double lent(const struct plan *p)
{
    return p->allowed * p->lateness.level * (LENT_LEADS * p->lateness.lead_s + HELP_S);
}

/* Returns the requests a second to plan for, in the units of the pools' rates. */
static double find_rate(struct plan *p, int64_t now_us)
{
    struct lateness_model *s = &p->lateness;
    double work = s->config->margin * load_correction_factor(&p->memory->correction);
    lateness_look(s, work);
    p->budget = p->memory->error_budget.saved + lent(p);
    return fmax(fmax(needed(p, now_us) * s->rate[s->main], work * s->level), AWAKE_RATE);
}

/* Returns the same, computed anew only when the last result is old or the fleet has changed. */
static double needed_rate(struct plan *p, int64_t now_us)
{
    const struct lateness_model *s = &p->lateness;
    struct answer *a = &p->memory->answer;
    uint32_t have = scale_have_all(s->view), ready = scale_ready_all(s->view);
    bool same = a->main == s->main && a->have == have && a->ready == ready;
    bool timely = now_us < a->until_us && now_us >= a->until_us - ANSWER_US;
    if (!same || !timely)
        *a = (struct answer){ now_us + ANSWER_US, s->main, have, ready,
                              find_rate(p, now_us) / s->rate[s->main] };
    return a->instances * s->rate[s->main];
}

/* Notes the time while instances are starting and the ready ones are expected to miss the SLO: then help
 * is on its way. */
static void note_help(const struct plan *p, int64_t now_us)
{
    bool comes = scale_starting_all(p->lateness.view) > 0;
    if (comes && lateness_late_now(&p->lateness, 1) > p->allowed) p->memory->unhelped_us = now_us;
}

/* ---- 5: mix ---- */

static const char *reason_of(const struct lateness_model *s, const struct scale_mixed *m)
{
    uint32_t have = scale_have_all(s->view), want = 0;
    for (uint32_t i = 0; i < s->view->pool_count; i++)
        want += m->best.want[i];
    if (!s->slo_possible) return "no pool can keep the SLO at these lengths: best effort";
    if (!m->covers) return "the pools, their offers or the budget give no more than this";
    if (want == 0) return "no request for longer than zero_after_s";
    if (have == 0) return "requests came and nothing runs";
    if (want > have) return "too many would be late once what is bought now is ready";
    if (want < have) return "a smaller fleet keeps the SLO until another could be ready";
    return "the fleet fits the work";
}

static void answer_mix(const struct plan *p, double rate, struct scale_verdict *ret)
{
    const struct lateness_model *s = &p->lateness;
    struct scale_mixed m;
    scale_mix(s->config, s->view, s->rate, rate, &m);
    *ret = (struct scale_verdict){ .choice = m.best,
                                   .runner_up = m.second,
                                   .has_runner_up = m.has_second,
                                   .reason = reason_of(s, &m),
                                   .estimate_s = lateness_ttft_s(s, m.best.want) };
    if (m.has_second)
        ret->runner_why = m.second_covers ? "it costs more, the lead of new instances included"
                                          : "it does not cover the work";
}

static void answer_need(struct plan *p, int64_t now_us, struct scale_verdict *ret)
{
    double rate = needed_rate(p, now_us);
    note_help(p, now_us);
    if (p->memory->paths.known < LEARN_BUCKETS && rate < lateness_fleet_rate(&p->lateness))
        scale_keep(p->lateness.view,
                   "arrivals are watched for a minute before an instance is given up", ret);
    else {
        answer_mix(p, rate, ret);
    }
    ret->load = rate / p->lateness.rate[p->lateness.main];
    ret->has_forecast = true;
    ret->forecast_s = lateness_forecast(&p->lateness);
}

/* Keeps the fleet, or asks for a first instance, which will measure its speed. It is called when there
 * are requests but no pool of known speed. */
static void answer_unknown(const struct scale_view *view, struct scale_verdict *ret)
{
    scale_keep(view, "no pool's speed is known yet: one instance to learn from", ret);
    if (scale_have_all(view) == 0) scale_spread(view, 1, &ret->choice);
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct plan p = { .memory = state, .allowed = 1 - config->attainment };
    if (!view->demand.present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
    } else {
        see(&p, config, view, now_us);
        bool known = p.lateness.main != LATENESS_NO_POOL, awake = scale_is_awake(config, view);
        if (known) learn(&p, now_us);
        if (!awake)
            answer_mix(&p, 0, ret);
        else if (known)
            answer_need(&p, now_us, ret);
        else
            answer_unknown(view, ret);
    }
    ret->again_us = now_us + AGAIN_US;
}

static const struct scale_shape_config shape = { .down_window_s = 20 };

const struct scale_policy scale_work = {
    .name = "work",
    .about = "the cheapest mix that keeps the SLO a lead time from now",
    .source = "this project; the mix as in Melange, the lead time as a decision variable",
    .shaper = "window",
    .shape = &shape,
    .needs = SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct work),
    .decide = decide,
};
