/* mix.h - the interface of mix policies, which choose how many instances of which type a workload
 * needs.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the caller passes the evaluator and the memory
 * Rules:   (1) the evaluator is pure: equal arguments give equal results
 *          (2) without `found` no mix of the types can serve the work; `why` says what is missing
 *          (3) a mix of melange never costs more than the best single type
 */
#pragma once
#include "base/core/str.h"
#include "policies/mix/solver.h"

#define MIX_TYPES_MAX SOLVER_TYPES_MAX
#define MIX_BUCKETS_MAX SOLVER_GROUPS_MAX

/* Share of time in which a spot type may be missing; joint leaves out what is missing for longer. */
#define MIX_MISSING_MAX 0.01

/* A type of instance that can be bought. */
struct mix_type {
    double price_h;
    uint32_t max; /* instances available; at most SOLVER_COUNT_MAX */
    bool spot;
    double hazard_h; /* spot: losses an hour */
    double lead_s;
};

/* Requests of similar lengths: mean lengths and rate. */
struct mix_bucket {
    double prompt_tokens, output_tokens;
    double rate_s;
};

/* The capacity of one instance that serves only one bucket's requests within the SLO. */
struct mix_score {
    double rate_s;         /* highest rate; 0: it cannot serve them in time */
    double ttft_s, tpot_s; /* at that rate */
};
typedef void (*mix_eval_fn)(const void *ctx, uint32_t type, const struct mix_bucket *work,
                            struct mix_score *ret);

struct mix_problem {
    struct mix_type type[MIX_TYPES_MAX];
    uint32_t type_count;
    struct mix_bucket bucket[MIX_BUCKETS_MAX];
    uint32_t bucket_count;
    double budget_h; /* 0: none */
    mix_eval_fn eval;
    const void *ctx;
    uint32_t nodes_max; /* of the solver; 0: SOLVER_NODES_MAX */
};

struct mix_verdict {
    bool found;
    bool optimal; /* proven cheapest for the problem as the policy poses it */
    uint32_t count[MIX_TYPES_MAX];
    double share[MIX_BUCKETS_MAX][MIX_TYPES_MAX]; /* of the bucket's requests, on the type */
    double cost_h;
    double served;   /* share of the work that the budget allows; 1 without one */
    const char *why; /* static sentence */
};

struct mix_memory {
    struct solver solver;
    struct solver_problem problem;
    struct solver_answer answer;
    double rate[MIX_BUCKETS_MAX][MIX_TYPES_MAX]; /* the evaluator's highest rates */
};

struct mix_policy {
    const char *name;   /* as in muster.yaml */
    const char *about;  /* --help and the documents */
    const char *source; /* paper or system of the rule */
    void (*choose)(const struct mix_problem *problem, struct mix_memory *memory,
                   struct mix_verdict *ret);
};

#define POLICY(name) extern const struct mix_policy mix_##name;
#include "policies/mix/mix.def"
#undef POLICY

extern const struct mix_policy *const mix_table[];
extern const uint32_t mix_count;
#define MIX_DEFAULT "joint"

const struct mix_policy *mix_find(struct str name); /* NULL when there is none */

/* Functions that policies share (mix.c). */

/* Fills work->rate: asks the evaluator for every bucket on every type. */
void mix_profile(const struct mix_problem *m, struct mix_memory *work);

/* Poses the solver's problem in work->problem: `slices` slices for each bucket, each with the load
 * scale * rate / (slices * profiled rate * fill[t]). */
void mix_program(const struct mix_problem *m, uint32_t slices, double scale,
                 const double fill[MIX_TYPES_MAX], struct mix_memory *work);

/* Returns why there is no mix: no type serves some bucket in time, or instances are too few.
 * Static. */
const char *mix_lack(const struct mix_problem *m, const struct mix_memory *work);

/* Turns the solver's answer into a verdict. */
void mix_verdict_of(const struct mix_problem *m, const struct mix_memory *work,
                    struct mix_verdict *ret);
