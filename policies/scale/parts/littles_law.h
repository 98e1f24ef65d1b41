/* littles_law.h - the answers' mean length, told by the sessions there are.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * A predictor that has just begun knows only answers that have ended, and short ones end first. By
 * Little's law the sessions that run say it without a bias,
 *
 *     E[O] = N / (X s)        N sessions running, X begun or ended a second, s seconds of a step
 *
 * X is the mean of what arrives and what ends: while N grows one is too much and the other too
 * little. Both sides are sums over time that fade over SESSIONS_MEMORY_S.
 */
#pragma once
#include "policies/scale/capacity.h"

#define SESSIONS_MEMORY_S 60.0
#define SESSIONS_GAP_S 10.0 /* between readings: what ran meanwhile is not what runs at its end */

struct sessions {
    bool known;              /* the totals were read */
    uint64_t arrived, ended; /* totals, as read last */
    double held_s, passed_s; /* sums of N dt and of X s dt */
    double seen_s;           /* sum of dt */
};

/* A reading, dt_s after the last: totals of requests, `running` of them decoding on `ready`
 * instances like `load`. One that is the first, after a gap or of new totals teaches nothing. */
struct sessions_reading {
    uint64_t arrived, ended;
    double running, ready, dt_s;
    bool backlog; /* arrivals wait: they are not what begins, nothing is learned */
};
void sessions_observe(struct sessions *s, const struct scale_load *load,
                      const struct sessions_reading *r);

/* The factor on predicted answers: a mean of what the sessions say and of what was predicted,
 * weighted by how many sessions there are, from 1 (a predictor that has begun says too little,
 * never too much) to SESSIONS_FACTOR_MAX. */
double sessions_factor(const struct sessions *s, double predicted);
#define SESSIONS_FACTOR_MAX 4.0
