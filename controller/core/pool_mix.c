/* pool_mix.c - turns expected lengths into buckets and pools into types, and evaluates one on the other.
 *
 *     bucket = 2 x 2 bins of the histogram of expected lengths, by its mean length
 *     rate   = share of the bucket * arrivals a second * the service's margin
 *     score  = requests of that bucket a second that one instance serves within the SLO
 *              (policies/scale/capacity.h), from the step-time model that instances have reported
 *
 * Buckets below LEAST_SHARE are left out and their share goes to the others: each costs the solver
 * a row of its tableau, and together they are less than the load moves within a minute. */
#include "controller/core/pool_mix.h"

#include "base/core/bits.h"
#include "policies/scale/capacity.h"

#include <math.h>
#include <string.h>

#define STEP 2 /* bins of a bucket, in each direction */
#define CELLS (LENGTH_BINS / STEP)
#define LEAST_SHARE 0.01
#define FIRST_BIN_TOKENS 16
#define PRICE_LEAST 1e-6 /* dollars an hour, where an instance is free */

_Static_assert(CELLS *CELLS <= MIX_BUCKETS_MAX, "every cell may be a bucket");
_Static_assert(SCALE_POOLS_MAX <= MIX_TYPES_MAX, "every pool is a type");

struct asked {
    const struct scale_view *view;
    double utilisation_max;
};

/* Returns the rate that one instance of a type serves of a bucket, as a mix_eval_fn. */
static void score(const void *ctx, uint32_t type, const struct mix_bucket *work,
                  struct mix_score *ret)
{
    const struct asked *a = ctx;
    const struct scale_view *v = a->view;
    double p = work->prompt_tokens, o = work->output_tokens;
    struct lengths one = {
        .count = 1, .prompt = p, .output = o, .prompt_sq = p * p, .output_sq = o * o, .cross = p * o
    };
    struct scale_load load;
    scale_load_of(&v->pool[type], &one, &load);
    double rate = scale_load_rate(&load, v->ttft_slo_s, v->tpot_slo_s, a->utilisation_max);
    *ret = (struct mix_score){ .rate_s = fmax(0, rate) };
}

/* Returns the middle of a cell's STEP bins, on the scale of the bins. */
static double cell_tokens(uint32_t cell)
{
    return FIRST_BIN_TOKENS * exp2(STEP * (cell + 0.5));
}

static double cell_count(const struct lengths *l, uint32_t p, uint32_t o)
{
    double sum = 0;
    for (uint32_t i = 0; i < STEP; i++)
        for (uint32_t j = 0; j < STEP; j++)
            sum += (double)l->bin[STEP * p + i][STEP * o + j];
    return sum;
}

static void fill_buckets(const struct lengths *l, double rate_s, struct mix_problem *m)
{
    double kept = 0, prompt = 0, output = 0;
    for (uint32_t p = 0; p < CELLS; p++)
        for (uint32_t o = 0; o < CELLS; o++) {
            double count = cell_count(l, p, o);
            if (count < LEAST_SHARE * l->count) continue;
            m->bucket[m->bucket_count++] = (struct mix_bucket){ .prompt_tokens = cell_tokens(p),
                                                                .output_tokens = cell_tokens(o),
                                                                .rate_s = count };
            kept += count;
            prompt += count * cell_tokens(p);
            output += count * cell_tokens(o);
        }
    /* Middles of cells are not means: they are scaled so that the whole has the measured means. */
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        m->bucket[b].rate_s *= rate_s / kept;
        m->bucket[b].prompt_tokens *= l->prompt * kept / prompt;
        m->bucket[b].output_tokens *= l->output * kept / output;
    }
}

/* Returns what the losses of an offer cost, in dollars for each hour of one instance. */
static double missing_h(const struct hazard *zone, const struct place_offer *o, double fine_h)
{
    return o->spot ? fine_h * hazard_rate_h(zone) * hazard_gap_h(o->lead_s) : 0;
}

void pool_mix_watch(struct pool_mix *last, uint32_t pool, const struct place_view *offers,
                    uint32_t next, double dt_h, int64_t now_us)
{
    double dear_h = 0, kept = 0, missing = 0;
    for (uint32_t i = 0; i < offers->offer_count; i++) {
        hazard_observe(&last->zone[pool][i], &offers->offer[i], dt_h, now_us);
        dear_h = fmax(dear_h, offers->offer[i].price_h);
    }
    double fine_h = dear_h * PLACE_FINE / fmax(1 - offers->availability, 1e-6);
    for (uint32_t i = 0; i < offers->offer_count; i++) {
        const struct place_offer *o = &offers->offer[i];
        kept += place_have(o);
        missing += place_have(o) * missing_h(&last->zone[pool][i], o, fine_h);
    }
    last->missing_kept_h[pool] = kept > 0 ? missing / kept : 0;
    last->missing_h[pool] =
        next == PLACE_NONE ? 0 : missing_h(&last->zone[pool][next], &offers->offer[next], fine_h);
}

/* Counts the service's instances of a pool, and prices one more. */
struct stock {
    uint32_t have; /* ready and starting */
    double kept_h; /* dollars an hour of one of these, mean */
    /* Of one more; moved: the part of new_h that its lead costs, over its life. */
    double new_h, moved;
};

