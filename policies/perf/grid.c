/* grid.c - the policy `table`, which interpolates between seconds learnt at the knots of a grid.
 *
 *     step_s = sum over the 8 corners of weight(corner) * seconds[corner]
 *     axes: prompt tokens, decoding sessions, cached tokens read by each token of the step;
 *           weights are linear along each axis
 *
 * An observation moves the corners around it, each by its weight, so that the interpolated value
 * absorbs half of the error (normalised least mean squares). Knots start at the roofline model
 * where the hardware is known, else at the prior's coefficients. Beyond the last knot the seconds
 * are extrapolated linearly, as steps grow there.
 *
 * Source: LLMServingSim (IISWC 2024) and Vidur (MLSys 2024) interpolate in tables measured offline.
 * Ours is measured online by the engine's own steps, on three axes: a step with prefill and decode
 * counts the cached tokens of both together. */
#include "base/core/bits.h"
#include "policies/perf/linear.h"
#include "policies/perf/perf_model.h"

#include <math.h>
#include <string.h>

#define RATE 0.5 /* part of an error that is taken over at once: a table has no noise model */

static const double prompt_knot[] = { 0, 16, 64, 256, 1024, 4096 };
static const double seqs_knot[] = { 0, 1, 4, 16, 64, 256 };
static const double kv_knot[] = { 0, 128, 512, 2048, 8192, 32768 };
#define KNOTS 6

struct state {
    double seconds[KNOTS][KNOTS][KNOTS]; /* prompt, sessions, cached tokens */
    double samples, ratio_p90;
};

/* A place along an axis: between knot `low` and the next, `part` of the way. */
struct place {
    uint32_t low;
    double part; /* above 1 beyond the last knot */
};

static struct place place_of(const double knot[KNOTS], double v)
{
    uint32_t low = 0;
    while (low + 2 < KNOTS && v >= knot[low + 1])
        low++;
    return (struct place){ low, (v - knot[low]) / (knot[low + 1] - knot[low]) };
}

struct corner {
    uint32_t at[3];
    double weight;
};

static void corners_of(const struct perf_shape *shape, struct corner ret[8])
{
    double tokens = (double)shape->prefill_tokens + shape->decoding_seqs;
    const struct place place[3] = {
        place_of(prompt_knot, shape->prefill_tokens),
        place_of(seqs_knot, shape->decoding_seqs),
        place_of(kv_knot, (double)shape->kv_tokens_read / tokens),
    };
    for (uint32_t i = 0; i < 8; i++) {
        ret[i].weight = 1;
        for (uint32_t axis = 0; axis < 3; axis++) {
            uint32_t high = i >> axis & 1;
            ret[i].at[axis] = place[axis].low + high;
            ret[i].weight *= high ? place[axis].part : 1 - place[axis].part;
        }
    }
}

static struct perf_shape shape_at(uint32_t prompt, uint32_t seqs, uint32_t kv)
{
    double p = prompt_knot[prompt], s = seqs_knot[seqs], each = kv_knot[kv];
    return (struct perf_shape){ .prefill_tokens = (uint32_t)p,
                                .decoding_seqs = (uint32_t)s,
                                .prefill_chunks = p > 0,
                                .kv_tokens_decoding = (uint64_t)(s * each),
                                .kv_tokens_read = (uint64_t)((p + s) * each) };
}

static void init(void *state, const struct perf_setup *setup)
{
    struct state *t = state;
    struct perf_linear prior;
    memset(t, 0, sizeof *t);
    perf_linear_init(&prior, setup->prior);
    t->ratio_p90 = 1;
    for (uint32_t p = 0; p < KNOTS; p++) {
        for (uint32_t s = 0; s < KNOTS; s++) {
            for (uint32_t k = 0; k < KNOTS; k++) {
                struct perf_shape shape = shape_at(p, s, k);
                t->seconds[p][s][k] = setup->roofline ? roofline_step_s(setup->roofline, &shape)
                                                      : perf_step_s(&prior.coef, &shape);
            }
        }
    }
}

static double *cell(struct state *t, const struct corner *c)
{
    return &t->seconds[c->at[0]][c->at[1]][c->at[2]];
}

static double step_s(const void *state, const struct perf_shape *shape)
{
    const struct state *t = state;
    struct corner corner[8];
    double sum = 0;
    if (perf_shape_empty(shape)) return t->seconds[0][0][0];
    corners_of(shape, corner);
    for (int i = 0; i < 8; i++) {
        const uint32_t *at = corner[i].at;
        sum += corner[i].weight * t->seconds[at[0]][at[1]][at[2]];
    }
    return fmax(sum, 0);
}

static void observe(void *state, const struct perf_shape *shape, double seconds)
{
    struct state *t = state;
    struct corner corner[8];
    if (perf_shape_empty(shape) || !isfinite(seconds) || seconds <= 0) return;
    double expected = step_s(t, shape), power = 0;
    if (expected > 0) perf_track_p90(&t->ratio_p90, seconds / expected);
    t->samples += 1;
    corners_of(shape, corner);
    for (int i = 0; i < 8; i++)
        power += corner[i].weight * corner[i].weight;
    for (int i = 0; i < 8; i++) {
        double *at = cell(t, &corner[i]);
        *at = fmax(0, *at + RATE * (seconds - expected) * corner[i].weight / power);
    }
}

static void coef(const void *state, struct perf_coef *ret)
{
    const struct state *t = state;
    perf_surrogate(step_s, state, ROOFLINE_POINT_DEFAULT, ret);
    ret->samples = t->samples;
    ret->ratio_p90 = t->ratio_p90;
}

const struct perf_policy perf_grid = {
    .name = "table",
    .about = "seconds measured at the knots of a grid, interpolated",
    .source = "LLMServingSim, IISWC 2024; Vidur, MLSys 2024; measured online",
    .state_size = sizeof(struct state),
    .init = init,
    .observe = observe,
    .step_s = step_s,
    .coef = coef,
};
