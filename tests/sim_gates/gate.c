/* gate.c - parses command lines, runs their arms and computes figures over the seeds. */
#include "tests/sim_gates/gate.h"

#include "base/core/bits.h"
#include "tests/sim_gates/judged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS_MAX 128
#define SEEDS_MAX 1000

static const struct opt_command usage = { .name = "gate", .options = &sim_options_record };

static int cut_words(char *text, char **ret)
{
    int count = 0;
    for (char *at = text; *at;) {
        at += strspn(at, " ");
        if (!*at) break;
        assert_true(count < WORDS_MAX);
        ret[count++] = at;
        at += strcspn(at, " ");
        if (*at) *at++ = '\0';
    }
    return count;
}

struct gate gate_prepare(const char *command)
{
    struct gate g = { .words = strdup(command) };
    struct err err = { 0 };
    char *word[WORDS_MAX];
    assert_non_null(g.words);
    int count = cut_words(g.words, word);
    printf("\nmuster simulate %s\n", command);
    int rc = opt_parse(&usage, count, word, &g.options, &g.parsed, &err);
    if (rc == 0) rc = sim_arms_init(&g.arms, &usage, count, word, &g.options, &err);
    if (rc == 0) rc = sim_arms_load(&g.arms, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    return g;
}

void gate_go(struct gate *g)
{
    struct err err = { 0 };
    int rc = sim_arms_run(&g->arms, (uint32_t)g->options.jobs, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(sim_arms_table(&g->arms, &out), 0);
    fputs(out.data, stdout);
}

struct gate gate_run(const char *command)
{
    struct gate g = gate_prepare(command);
    gate_go(&g);
    return g;
}

void gate_free(struct gate *g)
{
    sim_arms_fini(&g->arms);
    opt_parsed_fini(&g->parsed);
    free(g->words);
}

static const struct report_metric *metric_of(const char *name)
{
    for (uint32_t i = 0; i < report_metric_count; i++)
        if (strcmp(report_metrics[i].name, name) == 0) return &report_metrics[i];
    fail_msg("no figure '%s'", name);
    return NULL;
}

static const struct sim_arm *arm_of(const struct gate *g, const char *name)
{
    if (!name) name = g->arms.arm[0].name.data;
    if (name) judged_add(name);
    for (uint32_t i = 0; name && i < g->arms.count; i++)
        if (str_eq(buf_view(&g->arms.arm[i].name), str_from(name))) return &g->arms.arm[i];
    if (name) fail_msg("no arm '%s'", name);
    return &g->arms.arm[0];
}

static void values(const struct gate *g, const struct sim_arm *arm, const char *metric,
                   double ret[SEEDS_MAX])
{
    const struct report_metric *m = metric_of(metric);
    for (uint32_t s = 0; s < g->arms.seeds; s++)
        ret[s] = m->value(&arm->run[s]);
}

struct stats_mean gate_mean(const struct gate *g, const char *arm, const char *metric)
{
    double value[SEEDS_MAX];
    values(g, arm_of(g, arm), metric, value);
    return stats_mean(value, g->arms.seeds);
}

struct stats_mean gate_difference(const struct gate *g, const char *arm, const char *metric)
{
    double value[SEEDS_MAX], base[SEEDS_MAX];
    values(g, arm_of(g, arm), metric, value);
    values(g, arm_of(g, NULL), metric, base);
    return stats_paired(value, base, g->arms.seeds);
}

struct stats_mean gate_shortfall(const struct gate *g, const char *arm, const struct gate *h,
                                 const char *against, const char *metric)
{
    double value[SEEDS_MAX], base[SEEDS_MAX];
    assert_int_equal(g->arms.seeds, h->arms.seeds);
    values(g, arm_of(g, arm), metric, value);
    values(h, arm_of(h, against), metric, base);
    double mean = stats_mean(base, g->arms.seeds).mean;
    for (uint32_t s = 0; s < g->arms.seeds; s++)
        value[s] = fmax(base[s] - value[s], 0) / mean;
    return stats_mean(value, g->arms.seeds);
}

struct stats_mean gate_share(const struct gate *g, const char *arm, const char *against,
                             const char *metric)
{
    double value[SEEDS_MAX], base[SEEDS_MAX];
    values(g, arm_of(g, arm), metric, value);
    values(g, arm_of(g, against), metric, base);
    for (uint32_t s = 0; s < g->arms.seeds; s++)
        value[s] = (value[s] - base[s]) / base[s];
    return stats_mean(value, g->arms.seeds);
}

const char *gate_highest(const struct gate *g, const char *metric)
{
    const char *best = NULL;
    for (uint32_t i = 0; i < g->arms.count; i++) {
        const char *name = g->arms.arm[i].name.data;
        if (!best || gate_mean(g, name, metric).mean > gate_mean(g, best, metric).mean) best = name;
    }
    return best;
}

void gate_within(const char *what, double value, double wanted, double share)
{
    printf("%s: %.4g, wanted %.4g within %.0f %%\n", what, value, wanted, 100 * share);
    if (!(fabs(value - wanted) <= share * fabs(wanted)))
        fail_msg("%s: %.4g is not within %.0f %% of %.4g", what, value, 100 * share, wanted);
}

void gate_below(const char *what, double value, double bound)
{
    printf("%s: %.4g, wanted at most %.4g\n", what, value, bound);
    if (!(value <= bound)) fail_msg("%s: %.4g is above %.4g", what, value, bound);
}

void gate_above(const char *what, double value, double bound)
{
    printf("%s: %.4g, wanted at least %.4g\n", what, value, bound);
    if (!(value >= bound)) fail_msg("%s: %.4g is below %.4g", what, value, bound);
}

void gate_interval_below(const char *what, struct stats_mean value, double bound)
{
    printf("%s: %.4g +-%.2g, all of it wanted at most %.4g\n", what, value.mean, value.half, bound);
    if (!(value.mean + value.half <= bound))
        fail_msg("%s: %.4g +-%.2g reaches above %.4g", what, value.mean, value.half, bound);
}

void gate_interval_above(const char *what, struct stats_mean value, double bound)
{
    printf("%s: %.4g +-%.2g, all of it wanted at least %.4g\n", what, value.mean, value.half,
           bound);
    if (!(value.mean - value.half >= bound))
        fail_msg("%s: %.4g +-%.2g reaches below %.4g", what, value.mean, value.half, bound);
}
