/* demo_summary.c - write build/demo/summary.json, print the closing table, and judge the demo.
 *
 * `requests` to `slo` cover the growing phase, `phases` has the same before, while and after the fleet
 * grew; `length_prediction` covers every request of the demo, because the predictor learns through all
 * of it; `by_policy` covers the comparison.
 */
#include "base/core/bits.h"
#include "cli/demo/demo.h"
#include "policies/route/route.h"

#include <stdio.h>
#include <stdlib.h>

#define ATTAINED 0.95 /* attainment expected of requests due once the fleet has grown */
#define AHEAD 0.9     /* mean TTFT of the default over the other's: a visible margin */

static struct load_slo slo_of(const struct demo *d)
{
    return (struct load_slo){ d->status.slo_ttft_s, d->status.slo_tpot_s };
}

static int report_of(const struct demo *d, const struct demo_samples *s, struct load_report *ret)
{
    return load_report_make(s->sample, s->count, NULL, NULL, s->itl_s, s->itl_count, slo_of(d),
                            ret);
}

struct phase_filter {
    const struct demo *demo;
    enum demo_phase phase;
};

static bool is_of_phase(void *arg, uint32_t index)
{
    const struct phase_filter *f = arg;
    return demo_phase_of(f->demo, f->demo->growth.sample[index].due_us) == f->phase;
}

/* Makes the report of all samples, which judges the length predictions. */
static int report_of_all(const struct demo *d, struct load_report *ret)
{
    const struct demo_samples *part[DEMO_ARMS + 1] = { &d->growth };
    struct demo_samples all = { 0 };
    uint32_t count = d->growth.count;
    for (uint32_t i = 0; i < DEMO_ARMS; i++) {
        part[i + 1] = &d->arm[i];
        count += d->arm[i].count;
    }
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
    struct load_report growth, phase[DEMO_PHASES], all, arm[DEMO_ARMS];
};

static int reports_make(const struct demo *d, struct reports *ret)
{
    int rc = report_of(d, &d->growth, &ret->growth);
    for (uint32_t i = 0; rc == 0 && i < DEMO_PHASES; i++) {
        struct phase_filter filter = { d, i };
        rc = load_report_make(d->growth.sample, d->growth.count, is_of_phase, &filter, NULL, 0,
                              slo_of(d), &ret->phase[i]);
    }
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

static void put_phases(struct json_writer *w, const struct reports *r)
{
    json_key(w, "phases");
    json_object(w);
    for (uint32_t i = 0; i < DEMO_PHASES; i++) {
        json_key(w, demo_phase_name[i]);
        json_object(w);
        load_requests_json(w, &r->phase[i]);
        stats_quantiles_json(w, "ttft_s", &r->phase[i].ttft_s);
        stats_quantiles_json(w, "tpot_s", &r->phase[i].tpot_s);
        load_slo_json(w, &r->phase[i]);
        json_object_end(w);
    }
    json_object_end(w);
}

static void put_machine(struct json_writer *w, const struct demo *d)
{
    json_key(w, "machine");
    json_object(w);
    json_kv_f64(w, "cores", d->machine.cores);
    json_kv_f64(w, "step_s", d->machine.step_s);
    json_kv_f64(w, "prefill_token_s", d->machine.prefill_token_s);
    json_kv_f64(w, "decode_seq_s", d->machine.decode_seq_s);
    json_kv_f64(w, "share", d->sizing.share);
    json_kv_u64(w, "prompt_tokens_max", d->sizing.lengths.tokens_max);
    json_kv_f64(w, "growth_speed", d->growth_speed);
    json_kv_f64(w, "arm_speed", d->arm_speed);
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
    put_phases(&w, &r);
    put_fleet(&w, d);
    put_machine(&w, d);
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
    return file_write_atomic(d->options->summary.data, buf_view(&out), 0644, err);
}

static void print_row(const char *name, const struct load_report *r)
{
    printf("  %-16s %5u %5u   %7.3f %7.3f %7.3f   %7.1f  %6.1f   %8llu %8llu\n", name, r->ok,
           r->failed, r->ttft_s.mean, r->ttft_s.p50, r->ttft_s.p99, 1e3 * r->tpot_s.p50,
           100 * r->attainment, (unsigned long long)r->prompt_tokens,
           (unsigned long long)r->cached_tokens);
}

int demo_summary_print(const struct demo *d)
{
    static const char *const phase[DEMO_PHASES] = { "before growth", "while it grows",
                                                    "once grown" };
    struct reports r;
    int rc = reports_make(d, &r);
    if (rc < 0) return rc;
    printf("\n  %-16s %5s %5s   %7s %7s %7s   %7s  %6s   %8s %8s\n", "", "ok", "fail", "TTFT",
           "p50", "p99 s", "TPOT ms", "SLO %", "prompt", "cached");
    for (uint32_t i = 0; i < DEMO_PHASES; i++)
        print_row(phase[i], &r.phase[i]);
    printf("\n");
    for (uint32_t i = 0; i < DEMO_ARMS; i++)
        print_row(demo_arm_policy[i], &r.arm[i]);
    printf("\n  instances      %u -> %u -> %u\n", d->start_instances, d->max_instances,
           d->end_instances);
    printf("  cost           $%.5f; the largest fleet all the time: $%.5f\n", d->grown_cost,
           d->static_max_per_h * d->grown_hours);
    printf("  SLO            TTFT %.1f s, TPOT %.0f ms\n", r.growth.slo.ttft_s,
           1e3 * r.growth.slo.tpot_s);
    printf("  mean TTFT      " ROUTE_DEFAULT " %+.0f %% against %s\n",
           100 * (r.arm[DEMO_OURS].ttft_s.mean / r.arm[DEMO_THEIRS].ttft_s.mean - 1),
           demo_arm_policy[DEMO_THEIRS]);
    if (r.all.concordance >= 0) {
        printf("  output lengths %.2f of pairs ordered rightly, %.2f within P90\n",
               r.all.concordance, r.all.p90_coverage);
    }
    printf("  summary        %s\n", d->options->summary.data);
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
    const struct load_report *ours = &r.arm[DEMO_OURS], *theirs = &r.arm[DEMO_THEIRS];
    uint32_t problems = 0, failed = r.growth.failed;
    for (uint32_t i = 0; i < DEMO_ARMS; i++)
        failed += r.arm[i].failed;
    problems += check(failed == 0, "a request failed");
    problems += check(d->start_instances == 1, "the fleet did not start with one instance");
    problems += check(d->max_instances >= 3, "the fleet did not grow to three instances");
    problems += check(d->end_instances == 1, "the fleet did not shrink to one instance");
    problems += check(r.phase[DEMO_AFTER].attainment >= ATTAINED,
                      "the grown fleet kept the SLO for less than 95 % of the requests");
    problems += check(ours->ttft_s.mean < AHEAD * theirs->ttft_s.mean,
                      ROUTE_DEFAULT "'s mean TTFT is not below round_robin's by a tenth");
    return problems;
}
