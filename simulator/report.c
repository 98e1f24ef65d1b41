/* report.c - one pass over the outcomes, one sort a figure; what arms are compared by. */
#include "simulator/report.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values of the completed first, then as many infinite ones as there were misses. */
struct series {
    double *value;
    uint32_t count;
    double sum;
};

static void add(struct series *s, double value)
{
    s->value[s->count++] = value;
    s->sum += value;
}

static struct stats_quantiles summarise(struct series *s, uint32_t misses)
{
    uint32_t completed = s->count;
    for (uint32_t i = 0; i < misses; i++)
        s->value[s->count++] = (double)INFINITY;
    struct stats_quantiles q = stats_quantiles(s->value, s->count);
    q.mean = completed > 0 ? s->sum / completed : (double)NAN;
    return q;
}

/* Fills the series; how many requests of each service kept its promise. */
static void measure(const struct sim_config *config, const struct sim_result *result,
                    struct series *ttft, struct series *tpot, struct series *jct,
                    uint32_t ret[SIM_SERVICES_MAX])
{
    memset(ret, 0, SIM_SERVICES_MAX * sizeof *ret);
    for (uint32_t i = 0; i < result->offered; i++) {
        const struct sim_outcome *o = &result->outcome[i];
        if (o->end != SIM_COMPLETED) continue;
        add(ttft, sim_outcome_ttft_s(o));
        add(jct, (double)(o->last_us - o->arrival_us) / 1e6);
        if (o->generated > 1) add(tpot, sim_outcome_tpot_s(o));
        ret[o->service] += sim_outcome_kept(o, config);
    }
}

static struct stats_quantiles gaps(const struct sim_histogram *h)
{
    if (h->total == 0) return stats_quantiles(NULL, 0);
    return (struct stats_quantiles){
        .mean = h->sum_us * 1e-6 / (double)h->total,
        .p50 = sim_histogram_quantile_s(h, 0.50),
        .p90 = sim_histogram_quantile_s(h, 0.90),
        .p99 = sim_histogram_quantile_s(h, 0.99),
    };
}

/* Absent is not zero: a fleet of which a part has no price has no cost. */
static bool is_priced(const struct sim_config *c)
{
    for (uint32_t p = 0; p < c->pool_count; p++)
        if (c->pool[p].price_h <= 0) return false;
    return true;
}

/* What a role row did not ask for it did not foresee. */
static double foreseen(const struct sim_result *s, double rps)
{
    return s->role_reason && rps >= 0 ? rps : (double)NAN;
}

static struct report copy_figures(const struct sim_config *c, const struct sim_result *s)
{
    return (struct report){
        .offered = s->offered,
        .completed = s->ended[SIM_COMPLETED],
        .rejected = s->ended[SIM_REJECTED],
        .unfinished = s->ended[SIM_UNFINISHED],
        .too_long = s->ended[SIM_TOO_LONG],
        .failed = s->ended[SIM_FAILED],
        .itl_s = gaps(&s->itl),
        .token_hit_ratio =
            s->prompt_tokens > 0 ? (double)s->hit_tokens / (double)s->prompt_tokens : 0,
        .hotspot = s->hotspot,
        .preemptions = s->preemptions,
        .swaps = s->swaps,
        .handoffs = s->handoffs,
        .migrations = s->migrations,
        .migrations_dropped = s->migrations_dropped,
        .resumed = s->resumed,
        .resumed_tokens = s->resumed_tokens,
        .fetches = s->fetches,
        .fetched_tokens = s->fetched_tokens,
        .role_changes = s->role_changes,
        .role_reason = s->role_reason,
        .role_rps = foreseen(s, s->role_rps),
        .role_runner_up_rps = foreseen(s, s->role_runner_up_rps),
        .breaker_trips = s->trips,
        .link_gb = s->link_bytes / 1e9,
        .stall_s = s->stall_s,
        .instances_mean = s->stood_s > 0 ? s->instance_seconds / s->stood_s : s->instances_max,
        .instances_max = s->instances_max,
        .instances_floor_mean =
            s->floor_s > 0 ? s->floor_instance_seconds / s->floor_s : (double)NAN,
        .gpu_hours = s->gpu_seconds / 3600,
        .cost_usd = is_priced(c) ? s->cost_usd : (double)NAN,
        .energy_kwh = s->energy_j > 0 ? s->energy_j / 3.6e6 : (double)NAN,
        .scale_actions = s->scale_actions,
        .launches = s->launches,
        .launches_failed = s->launches_failed,
        .lost = s->lost,
        .events = s->events,
        .steps = s->steps,
        .seed = c->seed,
        .digest = s->digest,
        .cpu_s = s->cpu_s,
        .extrapolated = s->extrapolated,
    };
}

static void copy_phases(const struct sim_result *s, struct report *ret)
{
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++)
        ret->phase_s[k] = s->launches > 0 ? s->phase_s[k] / s->launches : (double)NAN;
}

static double one_or_none(double a, double b)
{
    return a < b || a > b ? (double)NAN : a;
}

