/* report_show.c - a report as JSON, and as a page for people. */
#include "base/core/bits.h"
#include "simulator/report.h"

#include <math.h>
#include <stdio.h>

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

/* The digest is text: a JSON number is a double to most who read it. */
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

static void put_slo(struct json_writer *w, const struct sim_promise *slo, double attainment)
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
    if (r->rejected) buf_printf(out, ", %u rejected", r->rejected);
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

/* One is the whole fleet, which has its own lines. */
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
