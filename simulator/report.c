/* report.c - makes a report in one pass over the outcomes and one sort a figure, and writes it. */
#include "simulator/report.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of completed requests, then an infinite one for each miss. */
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

/* Fills the series, and counts the requests of each service that met its SLO. */
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

/* Returns true if all pools have prices. Absent is not zero: a fleet with an unpriced part has no cost. */
static bool is_priced(const struct sim_config *c)
{
    for (uint32_t p = 0; p < c->pool_count; p++)
        if (c->pool[p].price_h <= 0) return false;
    return true;
}

/* Returns a figure that the role policy estimated; NAN if it estimated none. */
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
        .refused_429 = s->refused_429,
        .refused_503 = s->refused_503,
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

/* Fills the figures of every service that has a pool or a request. */
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
        v->slo = sim_slo_of(c, k);
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
METRIC(rejected, (double)r->rejected)
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
    { "requests.rejected", "rejected", 1, 1, false, false, rejected },
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

/* ---- a report as JSON, and as a page for people ---- */

static double per(double count, double seconds_spent)
{
    return seconds_spent > 0 ? count / seconds_spent : (double)NAN;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_requests(struct json_writer *w, const struct report *r)
{
    json_key(w, "requests");
    json_object(w);
    json_kv_u64(w, "offered", r->offered);
    json_kv_u64(w, "completed", r->completed);
    json_kv_u64(w, "rejected", r->rejected);
    json_kv_u64(w, "rejected_429", r->refused_429);
    json_kv_u64(w, "rejected_503", r->refused_503);
    json_kv_u64(w, "unfinished", r->unfinished);
    json_kv_u64(w, "too_long", r->too_long);
    json_kv_u64(w, "failed", r->failed);
    json_object_end(w);
}

static void put_phases(struct json_writer *w, const struct report *r)
{
    static const char *const names[SIM_PHASE_COUNT] = { "provision", "image", "weights",
                                                        "warm_up" };
    json_key(w, "launch_s");
    json_object(w);
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++)
        stats_figure_json(w, names[k], r->phase_s[k]);
    json_object_end(w);
}

/* Writes the simulator's own figures. The digest is text: most readers take a JSON number as a double. */
static void put_sim(struct json_writer *w, const struct report *r)
{
    char digest[20];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r->digest);
    json_key(w, "sim");
    json_object(w);
    json_kv_u64(w, "events", r->events);
    json_kv_u64(w, "steps", r->steps);
    stats_figure_json(w, "cpu_s", r->cpu_s);
    stats_figure_json(w, "requests_per_core_minute", per(60.0 * r->offered, r->cpu_s));
    stats_figure_json(w, "steps_per_core_second", per((double)r->steps, r->cpu_s));
    json_kv_u64(w, "seed", r->seed);
    json_kv_text(w, "digest", digest);
    json_object_end(w);
}

static void put_slo(struct json_writer *w, const struct sim_slo *slo, double attainment)
{
    json_key(w, "slo");
    json_object(w);
    stats_figure_json(w, "ttft_s", slo->ttft_s);
    stats_figure_json(w, "tpot_s", slo->tpot_s);
    stats_figure_json(w, "attainment", attainment);
    json_object_end(w);
}

