/* demo_summary.c - build/demo/summary.json, the closing table, and the verdict.
 *
 * `requests` to `slo` are of the growing phase; `length_prediction` is over every request of the
 * demo, because the predictor learns through all of it; `by_policy` is of the comparison.
 */
#include "base/core/bits.h"
#include "cli/demo.h"
#include "policies/route.h"

#include <stdio.h>
#include <stdlib.h>

static int report_of(const struct demo *d, const struct demo_samples *s, struct load_report *ret)
{
    struct load_slo slo = { d->status.slo_ttft_s, d->status.slo_tpot_s };
    return load_report_make(s->sample, s->count, NULL, NULL, s->itl_s, s->itl_count, slo, ret);
}

/* All samples, for the judgement of length predictions. */
static int report_of_all(const struct demo *d, struct load_report *ret)
{
    const struct demo_samples *part[] = { &d->growth, &d->arm[0], &d->arm[1] };
    struct demo_samples all = { 0 };
    uint32_t count = d->growth.count + d->arm[0].count + d->arm[1].count;
    all.sample = malloc((count + 1) * sizeof *all.sample);
    if (!all.sample) return -ENOMEM;
    for (uint32_t i = 0; i < COUNT_OF(part); i++) {
        if (part[i]->count == 0) continue;
        memcpy(all.sample + all.count, part[i]->sample, part[i]->count * sizeof *all.sample);
        all.count += part[i]->count;
    }
    int rc = report_of(d, &all, ret);
    free(all.sample);
    return rc;
}

struct reports {
    struct load_report growth, all, arm[DEMO_ARMS];
};

static int reports_make(const struct demo *d, struct reports *ret)
{
    int rc = report_of(d, &d->growth, &ret->growth);
    if (rc == 0) rc = report_of_all(d, &ret->all);
    for (uint32_t i = 0; rc == 0 && i < DEMO_ARMS; i++)
        rc = report_of(d, &d->arm[i], &ret->arm[i]);
    return rc;
}

static void put_events(struct json_writer *w, const struct demo *d)
{
    json_key(w, "scale_events");
    json_array(w);
    for (uint32_t i = 0; i < d->fleet.event_count; i++) {
        const struct fleet_event *e = &d->fleet.event[i];
        json_object(w);
        json_kv_f64(w, "t_s", (double)((e->at_us - d->started_wall_us) / 1000) * 1e-3);
        json_kv_text(w, "pool", e->pool);
        json_kv_u64(w, "from", e->from);
        json_kv_u64(w, "to", e->to);
        json_kv_text(w, "reason", e->reason);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_fleet(struct json_writer *w, const struct demo *d)
{
    json_key(w, "instances");
    json_object(w);
    json_kv_u64(w, "start", d->start_instances);
    json_kv_u64(w, "max", d->max_instances);
    json_kv_u64(w, "end", d->end_instances);
    json_object_end(w);
    put_events(w, d);
    json_key(w, "cost");
    json_object(w);
    json_kv_f64(w, "total", d->grown_cost);
    json_kv_f64(w, "static_max", d->static_max_per_h * d->grown_hours);
    json_object_end(w);
}

int demo_summary_write(const struct demo *d, struct err *err)
{
    struct reports r;
    int rc = reports_make(d, &r);
    if (rc < 0) return err_set(err, rc, "no memory for the summary");

    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    load_requests_json(&w, &r.growth);
    load_tokens_json(&w, &r.growth);
    stats_quantiles_json(&w, "ttft_s", &r.growth.ttft_s);
    stats_quantiles_json(&w, "tpot_s", &r.growth.tpot_s);
    load_slo_json(&w, &r.growth);
    put_fleet(&w, d);
    json_key(&w, "length_prediction");
    json_object(&w);
    json_kv_f64(&w, "concordance", r.all.concordance);
    json_kv_f64(&w, "p90_coverage", r.all.p90_coverage);
    json_object_end(&w);
    json_key(&w, "by_policy");
    json_object(&w);
    for (uint32_t i = 0; i < DEMO_ARMS; i++) {
        json_key(&w, demo_arm_policy[i]);
        json_object(&w);
        load_requests_json(&w, &r.arm[i]);
        stats_quantiles_json(&w, "ttft_s", &r.arm[i].ttft_s);
        load_tokens_json(&w, &r.arm[i]);
        json_object_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
    buf_byte(&out, '\n');
    if (out.rc < 0) return err_set(err, out.rc, "no memory for the summary");
    return file_write_atomic(d->options->summary, buf_view(&out), 0644, err);
}

static void print_row(const char *name, const struct load_report *r)
{
    printf("  %-14s %5u %5u   %7.3f %7.3f %7.3f   %7.1f   %8llu %8llu\n", name, r->ok, r->failed,
           r->ttft_s.mean, r->ttft_s.p50, r->ttft_s.p99, 1e3 * r->tpot_s.p50,
           (unsigned long long)r->prompt_tokens, (unsigned long long)r->cached_tokens);
}

int demo_summary_print(const struct demo *d)
{
    struct reports r;
    int rc = reports_make(d, &r);
    if (rc < 0) return rc;
    printf("\n  %-14s %5s %5s   %7s %7s %7s   %7s   %8s %8s\n", "", "ok", "fail", "TTFT", "p50",
           "p99 s", "TPOT ms", "prompt", "cached");
    print_row("growing fleet", &r.growth);
    for (uint32_t i = 0; i < DEMO_ARMS; i++)
        print_row(demo_arm_policy[i], &r.arm[i]);
    printf("\n  instances      %u -> %u -> %u\n", d->start_instances, d->max_instances,
           d->end_instances);
    printf("  cost           $%.5f; the largest fleet all the time: $%.5f\n", d->grown_cost,
           d->static_max_per_h * d->grown_hours);
    printf("  within the SLO %.1f %% (TTFT %.1f s, TPOT %.0f ms)\n", 100 * r.growth.attainment,
           r.growth.slo.ttft_s, 1e3 * r.growth.slo.tpot_s);
    if (r.all.concordance >= 0) {
        printf("  output lengths %.2f of pairs ordered rightly, %.2f within P90\n",
               r.all.concordance, r.all.p90_coverage);
    }
    printf("  summary        %s\n", d->options->summary);
    return 0;
}

static uint32_t check(bool holds, const char *sentence)
{
    if (!holds) printf("  NOT AS EXPECTED: %s\n", sentence);
    return !holds;
}

uint32_t demo_summary_judge(const struct demo *d)
{
    struct reports r;
    if (reports_make(d, &r) < 0) return check(false, "there was no memory to judge");
    uint32_t problems = 0;
    problems += check(r.growth.failed + r.arm[0].failed + r.arm[1].failed == 0, "a request failed");
    problems += check(d->start_instances == 1, "the fleet did not start with one instance");
    problems += check(d->max_instances >= 3, "the fleet did not grow to three instances");
    problems += check(d->end_instances == 1, "the fleet did not shrink to one instance");
    problems += check(r.arm[0].cached_tokens > r.arm[1].cached_tokens,
                      ROUTE_DEFAULT " did not find more tokens cached than round_robin");
    problems += check(r.arm[0].ttft_s.mean < r.arm[1].ttft_s.mean,
                      ROUTE_DEFAULT " did not have a lower mean TTFT than round_robin");
    return problems;
}
