/* t_trail.c - tests TRAIL's length predictor against numpy (tests/vectors/trail): the classifier and its training,
 * the refinement of running outputs, and the merge of two predictors. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "policies/predict/predict.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRAILS 2
#define BINS 10
#define SIXTEENTHS 16.0f /* of a state's numbers in trail.bin */

/* numpy learns in float64, trail.c keeps weights and histograms in float32: measured 2.5e-5 of a length and 8.2e-6
 * of a share. */
#define LENGTH_OFF 1e-4 /* relative */
#define SHARE_OFF 1e-4  /* of a probability or an evidence */

struct player {
    const struct predict_policy *policy;
    void *state[TRAILS];
    struct buf states; /* 8-bit numbers, PREDICT_HIDDEN_DIMS a state */
    float hidden[PREDICT_HIDDEN_DIMS];
    struct predict_features features;
    struct predict_posterior posterior; /* of the output that runs */
    double length_off, share_off;       /* the largest so far */
    uint32_t line, decided, looked;
};

/* Reads the next number of a line. */
static double next(struct player *p, char **at)
{
    char *end;
    double value = strtod(*at, &end);
    if (end == *at) fail_msg("line %u of trail.txt has too few numbers", p->line);
    *at = end;
    return value;
}

static void *next_trail(struct player *p, char **at)
{
    uint32_t which = (uint32_t)next(p, at);
    must(which < TRAILS);
    return p->state[which];
}

/* Takes the state that the line names as the features' own; -1 is none. */
static void next_state(struct player *p, char **at)
{
    double place = next(p, at);
    p->features = (struct predict_features){ .posterior = &p->posterior };
    if (place < 0) return;
    const int8_t *number = (const int8_t *)p->states.data + (size_t)place * PREDICT_HIDDEN_DIMS;
    must(((size_t)place + 1) * PREDICT_HIDDEN_DIMS <= p->states.len);
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
        p->hidden[d] = (float)number[d] / SIXTEENTHS;
    p->features.hidden = p->hidden;
}

static void same_length(struct player *p, const char *what, double got, char **at)
{
    double want = next(p, at), off = fabs(got - want) / want;
    p->length_off = fmax(p->length_off, off);
    if (!(off <= LENGTH_OFF)) fail_msg("line %u: %s is %.9g, not %.9g", p->line, what, got, want);
}

static void same_shares(struct player *p, const char *what, const float *got, char **at)
{
    for (uint32_t b = 0; b < BINS; b++) {
        double want = next(p, at), off = fabs((double)got[b] - want);
        p->share_off = fmax(p->share_off, off);
        if (!(off <= SHARE_OFF))
            fail_msg("line %u: %s of bin %u is %.9g, not %.9g", p->line, what, b, (double)got[b],
                     want);
    }
}

/* Predicts at the end of a prompt. */
static void decide(struct player *p, char *at)
{
    const void *trail = next_trail(p, &at);
    struct predict_verdict v;
    next_state(p, &at);
    p->features.output_max = (uint32_t)next(p, &at);
    p->policy->decide(trail, &p->features, &v);
    same_length(p, "mean", v.mean, &at);
    same_length(p, "P50", v.p50, &at);
    same_length(p, "P90", v.p90, &at);
    same_shares(p, "probability", p->posterior.share, &at);
    p->decided++;
}

/* Refines by a state of the running output. */
static void look(struct player *p, char *at)
{
    const void *trail = next_trail(p, &at);
    next_state(p, &at);
    p->features.hidden_at = (uint32_t)next(p, &at);
    p->features.output_max = (uint32_t)next(p, &at);
    double left = predict_remaining(p->policy, trail, &p->features, p->features.hidden_at);
    same_length(p, "rest", left, &at);
    same_shares(p, "evidence", p->posterior.share + BINS, &at);
    p->looked++;
}

static void learn_end(struct player *p, char *at)
{
    void *trail = next_trail(p, &at);
    next_state(p, &at);
    uint32_t tokens = (uint32_t)next(p, &at);
    p->policy->observe(trail, &p->features, tokens, next(p, &at) > 0);
}

static void learn_look(struct player *p, char *at)
{
    void *trail = next_trail(p, &at);
    next_state(p, &at);
    p->features.hidden_at = (uint32_t)next(p, &at);
    uint32_t tokens = (uint32_t)next(p, &at);
    p->policy->observe_look(trail, &p->features, tokens, next(p, &at) > 0);
}

static void merge(struct player *p, char *at)
{
    void *into = next_trail(p, &at);
    p->policy->merge(into, next_trail(p, &at));
}

static void play(struct player *p, char *line)
{
    static const struct {
        const char *name;
        void (*play)(struct player *p, char *at);
    } kind[] = {
        { "decide ", decide },       { "look ", look },   { "end ", learn_end },
        { "end_look ", learn_look }, { "merge ", merge },
    };
    for (size_t k = 0; k < COUNT_OF(kind); k++) {
        if (!str_starts(str_from(line), str_from(kind[k].name))) continue;
        kind[k].play(p, line + strlen(kind[k].name));
        return;
    }
    fail_msg("line %u of trail.txt begins with no known word", p->line);
}

static void numpy_predicts_and_learns_alike(void **state)
{
    (void)state;
    struct player p = { .policy = predict_find(STR("trail")) };
    char line[512];
    read_file("tests/vectors/trail/trail.bin", &p.states);
    for (uint32_t i = 0; i < TRAILS; i++) {
        p.state[i] = calloc(1, p.policy->state_size);
        must(p.state[i]);
        p.policy->init(p.state[i]);
    }
    FILE *text = fopen("tests/vectors/trail/trail.txt", "r");
    if (!text) fail_msg("trail.txt ships with the tests");
    while (fgets(line, sizeof line, text)) {
        p.line++;
        play(&p, line);
    }
    fclose(text);
    print_message("%u predictions and %u refinements differ by at most %.1e of a length, %.1e of a "
                  "share\n",
                  p.decided, p.looked, p.length_off, p.share_off);
    assert_int_equal(p.decided, 212);
    assert_true(p.looked > 400);
    for (uint32_t i = 0; i < TRAILS; i++)
        free(p.state[i]);
    buf_fini(&p.states);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(numpy_predicts_and_learns_alike) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