static void put_services(struct json_writer *w, const struct report *r)
{
    json_key(w, "services");
    json_array(w);
    for (uint32_t i = 0; i < r->service_count; i++) {
        const struct report_service *v = &r->service[i];
        json_object(w);
        json_kv_u64(w, "service", v->number);
        json_kv_u64(w, "offered", v->offered);
        json_kv_u64(w, "completed", v->completed);
        put_slo(w, &v->slo, v->attainment);
        json_key(w, "instances");
        json_object(w);
        stats_figure_json(w, "mean", v->instances_mean);
        stats_figure_json(w, "max", v->instances_max);
        json_object_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_role(struct json_writer *w, const struct report *r)
{
    json_key(w, "role");
    json_object(w);
    json_key(w, "reason");
    if (r->role_reason) {
        json_put_text(w, r->role_reason);
    } else {
        json_put_null(w);
    }
    stats_figure_json(w, "goodput_rps", r->role_rps);
    stats_figure_json(w, "runner_up_rps", r->role_runner_up_rps);
    json_object_end(w);
}

void report_json(const struct report *r, struct json_writer *w)
{
    json_object(w);
    put_requests(w, r);
    stats_quantiles_json(w, "ttft_s", &r->ttft_s);
    stats_quantiles_json(w, "tpot_s", &r->tpot_s);
    stats_quantiles_json(w, "itl_s", &r->itl_s);
    stats_quantiles_json(w, "jct_s", &r->jct_s);
    put_slo(w, &r->slo, r->attainment);
    stats_figure_json(w, "goodput_rps", r->goodput_rps);
    stats_figure_json(w, "token_hit_ratio", r->token_hit_ratio);
    stats_figure_json(w, "hotspot", r->hotspot);
    json_kv_u64(w, "preemptions", r->preemptions);
    json_kv_u64(w, "swaps", r->swaps);
    json_kv_u64(w, "handoffs", r->handoffs);
    json_kv_u64(w, "migrations", r->migrations);
    json_kv_u64(w, "migrations_dropped", r->migrations_dropped);
    json_kv_u64(w, "resumed", r->resumed);
    json_kv_u64(w, "resumed_tokens", r->resumed_tokens);
    json_kv_u64(w, "fetches", r->fetches);
    json_kv_u64(w, "fetched_tokens", r->fetched_tokens);
    stats_figure_json(w, "link_gb", r->link_gb);
    stats_figure_json(w, "stall_s", r->stall_s);
    json_key(w, "instances");
    json_object(w);
    stats_figure_json(w, "mean", r->instances_mean);
    stats_figure_json(w, "max", r->instances_max);
    stats_figure_json(w, "floor_mean", r->instances_floor_mean);
    json_object_end(w);
    put_services(w, r);
    stats_figure_json(w, "gpu_hours", r->gpu_hours);
    stats_figure_json(w, "cost_usd", r->cost_usd);
    stats_figure_json(w, "energy_kwh", r->energy_kwh);
    json_kv_u64(w, "scale_actions", r->scale_actions);
    json_kv_u64(w, "launches", r->launches);
    json_kv_u64(w, "launches_failed", r->launches_failed);
    json_kv_u64(w, "lost", r->lost);
    put_phases(w, r);
    json_kv_u64(w, "role_changes", r->role_changes);
    put_role(w, r);
    json_kv_u64(w, "breaker_trips", r->breaker_trips);
    json_kv_bool(w, "extrapolated", r->extrapolated);
    put_sim(w, r);
    json_object_end(w);
}

/* ---- for people ----------------------------------------------------------------------------- */

static void put_cell(struct buf *out, double value, int digits)
{
    if (isnan(value)) {
        buf_printf(out, " %10s", "-");
    } else {
        buf_printf(out, " %10.*f", digits, value);
    }
}

static void put_row(struct buf *out, const char *name, const struct stats_quantiles *q, int digits)
{
    buf_printf(out, "%-9s", name);
    put_cell(out, q->mean, digits);
    put_cell(out, q->p50, digits);
    put_cell(out, q->p90, digits);
    put_cell(out, q->p99, digits);
    buf_byte(out, '\n');
}

static void put_counts(struct buf *out, const struct report *r)
{
    buf_printf(out, "requests  %u offered, %u completed", r->offered, r->completed);
    if (r->rejected)
        buf_printf(out, ", %u rejected (429: %llu, 503: %llu)", r->rejected,
                   (unsigned long long)r->refused_429, (unsigned long long)r->refused_503);
    if (r->unfinished) buf_printf(out, ", %u unfinished", r->unfinished);
    if (r->too_long) buf_printf(out, ", %u too long", r->too_long);
    if (r->failed) buf_printf(out, ", %u failed", r->failed);
    buf_byte(out, '\n');
}

static void put_moves(struct buf *out, const struct report *r)
{
    if (r->resumed) {
        buf_printf(out, "resumed   %llu answers of instances that died, with %llu tokens\n",
                   (unsigned long long)r->resumed, (unsigned long long)r->resumed_tokens);
    }
    if (r->handoffs + r->migrations + r->migrations_dropped + r->fetches == 0) return;
    buf_printf(out, "moves     %llu handoffs, %llu migrations", (unsigned long long)r->handoffs,
               (unsigned long long)r->migrations);
    if (r->migrations_dropped)
        buf_printf(out, " (%llu given up)", (unsigned long long)r->migrations_dropped);
    if (r->fetches) {
        buf_printf(out, ", %llu fetches of %llu tokens", (unsigned long long)r->fetches,
                   (unsigned long long)r->fetched_tokens);
    }
    buf_printf(out, "; %.1f GB copied, %.3f s stood\n", r->link_gb, r->stall_s);
}

static void put_fleet(struct buf *out, const struct report *r)
{
    buf_printf(out, "fleet     %.2f instances, at most %.0f; %.3f GPU-hours", r->instances_mean,
               r->instances_max, r->gpu_hours);
    if (!isnan(r->instances_floor_mean))
        buf_printf(out, ", %.2f until back at its floor", r->instances_floor_mean);
    if (!isnan(r->cost_usd)) buf_printf(out, ", $%.2f", r->cost_usd);
    if (!isnan(r->energy_kwh)) buf_printf(out, ", %.2f kWh", r->energy_kwh);
    const struct {
        uint64_t count;
        const char *what;
    } rest[] = { { r->scale_actions, "scale actions" },
                 { r->launches, "launches" },
                 { r->launches_failed, "of them failed" },
                 { r->lost, "instances taken away" },
                 { r->role_changes, "changes of role" },
                 { r->breaker_trips, "looks with the breaker overdrawn" } };
    for (size_t i = 0; i < COUNT_OF(rest); i++)
        if (rest[i].count)
            buf_printf(out, ", %llu %s", (unsigned long long)rest[i].count, rest[i].what);
}

static void put_slo_row(struct buf *out, const struct report *r)
{
    buf_text(out, "SLO       ");
    if (isnan(r->slo.ttft_s) || isnan(r->slo.tpot_s)) {
        buf_text(out, "of each service");
    } else {
        buf_printf(out, "TTFT %g s, TPOT %g s", r->slo.ttft_s, r->slo.tpot_s);
    }
    buf_printf(out, ": %.2f %% met, goodput %.3f requests/s\n", 100 * r->attainment,
               r->goodput_rps);
}

/* Writes a row for each service, if there are several: a single one is the whole fleet, with its own lines. */
static void put_service_rows(struct buf *out, const struct report *r)
{
    for (uint32_t i = 0; i < r->service_count && r->service_count > 1; i++) {
        const struct report_service *v = &r->service[i];
        buf_printf(out, "service%-2u %u offered, %u completed; TTFT %g s, TPOT %g s", v->number,
                   v->offered, v->completed, v->slo.ttft_s, v->slo.tpot_s);
        if (!isnan(v->attainment)) buf_printf(out, ": %.2f %% met", 100 * v->attainment);
        buf_printf(out, "; %.2f instances, at most %.0f\n", v->instances_mean, v->instances_max);
    }
}

static void put_role_row(struct buf *out, const struct report *r)
{
    if (!r->role_reason) return;
    buf_printf(out, "\nroles     at last: %s", r->role_reason);
    if (!isnan(r->role_rps)) buf_printf(out, "; %.3f requests/s foreseen", r->role_rps);
    if (!isnan(r->role_runner_up_rps))
        buf_printf(out, ", %.3f by the next best", r->role_runner_up_rps);
}

int report_table(const struct report *r, struct buf *out)
{
    put_counts(out, r);
    buf_printf(out, "%-9s %10s %10s %10s %10s\n", "seconds", "mean", "p50", "p90", "p99");
    put_row(out, "TTFT", &r->ttft_s, 3);
    put_row(out, "TPOT", &r->tpot_s, 4);
    put_row(out, "ITL", &r->itl_s, 4);
    put_row(out, "JCT", &r->jct_s, 3);
    if (r->completed < r->offered) {
        buf_text(out,
                 "          (means over completed requests; in quantiles a miss is infinite)\n");
    }
    put_slo_row(out, r);
    put_service_rows(out, r);
    buf_printf(out, "cache     %.1f %% of prompt tokens hit; hotspot %.2f\n",
               100 * r->token_hit_ratio, r->hotspot);
    buf_printf(out, "engines   %llu steps, %llu preemptions, %llu swaps\n",
               (unsigned long long)r->steps, (unsigned long long)r->preemptions,
               (unsigned long long)r->swaps);
    put_moves(out, r);
    put_fleet(out, r);
    put_role_row(out, r);
    buf_printf(out, "\nsim       seed %llu, digest %016llx, %.2f s of CPU",
               (unsigned long long)r->seed, (unsigned long long)r->digest, r->cpu_s);
    if (r->cpu_s > 0) {
        buf_printf(out, ", %.0f requests a core-minute", 60 * r->offered / r->cpu_s);
    }
    buf_text(out, r->extrapolated ? "\nextrapolated: some step times come from no measured table "
                                    "(hardware, attention, links, ranges)\n"
                                  : "\n");
    return out->rc;
}
