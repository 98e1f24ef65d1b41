/* demand.c - keeps the reports of routers and sums them. */
#include "fleet/demand.h"

#include "base/core/bits.h"

#include <math.h>

#define CACHED_WEIGHT 0.2 /* of the newest report in the share of cached prompt tokens */
#define RATE_LEAST 1e-9   /* arrivals a second: weight of a router without any */

/* ---- one router ---- */

static uint64_t risen(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Adds what the router's counters rose by since its last report. */
static void count(struct demand_counted *c, const struct demand_seen *d,
                  const struct service_demand *now, bool same_boot)
{
    static const struct service_demand nothing;
    if (!d->present) return;
    const struct service_demand *last = same_boot ? &d->last : &nothing;
    if (now->arrivals_total > last->arrivals_total)
        c->arrivals += now->arrivals_total - last->arrivals_total;
    if (now->slo_met_total > last->slo_met_total)
        c->met += now->slo_met_total - last->slo_met_total;
    if (now->slo_missed_total > last->slo_missed_total)
        c->missed += now->slo_missed_total - last->slo_missed_total;
    uint64_t prompt = risen(now->prompt_tokens_total, last->prompt_tokens_total);
    uint64_t cached = risen(now->cached_tokens_total, last->cached_tokens_total);
    c->tokens += prompt - min_u64(cached, prompt) +
                 risen(now->generated_tokens_total, last->generated_tokens_total);
}

void demand_heard(struct demand_seen *d, struct demand_counted *counted,
                  const struct service_demand *report, bool same_boot, int64_t now_us)
{
    bool known = d->present && same_boot;
    count(counted, d, report, same_boot);
    /* Before the first report the last arrival is not known. It counts as now: then the service is
     * not taken for idle. */
    if (!known || report->arrivals_total != d->last.arrivals_total || report->held > 0)
        d->arrived_us = now_us;
    if (known && report->prompt_tokens_total > d->last.prompt_tokens_total) {
        double prompt = (double)(report->prompt_tokens_total - d->last.prompt_tokens_total);
        double cached = report->cached_tokens_total > d->last.cached_tokens_total
                            ? (double)(report->cached_tokens_total - d->last.cached_tokens_total)
                            : 0;
        double share = cached < prompt ? cached / prompt : 1;
        d->cached_share += CACHED_WEIGHT * (share - d->cached_share);
    }
    d->last = *report;
    d->last.service = (struct str){ 0 };
    d->present = true;
}

/* ---- all routers ---- */

/* Joins one router's lengths to those of the others. They have aged since they were sent. */
static void add_lengths(struct lengths *sum, const struct lengths *l, double age_s)
{
    struct lengths aged = *l;
    aged.age_s += age_s;
    if (aged.count > 0) lengths_join(sum, &aged, sum);
}

static void add_tail(const struct wire_quantiles *q, bool *known, double *worst_s)
{
    if (q->count < DEMAND_COUNT_MIN) return;
    *known = true;
    *worst_s = fmax(*worst_s, q->p90);
}

static void add(struct scale_demand *sum, double *weight, const struct demand_seen *d, double age_s,
                int64_t now_us)
{
    const struct service_demand *s = &d->last;
    double n = s->arrival_per_s > 0 ? s->arrival_per_s : RATE_LEAST;
    double idle = (double)(now_us - d->arrived_us) / 1e6;
    sum->arrivals_s += s->arrival_per_s;
    sum->late_refused_s += s->late_refused_per_s;
    sum->prompt_tokens += n * s->prompt_tokens_mean * (1 - d->cached_share);
    sum->output_tokens += n * s->predicted_tokens_mean;
    sum->in_flight += s->in_flight;
    sum->held += s->held;
    sum->idle_s = sum->present ? fmin(sum->idle_s, idle) : idle;
    sum->held_prompt_tokens += s->held_prompt_tokens;
    sum->age_s = fmax(sum->age_s, age_s);
    if (s->has_expected) add_lengths(&sum->expected, &s->expected, age_s);
    if (s->has_queued) add_lengths(&sum->queued, &s->queued, age_s);
    add_tail(&s->tpot_s, &sum->tpot_known, &sum->tpot_s);
    add_tail(&s->ttft_s, &sum->ttft_known, &sum->ttft_s);
    sum->present = true;
    *weight += n;
}

bool demand_merge(const struct demand_source *source, uint32_t source_count,
                  const struct demand_counted *counted, uint32_t waiting, int64_t now_us,
                  struct scale_demand *ret)
{
    struct scale_demand sum = { 0 };
    double weight = 0;
    bool all_fresh = true;
    for (uint32_t i = 0; i < source_count; i++) {
        double age_s = (double)(now_us - source[i].heard_us) / 1e6;
        if (!demand_is_fresh(source[i].heard_us, now_us))
            all_fresh = false;
        else if (source[i].seen->present)
            add(&sum, &weight, source[i].seen, age_s, now_us);
    }
    if (weight > 0) {
        sum.prompt_tokens /= weight;
        sum.output_tokens /= weight;
    }
    sum.arrivals_total = counted->arrivals;
    sum.slo_known = sum.present;
    sum.slo_met_total = counted->met;
    sum.slo_missed_total = counted->missed;
    sum.waiting = min_u32(waiting, sum.in_flight);
    *ret = sum;
    return all_fresh;
}

/* ---- demand and speeds for role policies ---- */

struct role_demand role_demand_of(const struct scale_demand *d)
{
    const struct lengths *l = &d->expected;
    return (struct role_demand){ .present = d->present && l->count > 0,
                                 .prompt_mean = l->prompt,
                                 .prompt_m2 = l->prompt_sq,
                                 .output_mean = l->output,
                                 .output_m2 = l->output_sq };
}

void role_lend_speeds(struct role_instance *instance, const uint32_t *offer, uint32_t count,
                      const struct perf_coef **prior, uint32_t offer_count)
{
    for (uint32_t i = 0; i < count; i++)
        if (instance[i].has_perf && offer[i] < offer_count) prior[offer[i]] = &instance[i].perf;
    for (uint32_t i = 0; i < count; i++) {
        struct role_instance *in = &instance[i];
        if (in->has_perf || offer[i] >= offer_count || !prior[offer[i]]) continue;
        in->has_perf = true;
        in->perf = *prior[offer[i]];
    }
}
