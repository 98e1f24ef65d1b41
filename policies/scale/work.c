/* work.c - the cheapest fleet that keeps the SLO when what is bought now is ready.
 *
 * Nothing that is decided now serves before now + lead. So the fleet is sized for then. A decision,
 * in its order:
 *
 *   1 see      arrivals: their level now and paths on from it (parts/forecast_paths.h). Speeds: of each
 *              pool, the mean of minutes (parts/lateness_model.h). Lengths: the moments of what waits and of
 *              what came lately, outputs no shorter than the sessions there are say
 *              (parts/load_correction.h)
 *   2 pools    what an instance of each serves within the SLO (capacity.h). The main
 *              pool, the cheapest that can grow, stands for all, and its lead is the lead
 *              (parts/lateness_model.h)
 *   3 learn    each second, from what ended. Correction: work is multiplied by a factor that moves
 *              until the misses expected are those that are counted (parts/load_correction.h); it stands
 *              while help for expected misses is on its way, and after a backlog or a change of the
 *              fleet. Error budget: misses that the SLO allows and that have not happened are
 *              saved (parts/load_correction.h)
 *   4 need     the capacity C, below: by the share of requests that would be late, fleet and demand
 *              followed as a fluid with chance about it (parts/lateness_model.h), so that
 *              free sessions count for what they bridge. It stands for five seconds of an unchanged
 *              fleet
 *   5 mix      the cheapest whole number of instances of all pools that does C, the lead of new
 *              ones priced in (parts/mix.h)
 *   6 shaper   `window`, 20 s: only the noise of its inputs is left to bridge
 *
 * C is the least, ready a lead from now, with
 *
 *     late(C) <= late(everything that can be had) + SHRINK (1 - attainment)
 *
 * in the mean of all paths, a lead from now; clear_s later where a backlog makes all late whatever
 * is bought. Four things bend it:
 *
 *   shrink     what is given up now is back no sooner than a lead from now: a C below what there is
 *              has to do from now on as well
 *   keep       what there is stands while it is late for no more than KEEP (1 - attainment) beyond
 *              everything that can be had
 *   calm       SHRINK and KEEP are larger while demand is calm than where it rose within ten
 *              minutes: it may rise again
 *   budget     what is saved, and what LENT_LEADS leads and HELP_S allow, which is lent to all: a
 *              fleet that has saved nothing yet would buy what noise asks for. While demand is calm
 *              it pays for more lateness, as long as it covers the worst paths: to keep what there
 *              is, for a lead and HELP_S; to shrink, for as long as what is given up should not be
 *              needed beyond that, else it would be bought back before giving it up has paid
 *
 * C is never below the level now at utilisation_max of an instance's time and sessions, and nothing
 * is given up before LEARN_BUCKETS of arrivals were watched. One configuration serves every lead:
 * all that depends on it is measured. Without counted arrivals the routers' rate stands for level
 * and paths.
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
#define SATURATED 0.3 /* a backlog: look at when it should be gone */
#define HOPELESS 0.9  /* even then: everything there is */

/* Requests late beyond those, in parts of what is allowed. With SHRINK_RISEN at a twentieth llm-d's
 * episode fell below its 99 % at a lead of 100 s. */
#define SHRINK_CALM 0.1
#define SHRINK_RISEN 0.02
#define KEEP_CALM 0.5
#define KEEP_RISEN 0.1

#define LENT_LEADS 2.0
#define HELP_S 60.0     /* after a lead: until what was bought has helped */
#define DWELL_S 600.0   /* what is given up should not be needed for so long, ... */
#define DWELL_LEADS 3.0 /* ... or so many leads */

#define BISECTIONS 24
#define NEAR_INSTANCES 0.05 /* where they end: less than noise moves it */
#define AWAKE_RATE 1e-6     /* requests a second: asks for one instance, whichever is cheapest */
#define LEARN_BUCKETS 12    /* a minute */
#define SETTLE_US (30 * SECOND_US) /* before a fleet of another size is judged */
#define BACKLOG 20 /* of so many requests one waits: more begins or less than comes */

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
    int64_t changed_us;  /* since when there are so many, or no backlog */
    int64_t unhelped_us; /* since when no help for expected misses is on its way */

    bool has_fewest;
    int64_t fewest_us;
    double fewest; /* instances that the budget pays for, mean of a lead */

    struct answer {
        int64_t until_us;
        uint32_t main, have, ready; /* it holds while these stay */
        double instances;           /* of main */
    } answer;
};
_Static_assert(sizeof(struct work) <= SCALE_STATE_BYTES_MAX, "state of scale_work");

/* A decision under way. */
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

