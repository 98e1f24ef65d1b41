/* fluid.c - a fleet followed as a fluid with chance about it. */
#include "policies/scale/parts/fluid.h"

#include <float.h>
#include <math.h>

#define RHO_MAX 0.98    /* share of its time that an instance may give to prompts */
#define SHORT_SHARE 0.5 /* of the mean answer: the short ones are late first */
#define NOBODY 1e-3     /* instances; fractions above it serve in proportion */
#define HALF_STEP 0.5   /* that passes before the first chunk */

/* Sessions an instance may have before its steps take longer than TPOT, at r prompts a second. */
static double tpot_sessions(const struct scale_load *l, double tpot_slo_s, double r)
{
    double left = fmax(1 - r * l->prefill_s, 1 - RHO_MAX);
    return fmax((tpot_slo_s * left - l->step_s) / fmax(l->seq_s, DBL_MIN), 0);
}

/* Phi(-z). */
static double tail(double z)
{
    return 0.5 * erfc(z * M_SQRT1_2);
}

/* Share of requests in whose life more prompts come than leave TPOT for the steps. */
static double answer_late(const struct fluid_ask *a, double n, double r, double batch)
{
    const struct scale_load *l = a->load;
    double left = a->tpot_slo_s * (1 - r * l->prefill_s) - l->step_s - l->seq_s * batch;
    double prompts = r * l->prefill_s * l->prefill_s * (1 + l->prefill_scv);
    double life_s = fmax(SHORT_SHARE * l->output * a->tpot_slo_s, DBL_MIN);
    double spread = a->tpot_slo_s * sqrt(prompts / life_s / sqrt(fmax(n, 1)));
    return tail(left / fmax(spread, DBL_MIN));
}

/* Share of requests whose prompt waits longer than the promise leaves. */
static double prompt_late(const struct fluid_ask *a, double n, double r, double batch)
{
    const struct scale_load *l = a->load;
    double s = scale_load_prompt_s(l, batch, HALF_STEP);
    double rho = fmin(r * s, RHO_MAX), x = a->ttft_slo_s - s;
    if (x <= 0) return 1;
    double busy = pow(rho, sqrt(2 * (n + 1)));
    return busy * exp(-x * 2 * n * (1 - rho) / (s * (1 + l->prefill_scv)));
}

/* Where the fluid is at the end of a step. */
struct flow {
    double sessions, waiting;
    double out; /* ended a second */
};

/* Sessions of all that fit. */
static double room_of(const struct fluid_ask *a, double n, double r)
{
    return n * fmin(a->load->seqs_max, tpot_sessions(a->load, a->tpot_slo_s, r));
}

/* A step in which `rate` a second arrive at n instances. */
static void advance(const struct fluid_ask *a, struct flow *f, double n, double rate)
{
    const struct scale_load *l = a->load;
    if (n < NOBODY) {
        f->waiting += rate * FLUID_STEP_S;
        return;
    }
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double step = scale_load_step_s(l, batch, fmin(r, RHO_MAX / fmax(l->prefill_s, DBL_MIN)));
    /* Towards what it would be in the end, by the time that a session takes: stable for sessions
     * shorter than a step of ours. */
    double session_s = fmax(l->output * step, DBL_MIN), decay = exp(-FLUID_STEP_S / session_s);
    double each = scale_load_prompt_s(l, batch, 0);
    double prompts = n * RHO_MAX / fmax(each, DBL_MIN);
    double in = fmin(rate + f->waiting / FLUID_STEP_S, prompts);
    double fits = fmax(0, room - f->sessions * decay) / (session_s * (1 - decay));
    in = fmin(in, fits);
    f->waiting = fmax(0, f->waiting + (rate - in) * FLUID_STEP_S);
    f->sessions = in * session_s * (1 - decay) + f->sessions * decay;
    f->out = f->sessions / session_s;
}

/* Of those who arrived in the step that ends with f, the share that is late. */
static double late_of(const struct fluid_ask *a, const struct flow *f, double n, double rate)
{
    if (n < NOBODY) return 1;
    const struct scale_load *l = a->load;
    double r = rate / n, batch = f->sessions / n, room = room_of(a, n, r);
    double spread = f->sessions * (l->step_s + l->seq_s * batch) / fmax(l->step_s, DBL_MIN);
    double slack = room + f->out * fmax(0, a->ttft_slo_s - l->prefill_s) - f->sessions - f->waiting;
    double p = tail(slack / sqrt(fmax(spread, 1))) + prompt_late(a, n, r, batch);
    p += answer_late(a, n, r, batch);
    return fmin(p, 1);
}

void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all)
{
    struct flow f = { ask->sessions, ask->waiting, 0 };
    double late = 0, all = 0;
    for (uint32_t k = 0; k < ask->steps; k++) {
        double rate = (double)ask->rate[k], n = (double)ask->instances[k];
        advance(ask, &f, n, rate);
        if (k < from) continue;
        late += late_of(ask, &f, n, rate) * rate * FLUID_STEP_S;
        all += rate * FLUID_STEP_S;
    }
    *ret_late = late;
    *ret_all = all;
}
