/* scale_fluid.h - how many requests a fleet would serve late in the time to come.
 *
 * Layer: policies (base/core)
 *
 * A fleet of n(t) equal instances (scale_capacity.h) is followed in steps of FLUID_STEP_S as a fluid:
 *
 *     d sessions / dt = taken in - sessions / (E[O] step seconds)
 *     taken in        = arrivals and what waits, as far as sessions are free and prompts are computed
 *
 * About the fluid there is chance: sessions vary by N (a + c b) / a (a birth-death process whose
 * service slows as the batch b grows), prompts wait as in M/G/n. A request is late
 *
 *     when sessions exceed what fits, plus what is taken in within TTFT:  Phi(-(room - N - Q) / sd)
 *     when its prompt waits longer than TTFT leaves:  rho^sqrt(2(n+1)) exp(-x 2 n (1-rho) / S(1+cv^2))
 *     when more prompts come in its life than TPOT leaves room for:
 *         Phi(-(TPOT (1 - rho) - a - c b) / (TPOT sd(rho))),  var(rho) = r p^2 (1+cv^2) / (T sqrt(n))
 *
 * with rho the share of time that goes to prompts, r of them a second and instance with p seconds
 * each, S a prompt's seconds beside decoding, x = TTFT - S (Sakasegawa's form of M/G/n), T the life
 * of a short answer at TPOT, and sqrt(n) for a router that evens out a part of the bunches.
 */
#pragma once
#include "policies/scale_capacity.h"

#define FLUID_STEP_S 5
#define FLUID_STEPS_MAX 512

struct fluid_ask {
    const struct scale_load *load;
    double sessions, waiting; /* now */
    double ttft_slo_s, tpot_slo_s;
    uint32_t steps;         /* at most FLUID_STEPS_MAX */
    const float *rate;      /* arrivals a second in each step */
    const float *instances; /* serving in each step */
};

/* Requests late and all in the steps from `from` on. */
void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all);
