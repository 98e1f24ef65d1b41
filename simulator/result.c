/* result.c - counts outcomes, gaps between tokens and the digest, with a histogram in steps of one per cent. */
#include "simulator/result.h"

#include "base/core/hash.h"

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
    struct sim_slo slo = sim_slo_of(c, o->service);
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

/* ---- the tally: outcomes, gaps, and the digest that two equal runs must share ---- */

int tally_init(struct sim_result *r, const struct trace *trace, struct err *err)
{
    *r = (struct sim_result){ .offered = trace->count };
    r->outcome = calloc(trace->count, sizeof *r->outcome);
    if (!r->outcome)
        return err_set(err, -ENOMEM, "simulator: no memory for %u outcomes", r->offered);
    for (uint32_t i = 0; i < trace->count; i++) {
        r->outcome[i] = (struct sim_outcome){ .end = SIM_UNFINISHED,
                                              .service = trace->request[i].service,
                                              .instance = ROUTE_NONE,
                                              .arrival_us = trace->request[i].at_us };
    }
    return 0;
}

void tally_tokens(struct sim_result *r, struct flight *f, uint32_t count, int64_t first_us,
                  int64_t last_us)
{
    if (f->generated == 0) {
        f->first_us = first_us;
        f->first_instance = f->instance;
    } else {
        sim_histogram_add(&r->itl, (double)(first_us - f->last_us), 1);
    }
    if (count > 1) {
        sim_histogram_add(&r->itl, (double)(last_us - first_us) / (count - 1), count - 1);
    }
    f->generated += count;
    f->last_us = last_us;
}

void tally_end(struct sim_result *r, const struct flight *f, enum sim_end end)
{
    struct sim_outcome *o = &r->outcome[f->request];
    o->end = end;
    o->generated = f->generated;
    if (f->generated == 0) return;
    o->instance = f->first_instance;
    o->cached_tokens = f->cached_tokens;
    o->first_us = f->first_us;
    o->last_us = f->last_us;
}

void tally_close(struct sim_result *r)
{
    int64_t last_us = 0;
    for (uint32_t i = 0; i < r->offered; i++) {
        const struct sim_outcome *o = &r->outcome[i];
        const struct {
            uint64_t request, instance;
            int64_t first_us, last_us;
        } line = { i, o->instance, o->first_us, o->last_us };
        r->digest = hash64(&line, sizeof line, r->digest);
        r->ended[o->end]++;
        if (o->last_us > last_us) last_us = o->last_us;
        if (o->arrival_us > last_us) last_us = o->arrival_us;
    }
    if (r->offered) r->span_s = (double)(last_us - r->outcome[0].arrival_us) * 1e-6;
}