/* Of every service that has a pool or was asked for. */
static void copy_services(const struct sim_config *c, const struct sim_result *s,
                          const uint32_t good[SIM_SERVICES_MAX], struct report *ret)
{
    struct report_service of[SIM_SERVICES_MAX] = { 0 };
    bool there[SIM_SERVICES_MAX] = { false };
    for (uint32_t p = 0; p < c->pool_count; p++)
        there[c->pool[p].service] = true;
    for (uint32_t i = 0; i < s->offered; i++) {
        of[s->outcome[i].service].offered++;
        of[s->outcome[i].service].completed += s->outcome[i].end == SIM_COMPLETED;
    }
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++) {
        if (!there[k] && of[k].offered == 0) continue;
        struct report_service *v = &ret->service[ret->service_count++];
        *v = of[k];
        v->number = k;
        v->slo = sim_promise(c, k);
        v->attainment = v->offered > 0 ? (double)good[k] / v->offered : (double)NAN;
        v->instances_max = s->service[k].instances_max;
        v->instances_mean =
            s->stood_s > 0 ? s->service[k].instance_seconds / s->stood_s : v->instances_max;
        if (ret->service_count == 1) ret->slo = v->slo;
        ret->slo.ttft_s = one_or_none(ret->slo.ttft_s, v->slo.ttft_s);
        ret->slo.tpot_s = one_or_none(ret->slo.tpot_s, v->slo.tpot_s);
    }
}

int report_make(const struct sim_config *config, const struct sim_result *result,
                struct report *ret)
{
    struct report r = copy_figures(config, result);
    copy_phases(result, &r);
    struct series ttft = { 0 }, tpot = { 0 }, jct = { 0 };
    double *memory = malloc(3 * ((size_t)result->offered + 1) * sizeof *memory);
    if (!memory) return -ENOMEM;
    ttft.value = memory;
    tpot.value = memory + result->offered;
    jct.value = memory + 2 * (size_t)result->offered;
    uint32_t met[SIM_SERVICES_MAX], good = 0, misses = r.offered - r.completed;
    measure(config, result, &ttft, &tpot, &jct, met);
    copy_services(config, result, met, &r);
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++)
        good += met[k];
    r.ttft_s = summarise(&ttft, misses);
    r.tpot_s = summarise(&tpot, misses);
    r.jct_s = summarise(&jct, misses);
    free(memory);
    r.attainment = r.offered > 0 ? (double)good / r.offered : 0;
    r.goodput_rps = result->span_s > 0 ? good / result->span_s : 0;
    *ret = r;
    return 0;
}

// clang-format off
#define METRIC(function, expression) \
    static double function(const struct report *r) { return (expression); }
METRIC(ttft_mean, r->ttft_s.mean)
METRIC(ttft_p99, r->ttft_s.p99)
METRIC(tpot_mean, r->tpot_s.mean)
METRIC(itl_p99, r->itl_s.p99)
METRIC(jct_mean, r->jct_s.mean)
METRIC(jct_p99, r->jct_s.p99)
METRIC(attainment, r->attainment)
METRIC(goodput, r->goodput_rps)
METRIC(hits, r->token_hit_ratio)
METRIC(hotspot, r->hotspot)
METRIC(failed, (double)r->failed)
METRIC(preemptions, (double)r->preemptions)
METRIC(migrations, (double)r->migrations)
METRIC(resumed, (double)r->resumed)
METRIC(instances, r->instances_mean)
METRIC(floor_instances, r->instances_floor_mean)
METRIC(cost, r->cost_usd)
METRIC(energy, r->energy_kwh)
METRIC(actions, (double)r->scale_actions)

const struct report_metric report_metrics[] = {
    { "ttft_s.mean", "TTFT s", 1, 3, true, false, ttft_mean },
    { "ttft_s.p99", "TTFT p99 s", 1, 3, true, false, ttft_p99 },
    { "tpot_s.mean", "TPOT ms", 1e3, 2, true, false, tpot_mean },
    { "itl_s.p99", "ITL p99 ms", 1e3, 1, false, false, itl_p99 },
    { "jct_s.mean", "JCT s", 1, 3, true, false, jct_mean },
    { "jct_s.p99", "JCT p99 s", 1, 2, false, false, jct_p99 },
    { "slo.attainment", "SLO %", 100, 2, true, true, attainment },
    { "goodput_rps", "goodput/s", 1, 3, true, false, goodput },
    { "token_hit_ratio", "hit %", 100, 1, true, true, hits },
    { "hotspot", "hotspot", 1, 2, false, false, hotspot },
    { "requests.failed", "failed", 1, 1, false, false, failed },
    { "preemptions", "preemptions", 1, 0, false, false, preemptions },
    { "migrations", "migrations", 1, 1, false, false, migrations },
    { "resumed", "resumed", 1, 1, false, false, resumed },
    { "instances.mean", "instances", 1, 2, true, false, instances },
    { "instances.floor_mean", "to floor", 1, 2, false, false, floor_instances },
    { "cost_usd", "cost $", 1, 2, true, false, cost },
    { "energy_kwh", "kWh", 1, 2, false, false, energy },
    { "scale_actions", "scale actions", 1, 1, false, false, actions },
};
// clang-format on
const uint32_t report_metric_count = COUNT_OF(report_metrics);
