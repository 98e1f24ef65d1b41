/* place_mix.h - how many instances of which type a workload needs.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the caller passes the evaluator and the memory
 * Rules:   (1) the evaluator is pure: equal questions have equal answers
 *          (2) without `found` no mix of the types can serve the work; `why` says what is missing
 *          (3) a mix of melange never costs more than the best single type
 */
#pragma once
#include "policies/place_solver.h"

#define PLACE_TYPES_MAX SOLVER_TYPES_MAX
#define PLACE_BUCKETS_MAX SOLVER_GROUPS_MAX

/* What can be bought, as far as a mix depends on it. */
struct place_type {
    double price_h;
    uint32_t max; /* instances that can be had; at most SOLVER_COUNT_MAX */
    bool spot;
    double hazard_h; /* spot: losses an hour */
    double lead_s;
};

/* Requests alike: mean lengths and how many a second. */
struct place_bucket {
    double prompt_tokens, output_tokens;
    double rate_s;
};

/* One instance that serves only such requests within the promise. */
struct place_score {
    double rate_s;         /* at most; 0: not even one */
    double ttft_s, tpot_s; /* at that rate */
};
typedef void (*place_eval_fn)(const void *ctx, uint32_t type, const struct place_bucket *work,
                              struct place_score *ret);

struct place_mix {
    struct place_type type[PLACE_TYPES_MAX];
    uint32_t type_count;
    struct place_bucket bucket[PLACE_BUCKETS_MAX];
    uint32_t bucket_count;
    double budget_h; /* 0: none */
    place_eval_fn eval;
    const void *ctx;
    uint32_t nodes_max; /* of the solver; 0: SOLVER_NODES_MAX */
};

struct place_mix_verdict {
    bool found;
    bool optimal; /* proven for the problem as the row poses it */
    uint32_t count[PLACE_TYPES_MAX];
    double share[PLACE_BUCKETS_MAX][PLACE_TYPES_MAX]; /* of the bucket's requests, on the type */
    double cost_h;
    double served;   /* share of the work that the budget allows; 1 without one */
    const char *why; /* static sentence */
};

struct place_mix_work {
    struct solver solver;
    struct solver_problem problem;
    struct solver_answer answer;
    double rate[PLACE_BUCKETS_MAX][PLACE_TYPES_MAX]; /* the evaluator's answers */
};

/* What rows share (place_mix.c). */

/* Asks the evaluator for every bucket on every type. */
void place_mix_profile(const struct place_mix *m, struct place_mix_work *work);

/* The problem of `slices` slices a bucket with loads rate / (slices * profiled rate * fill[t]). */
void place_mix_problem(const struct place_mix *m, uint32_t slices, double scale,
                       const double fill[PLACE_TYPES_MAX], struct place_mix_work *work);

/* Why there is no mix: a kind of request that no type serves in time, or not enough instances. Static. */
const char *place_mix_lack(const struct place_mix *m, const struct place_mix_work *work);

/* The solver's answer as a verdict. */
void place_mix_verdict_of(const struct place_mix *m, const struct place_mix_work *work,
                          struct place_mix_verdict *ret);
