/* effects.c - runs a table of effects and prints whether each holds. */
#include "tests/sim_gates/effects.h"

#include "base/core/bits.h"

#include <stdio.h>
#include <string.h>

static bool is_near(const struct gate *g, const struct gate *beside, const struct gate_effect *e)
{
    bool is_best = strcmp(e->against, GATE_BEST) == 0;
    const struct gate *other = is_best ? beside : g;
    const char *against = is_best ? gate_highest(beside, e->metric) : e->against;
    struct stats_mean behind = gate_shortfall(g, e->arm, other, against, e->metric);
    bool holds = behind.mean + behind.half <= e->behind_max;
    printf("%s %s behind %s, %s: %.1f +-%.1f %% (was %.1f), all of it below %g %% wanted\n",
           holds ? "     " : "MISS:", e->arm, against, e->metric, 100 * behind.mean,
           100 * behind.half, 100 * e->measured, 100 * e->behind_max);
    return holds;
}

static bool effect_holds(const struct gate *g, const struct gate_effect *e)
{
    struct stats_mean share = gate_share(g, e->arm, e->against, e->metric);
    bool holds =
        e->bound < 0 ? share.mean + share.half <= e->bound : share.mean - share.half >= e->bound;
    printf("%s %s against %s, %s: %+.1f +-%.1f %% (was %+.1f), all of it beyond %+g %% wanted\n",
           holds ? "     " : "MISS:", e->arm, e->against, e->metric, 100 * share.mean,
           100 * share.half, 100 * e->measured, 100 * e->bound);
    return holds;
}

/* Refuses a row without a bound, or without a measured value within it. */
static void check_row(const char *why, const struct gate_effect *e)
{
    must((e->bound != 0) != (e->behind_max > 0));
    bool within = e->measured < 0 && e->measured <= e->bound; /* a negative bound */
    if (e->bound > 0) within = e->measured >= e->bound;
    if (e->behind_max > 0) within = e->measured > 0 && e->measured <= e->behind_max;
    if (!within)
        fail_msg("%s: the bound of %s, %s, has no measured value within it", why, e->arm,
                 e->metric);
}

static void check_rows(const struct gate_effects *effects, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < GATE_EFFECTS_MAX && effects[i].effect[k].arm; k++)
            check_row(effects[i].why, &effects[i].effect[k]);
}

uint32_t gate_effects_missed(const struct gate_effects *effects, size_t count)
{
    uint32_t missed = 0;
    check_rows(effects, count);
    for (size_t i = 0; i < count; i++) {
        printf("\n%s\n", effects[i].why);
        struct gate g = gate_run(effects[i].command), beside = { 0 };
        if (effects[i].beside) beside = gate_run(effects[i].beside);
        for (size_t k = 0; k < GATE_EFFECTS_MAX && effects[i].effect[k].arm; k++) {
            const struct gate_effect *e = &effects[i].effect[k];
            missed += !(e->behind_max > 0 ? is_near(&g, &beside, e) : effect_holds(&g, e));
        }
        if (effects[i].beside) gate_free(&beside);
        gate_free(&g);
    }
    return missed;
}
