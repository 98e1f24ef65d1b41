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

void pool_mix_watch(struct pool_mix *last, uint32_t pool, const struct place_view *offers,
                    uint32_t next, double dt_h, int64_t now_us)
{
    for (uint32_t i = 0; i < offers->offer_count; i++)
        hazard_observe(&last->zone[pool][i], &offers->offer[i], dt_h, now_us);
    bool is_spot = next != PLACE_NONE && offers->offer[next].spot;
    last->hazard_h[pool] = is_spot ? hazard_rate_h(&last->zone[pool][next]) : 0;
}

static void fill_types(const struct scale_view *v, const double hazard_h[SCALE_POOLS_MAX],
                       struct mix_problem *m)
{
    m->type_count = v->pool_count;
    for (uint32_t p = 0; p < v->pool_count; p++) {
        const struct scale_pool *s = &v->pool[p];
        uint32_t reach = s->available ? s->max : min_u32(s->max, s->ready + s->starting);
        m->type[p] = (struct mix_type){ .price_h = fmax(s->price_h, 1e-6),
                                        .max = s->perf_known ? min_u32(reach, SOLVER_COUNT_MAX) : 0,
                                        .spot = hazard_h[p] > 0,
                                        .hazard_h = hazard_h[p],
                                        .lead_s = s->lead_s };
    }
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
    fill_types(view, last->hazard_h, m);
    policy->choose(m, &room->memory, &room->verdict);
    last->solved_us = now_us;
    last->found = room->verdict.found;
    memcpy(last->want, room->verdict.count, view->pool_count * sizeof *last->want);
    m->ctx = NULL; /* it ends with this call */
}