static void fill_stock(const struct scale_view *v, const struct scale_config *config,
                       const struct pool_mix *last, struct stock ret[SCALE_POOLS_MAX])
{
    for (uint32_t p = 0; p < v->pool_count; p++) {
        const struct scale_pool *s = &v->pool[p];
        ret[p] = (struct stock){ .have = min_u32(scale_have(s), SOLVER_COUNT_MAX),
                                 .new_h = fmax(s->price_h, PRICE_LEAST) };
        ret[p].moved = ret[p].new_h * s->lead_s / fmax(config->life_s, 1);
        ret[p].new_h += last->missing_h[p];
    }
    for (uint32_t i = 0; i < v->instance_count; i++)
        ret[v->instance[i].pool].kept_h += v->instance[i].price_h;
    for (uint32_t p = 0; p < v->pool_count; p++)
        ret[p].kept_h = ret[p].have == 0
                            ? 0
                            : fmax(ret[p].kept_h / scale_have(&v->pool[p]), PRICE_LEAST) +
                                  last->missing_kept_h[p];
}

/* Returns what counts cost an hour, the lead of instances that have to be started included. */
static double cost_of(const struct stock *stock, uint32_t pools, const uint32_t *count)
{
    double sum = 0;
    for (uint32_t p = 0; p < pools; p++) {
        uint32_t kept = min_u32(count[p], stock[p].have);
        sum += kept * stock[p].kept_h + (count[p] - kept) * (stock[p].new_h + stock[p].moved);
    }
    return sum;
}

/* A problem to which only some pools may add. */
#define ALL UINT32_MAX
#define NONE (UINT32_MAX - 1)

/* Pools that may grow are priced as their next instance; of the others there is what there is. */
static void fill_types(const struct scale_view *v, const struct stock *stock, uint32_t grows,
                       struct mix_problem *m)
{
    m->type_count = v->pool_count;
    for (uint32_t p = 0; p < v->pool_count; p++) {
        const struct scale_pool *s = &v->pool[p];
        bool may = (grows == ALL || grows == p) && s->available;
        uint32_t reach = may ? s->max : min_u32(s->max, stock[p].have);
        m->type[p] = (struct mix_type){ .price_h = may ? stock[p].new_h : stock[p].kept_h,
                                        .max = s->perf_known ? min_u32(reach, SOLVER_COUNT_MAX) : 0,
                                        .lead_s = s->lead_s };
        if (m->type[p].price_h <= 0)
            m->type[p].price_h = PRICE_LEAST; /* none of it: its max is 0 */
    }
}

/* The best so far. */
struct found {
    bool any;
    uint32_t want[SCALE_POOLS_MAX];
    double cost_h;
};

struct search {
    const struct mix_policy *policy;
    const struct scale_view *view;
    struct stock stock[SCALE_POOLS_MAX];
    struct pool_mix_room *room;
    struct found best;
};

/* Solves with some pools growing, and keeps the result if it costs less than the best. */
static bool try(struct search *s, uint32_t grows)
{
    struct mix_problem *m = &s->room->problem;
    fill_types(s->view, s->stock, grows, m);
    s->policy->choose(m, &s->room->memory, &s->room->verdict);
    const struct mix_verdict *v = &s->room->verdict;
    if (!v->found) return false;
    double cost = cost_of(s->stock, s->view->pool_count, v->count);
    if (s->best.any && cost >= s->best.cost_h) return true;
    s->best.any = true;
    s->best.cost_h = cost;
    memcpy(s->best.want, v->count, s->view->pool_count * sizeof *v->count);
    return true;
}

/* Moves only where it pays: the mix among all pools is held against the cheapest part of the present fleet that does
 * the work or, where the whole of it does not, against that fleet with one pool grown. */
static void search(struct search *s)
{
    bool suffices = try(s, NONE);
    for (uint32_t p = 0; p < s->view->pool_count && !suffices; p++)
        if (s->view->pool[p].available) try(s, p);
    try(s, ALL);
}

void pool_mix_solve(const struct mix_policy *policy, const struct scale_view *view,
                    const struct scale_config *config, int64_t now_us, struct pool_mix_room *room,
                    struct pool_mix *last)
{
    const struct scale_demand *d = &view->demand;
    bool asked = d->present && d->arrivals_s > 0 && d->expected.count > 0;
    if (!asked) {
        last->solved_us = 0;
        last->found = false;
        return;
    }
    if (last->solved_us && now_us - last->solved_us < POOL_MIX_EVERY_US) return;
    const struct asked ctx = { view, config->utilisation_max };
    struct mix_problem *m = &room->problem;
    *m = (struct mix_problem){
        .budget_h = view->budget_h, .eval = score, .ctx = &ctx, .nodes_max = POOL_MIX_NODES_MAX
    };
    fill_buckets(&d->expected, d->arrivals_s * config->margin, m);
    struct search s = { .policy = policy, .view = view, .room = room };
    fill_stock(view, config, last, s.stock);
    search(&s);
    last->solved_us = now_us;
    last->found = s.best.any;
    memcpy(last->want, s.best.want, view->pool_count * sizeof *last->want);
    m->ctx = NULL; /* it ends with this call */
}
