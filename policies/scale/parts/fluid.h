/* fluid.h - how many requests a fleet would serve late in the time to come.
 *
 * Layer: policies (base/core)
 *
 * A fleet of n(t) equal instances (scale_capacity.h) is followed in steps of FLUID_STEP_S, as a
 * fluid of N sessions, Q requests that wait, and b = N / n sessions an instance:
 *
 *     dN / dt  = taken in - N / (E[O] step seconds)
 *     taken in = arrivals and what waits, as far as sessions are free and prompts can be computed
 *
 * About the fluid there is chance: sessions vary by N (a + c b) / a (a birth-death process whose
 * service slows as the batch grows), prompts wait as in M/G/n. The share that is late is the sum,
 * at most 1, of those
 *
 *     that find no session free, nor one within TTFT:
 *         Phi(-(room + X (TTFT - p) - N - Q) / sd(N)),     X ended a second
 *     whose prompt waits longer than TTFT leaves (Sakasegawa's form of M/G/n):
 *         rho^sqrt(2(n+1)) exp(-(TTFT - S) 2 n (1-rho) / S(1+cv^2)),     rho = r S
 *     in whose life more prompts come than TPOT leaves room for:
 *         Phi(-(TPOT (1 - r p) - a - c b) / (TPOT sd)),     sd^2 = r p^2 (1+cv^2) / (T sqrt(n))
 *
 * with r prompts a second and instance, of p seconds each alone and S beside those that decode, T
 * the life at TPOT of an answer half as long as the mean (short ones are late first), and sqrt(n)
 * for a router that evens out a part of the bunches. room: sessions with which steps keep TPOT.
 */
#pragma once
#include "policies/scale/capacity.h"

#define FLUID_STEP_S 5
#define FLUID_STEPS_MAX 512 /* 42 minutes */

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
