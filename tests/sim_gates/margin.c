/* margin.c - searches margins: it multiplies or divides by STEP until one margin keeps the SLO and one
 * does not, then halves the interval between them (of the logarithm). */
#include "tests/sim_gates/margin.h"

#include "base/core/bits.h"
#include "simulator/report.h"
#include "simulator/sim.h"

#include <float.h>
#include <math.h>

#define STEP 1.5
#define POINTS_MAX 12
#define NEAR 1.01 /* a ratio of two margins at which the search ends */

struct margin_bed margin_open(const char *command, double seconds)
{
    struct margin_bed b = { .gate = gate_prepare(command) };
    const struct sim_arm *arm = &b.gate.arms.arm[0];
    assert_int_equal(arm->config.pool_count, 1);
    b.trace = *arm->trace;
    while (b.trace.count > 0 && b.trace.request[b.trace.count - 1].at_us > (int64_t)(seconds * 1e6))
        b.trace.count--;
    b.start = arm->config.pool[0].count;
    return b;
}

void margin_close(struct margin_bed *b)
{
    gate_free(&b->gate);
}

static bool is_static(const struct scale_policy *policy)
{
    return policy == scale_find(STR("static"));
}

/* Simulates one point. A run with more misses than misses_max (0: no limit) stops there, and its cost
 * means nothing. */
static struct margin_point point(const struct margin_bed *b, const struct scale_policy *policy,
                                 double lead_s, uint64_t seed, double margin, uint32_t misses_max)
{
    const struct sim_arm *arm = &b->gate.arms.arm[0];
    struct sim_config c = arm->config;
    struct sim_control_setup scaling = arm->control;
    struct sim_control_service *own = &scaling.service[0];
    struct sim_result result;
    struct report report;
    struct err err = { 0 };
    c.seed = seed;
    c.misses_max = misses_max;
    c.scaling = &scaling;
    c.pool[0].count = scaling.pool[0].start = b->start;
    own->policy = policy;
    own->shaper = NULL;
    scaling.pool[0].lead_s = lead_s;
    own->scale.margin = margin;
    own->scale.count = (uint32_t)lround(b->start * margin);
    if (is_static(policy)) c.pool[0].count = scaling.pool[0].start = own->scale.count;
    if (sim_run(&c, &b->trace, &result, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(report_make(&c, &result, &report), 0);
    sim_result_fini(&result);
    return (struct margin_point){ .margin = margin,
                                  .attainment = report.attainment,
                                  .cost = report.cost_usd,
                                  .instances = report.instances_mean };
}

struct margin_point margin_at(const struct margin_bed *b, const struct scale_policy *policy,
                              double lead_s, uint64_t seed, double margin)
{
    return point(b, policy, lead_s, seed, margin, 0);
}

/* Returns the next margin to try. `kept` is the least that keeps the SLO, `missed` the most that does
 * not; 0: none yet. */
static double next_margin(const struct margin_bed *b, bool whole, double kept, double missed)
{
    if (whole && kept > 0) return kept - 1.0 / b->start;
    if (whole && missed > 0) return missed + 1.0 / b->start;
    if (kept > 0 && missed > 0) return sqrt(kept * missed);
    if (kept > 0) return kept / STEP;
    return missed > 0 ? missed * STEP : 1;
}

bool margin_cheapest(const struct margin_bed *b, const struct scale_policy *policy, double lead_s,
                     uint64_t seed, uint32_t runs, double rival, struct margin_point *ret)
{
    double kept = 0, missed = 0; /* the least that keeps the SLO, the most that does not */
    struct margin_point best = { .cost = DBL_MAX };
    uint32_t misses_max = (uint32_t)((1 - MARGIN_ATTAINMENT) * b->trace.count);
    for (uint32_t i = 0; i < POINTS_MAX; i++) {
        if (i >= runs && best.cost * missed >= rival * kept) break;
        double margin = next_margin(b, is_static(policy), kept, missed);
        struct margin_point p = point(b, policy, lead_s, seed, margin, misses_max);
        bool keeps = p.attainment >= MARGIN_ATTAINMENT;
        *(keeps ? &kept : &missed) = margin;
        if (keeps && p.cost < best.cost) best = p;
        if (kept > 0 && missed > 0 && (is_static(policy) || kept < missed * NEAR)) break;
    }
    *ret = best;
    return best.cost < DBL_MAX;
}