/* Time since then; a clock that went back begins it anew. */
static int64_t since_us(int64_t *then_us, int64_t now_us)
{
    if (*then_us > now_us) *then_us = now_us;
    return now_us - *then_us;
}

/* ---- 1, 2: what is seen ---- */

/* Sums the requests that wait and those that came lately; the means where none did. */
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

/* ---- 3: what is learned ---- */

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

/* Returns true if the fleet changed lately, there was a backlog, or the last look is long ago. */
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

/* Without counted misses nothing is. */
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

/* The part of the allowed misses by which the plan may be later than the largest possible fleet. */
struct room {
    double least; /* always */
    double paid;  /* while demand is calm, if the budget covers the worst paths */
};

/* Returns true if n instances suffice in place of `most`, given how much more is late with n. */
static bool suffices(const struct plan *p, double n, double most, double more_late,
                     struct room room)
{
    if (more_late <= room.least * p->allowed) return true;
    if (more_late > room.paid * p->allowed || !is_calm(p)) return false;
    return lateness_worst_loss(&p->lateness, n, most) <= p->budget;
}

/* Returns the least fleet that suffices in place of `most`, to NEAR_INSTANCES. */
static double least_of(const struct plan *p, double most, bool from_now, struct room room)
{
    double late = lateness_share(&p->lateness, most, from_now), low = 0, high = most;
    for (int i = 0; i < BISECTIONS && high - low > NEAR_INSTANCES; i++) {
        double mid = (low + high) / 2;
        if (suffices(p, mid, most, lateness_share(&p->lateness, mid, from_now) - late, room))
            high = mid;
        else
            low = mid;
    }
    return low;
}

/* The least a lead from now, and from now on where that is less than there is. */
static double least_need(const struct plan *p, double most, struct room room)
{
    double have = lateness_have(&p->lateness);
    bool hopeless = lateness_share(&p->lateness, most, false) > HOPELESS;
    double n = hopeless ? most : least_of(p, most, false, room);
    return n < have ? fmax(n, least_of(p, have, true, room)) : n;
}

/* Parts of what is allowed that may be late for so long, by the budget. */
static double parts_for(const struct plan *p, double seconds)
{
    return error_budget_parts(p->budget, p->allowed * p->lateness.level * seconds);
}

static double shrink_parts(const struct plan *p)
{
    return is_calm(p) ? SHRINK_CALM : SHRINK_RISEN;
}

/* Returns true if the present fleet suffices until more could be ready. */
static bool have_does(const struct plan *p, double most)
{
    double have = lateness_have(&p->lateness);
    double late =
        lateness_share(&p->lateness, have, false) - lateness_share(&p->lateness, most, false);
    struct room room = { is_calm(p) ? KEEP_CALM : KEEP_RISEN,
                         parts_for(p, p->lateness.lead_s + HELP_S) };
    return suffices(p, have, most, late, room);
}

/* Takes n into the mean of a lead, which begins with what there is. */
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

/* The least that the budget pays for: it would do now, and would have done in the mean of a lead,
 * which is how long what is given up takes to come back. DBL_MAX: nothing may be spent. */
static double spent_need(const struct plan *p, double most, int64_t now_us)
{
    double lead_s = p->lateness.lead_s, dwell_s = fmax(DWELL_S, DWELL_LEADS * lead_s);
    struct room room = { shrink_parts(p), parts_for(p, lead_s + HELP_S + dwell_s) };
    double n = is_calm(p) ? least_need(p, most, room) : lateness_have(&p->lateness);
    note_fewest(p->memory, &p->lateness, n, now_us);
    return is_calm(p) ? fmax(n, p->memory->fewest) : DBL_MAX;
}

/* C, in instances of the main pool. Where a backlog makes all late, the model looks later from here
 * on. */
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

/* Requests a second to plan for, in units of the pools' rates. */
static double find_rate(struct plan *p, int64_t now_us)
{
    struct lateness_model *s = &p->lateness;
    double work = s->config->margin * load_correction_factor(&p->memory->correction);
    lateness_look(s, work);
    p->budget = p->memory->error_budget.saved + lent(p);
    return fmax(fmax(needed(p, now_us) * s->rate[s->main], work * s->level), AWAKE_RATE);
}

/* The same, found anew only when the last answer is old or the fleet is another. */
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

/* Help for misses that are expected with what is ready is on its way. */
static void note_help(const struct plan *p, int64_t now_us)
{
    bool comes = scale_starting_all(p->lateness.view) > 0;
    if (comes && lateness_late_now(&p->lateness, 1) > p->allowed) p->memory->unhelped_us = now_us;
}

/* ---- 5: the answer ---- */

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
}

/* There are requests, but no pool of known speed: one instance will measure it. */
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
