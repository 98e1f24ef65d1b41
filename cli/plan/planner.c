/* planner.c - buckets of a trace, types of a price list. */
#include "cli/plan/planner.h"

#include "base/core/bits.h"

#include <math.h>

#define STEPS 6         /* of each axis of buckets */
#define STEP_FIRST 64.0 /* tokens: the first bucket ends here, each ends at four times the last */
#define STEP_FACTOR 4.0
#define TP_MAX 8
#define SPOT_LEAD_S 120.0       /* launch to ready where nothing was measured yet */
#define SPOT_HAZARD_H (1 / 8.0) /* as place_hazard.h's prior */

static uint32_t step_of(double tokens)
{
    uint32_t i = 0;
    for (double end = STEP_FIRST; i + 1 < STEPS && tokens > end; end *= STEP_FACTOR)
        i++;
    return i;
}

void planner_trace(struct planner *p, const struct trace *trace, double rate_s)
{
    struct mix_bucket cell[STEPS * STEPS] = { { 0 } };
    struct trace_stats stats;
    trace_stats_get(trace, &stats);
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct trace_request *r = &trace->request[i];
        struct mix_bucket *c = &cell[step_of(r->prompt_tokens) * STEPS + step_of(r->output_tokens)];
        c->prompt_tokens += r->prompt_tokens;
        c->output_tokens += r->output_tokens;
        c->rate_s += 1;
    }
    double total = rate_s > 0 ? rate_s : stats.rate_s;
    p->mix.bucket_count = 0;
    for (uint32_t i = 0; i < COUNT_OF(cell); i++) {
        if (cell[i].rate_s <= 0) continue;
        p->mix.bucket[p->mix.bucket_count++] =
            (struct mix_bucket){ .prompt_tokens = cell[i].prompt_tokens / cell[i].rate_s,
                                 .output_tokens = cell[i].output_tokens / cell[i].rate_s,
                                 .rate_s = total * cell[i].rate_s / trace->count };
    }
    p->mean = (struct mix_bucket){ stats.prompt_mean, stats.output_mean, total };
}
_Static_assert(STEPS *STEPS <= MIX_BUCKETS_MAX, "buckets of a trace");

void planner_lengths(struct planner *p, double prompt_tokens, double output_tokens, double rate_s)
{
    p->mean = (struct mix_bucket){ prompt_tokens, output_tokens, rate_s };
    p->mix.bucket[0] = p->mean;
    p->mix.bucket_count = 1;
}

/* The parallelism with the most requests for the money; false when the model fits in none. */
static bool best_split(struct planner *p, uint32_t at, const struct price *price,
                       const struct model_spec *model)
{
    double best = 0;
    bool any = false;
    struct roofline kept;
    for (uint32_t tp = 1; tp <= TP_MAX; tp *= 2) {
        struct roofline *r = &p->fleet.type[at];
        if (!roofline_init(r, hardware_find(str_from(price->hardware)), model, tp)) continue;
        if (roofline_kv_tokens(r) == 0) continue;
        struct mix_score score;
        eval_score(&p->fleet, at, &p->mean, &score);
        if (any && score.rate_s / tp <= best) continue;
        any = true;
        best = score.rate_s / tp;
        kept = *r;
        p->type[at] = (struct planner_type){ price, tp, !r->validated, score.rate_s };
    }
    if (any) p->fleet.type[at] = kept;
    return any;
}

static bool is_wanted(const struct price *price, const struct str *only, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct hardware *h = hardware_find(only[i]);
        if (h && str_eq(str_from(h->name), str_from(price->hardware))) return true;
    }
    return count == 0;
}

static bool is_cheapest(const struct prices *prices, uint32_t at)
{
    const struct price *p = &prices->row[at];
    for (uint32_t i = 0; i < prices->count; i++) {
        const struct price *q = &prices->row[i];
        if (q->spot != p->spot || !str_eq(str_from(q->hardware), str_from(p->hardware))) continue;
        if (q->price_h < p->price_h || (i < at && q->price_h <= p->price_h)) return false;
    }
    return true;
}

int planner_types(struct planner *p, const struct prices *prices, const struct model_spec *model,
                  const struct str *only, size_t only_count, const struct planner_slo *slo,
                  struct err *err)
{
    struct mix_problem *m = &p->mix;
    p->fleet.slo_ttft_s = slo->slo_ttft_s;
    p->fleet.slo_tpot_s = slo->slo_tpot_s;
    m->budget_h = slo->budget_h;
    m->eval = eval_score;
    m->ctx = &p->fleet;
    m->type_count = 0;
    bool any = false;
    for (uint32_t i = 0; i < prices->count && m->type_count < MIX_TYPES_MAX; i++) {
        const struct price *price = &prices->row[i];
        if ((price->spot && !slo->spot) || !is_wanted(price, only, only_count)) continue;
        any = true;
        if (!is_cheapest(prices, i) || !best_split(p, m->type_count, price, model)) continue;
        m->type[m->type_count] =
            (struct mix_type){ .price_h = price->price_h * p->type[m->type_count].tp,
                               .max = SOLVER_COUNT_MAX,
                               .spot = price->spot,
                               .hazard_h = price->spot ? SPOT_HAZARD_H : 0,
                               .lead_s = SPOT_LEAD_S };
        m->type_count++;
    }
    if (!any)
        return err_set(err, -ENOENT, "the price list has no offer of what is asked for, %s",
                       slo->spot ? "spot or on demand" : "on demand");
    if (m->type_count == 0)
        return err_set(err, -ENOENT, "no accelerator of the price list holds %s", model->name);
    return 0;
}

void planner_ask(struct planner *p, const struct mix_policy *row, struct mix_verdict *ret,
                 struct mix_verdict *ret_runner_up)
{
    row->choose(&p->mix, &p->memory, ret);
    *ret_runner_up = (struct mix_verdict){ .why = "there is no answer to vary" };
    if (!ret->found) return;
    uint32_t most = 0;
    for (uint32_t t = 1; t < p->mix.type_count; t++)
        if (ret->count[t] * p->mix.type[t].price_h > ret->count[most] * p->mix.type[most].price_h)
            most = t;
    uint32_t max = p->mix.type[most].max;
    p->mix.type[most].max = 0;
    row->choose(&p->mix, &p->memory, ret_runner_up);
    p->mix.type[most].max = max;
}
