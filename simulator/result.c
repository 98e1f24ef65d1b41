/* result.c - a histogram in steps of one per cent, and what a result holds. */
#include "simulator/result.h"

#include <math.h>
#include <stdlib.h>

#define BIN_RATIO 1.01

void sim_result_fini(struct sim_result *r)
{
    free(r->outcome);
    r->outcome = NULL;
}

double sim_outcome_ttft_s(const struct sim_outcome *o)
{
    return (double)(o->first_us - o->arrival_us) / 1e6;
}

double sim_outcome_tpot_s(const struct sim_outcome *o)
{
    return o->generated > 1 ? (double)(o->last_us - o->first_us) / 1e6 / (o->generated - 1) : 0;
}

bool sim_outcome_kept(const struct sim_outcome *o, const struct sim_config *c)
{
    struct sim_promise slo = sim_promise(c, o->service);
    return o->end == SIM_COMPLETED && sim_outcome_ttft_s(o) <= slo.ttft_s &&
           sim_outcome_tpot_s(o) <= slo.tpot_s;
}

void sim_histogram_add(struct sim_histogram *h, double us, uint64_t count)
{
    if (us > h->last_us || us < h->last_us) {
        double bin = us > 1 ? log(us) * (1 / log(BIN_RATIO)) : 0;
        h->last_bin = bin < SIM_HISTOGRAM_BINS - 1 ? (uint32_t)bin : SIM_HISTOGRAM_BINS - 1;
        h->last_us = us;
    }
    h->count[h->last_bin] += count;
    h->total += count;
    h->sum_us += us * (double)count;
}

double sim_histogram_quantile_s(const struct sim_histogram *h, double q)
{
    uint64_t below = (uint64_t)(q * (double)h->total), seen = 0;
    for (uint32_t i = 0; i < SIM_HISTOGRAM_BINS; i++) {
        seen += h->count[i];
        if (seen > below) return pow(BIN_RATIO, i + 0.5) * 1e-6;
    }
    return 0;
}
