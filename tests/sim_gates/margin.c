/* margin.c - steps of four until one margin keeps the promise and one does not, then halves (of the
 * logarithm) between them. */
#include "tests/sim_gates/margin.h"

#include "base/core/bits.h"
#include "simulator/report.h"

#include <float.h>
#include <math.h>

#define STEP 4.0
#define NEAR 1.02 /* between two margins: there is nothing more to find */

struct margin_world margin_open(const char *command, double seconds, uint32_t seeds)
{
    struct margin_world w = { .gate = gate_prepare(command), .seeds = seeds };
    const struct sim_arm *arm = &w.gate.arms.arm[0];
    assert_int_equal(arm->config.pool_count, 1);
    w.trace = *arm->trace;
    while (w.trace.count > 0 && w.trace.request[w.trace.count - 1].at_us > (int64_t)(seconds * 1e6))
        w.trace.count--;
    w.start = arm->config.pool[0].count;
    return w;
}

void margin_close(struct margin_world *w)
{
    gate_free(&w->gate);
}

struct margin_point margin_at(const struct margin_world *w, const struct scale_policy *row,
                              double lead_s, double margin)
{
    const struct sim_arm *arm = &w->gate.arms.arm[0];
    struct margin_point p = { .margin = margin };
    for (uint32_t s = 0; s < w->seeds; s++) {
        struct sim_config c = arm->config;
        struct sim_control_setup scaling = arm->control;
        struct sim_result result;
        struct report report;
        struct err err = { 0 };
        c.seed += s;
        c.scaling = &scaling;
        c.pool[0].count = scaling.pool[0].start = w->start;
        scaling.policy = row;
        scaling.shaper = NULL;
        scaling.pool[0].lead_s = lead_s;
        scaling.scale.margin = margin;
        scaling.scale.count = (uint32_t)lround(w->start * margin);
        if (row == scale_find(STR("static")))
            c.pool[0].count = scaling.pool[0].start = scaling.scale.count;
        if (sim_run(&c, &w->trace, &result, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(report_make(&c, &result, &report), 0);
        p.attainment += report.attainment / w->seeds;
        p.cost += report.cost_usd / w->seeds;
        p.instances += report.instances_mean / w->seeds;
        sim_result_fini(&result);
    }
    return p;
}

bool margin_cheapest(const struct margin_world *w, const struct scale_policy *row, double lead_s,
                     uint32_t runs, struct margin_point *ret)
{
    double kept = 0, missed = 0; /* the least that keeps the promise, the most that does not */
    struct margin_point best = { .cost = DBL_MAX };
    for (uint32_t i = 0; i < runs; i++) {
        double margin = 1;
        if (kept > 0 && missed > 0) margin = sqrt(kept * missed);
        if (kept > 0 && !(missed > 0)) margin = kept / STEP;
        if (missed > 0 && !(kept > 0)) margin = missed * STEP;
        struct margin_point p = margin_at(w, row, lead_s, margin);
        bool keeps = p.attainment >= MARGIN_ATTAINMENT;
        *(keeps ? &kept : &missed) = margin;
        if (keeps && p.cost < best.cost) best = p;
        if (kept > 0 && missed > 0 && kept < missed * NEAR) break;
    }
    *ret = best;
    return best.cost < DBL_MAX;
}

struct margin_point margin_best_static(struct margin_world *w)
{
    const struct scale_policy *row = scale_find(STR("static"));
    struct margin_point p = margin_at(w, row, 0, 1), next;
    for (; p.attainment < MARGIN_ATTAINMENT; p = margin_at(w, row, 0, 1))
        w->start++;
    for (; w->start > 1; p = next) {
        w->start--;
        next = margin_at(w, row, 0, 1);
        if (next.attainment >= MARGIN_ATTAINMENT) continue;
        w->start++;
        break;
    }
    return p;
}
