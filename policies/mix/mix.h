/* mix.h - how many instances of which type a workload needs.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the caller passes the evaluator and the memory
 * Rules:   (1) the evaluator is pure: equal questions have equal answers
 *          (2) without `found` no mix of the types can serve the work; `why` says what is missing
 *          (3) a mix of melange never costs more than the best single type
 */
#pragma once
#include "base/core/str.h"
#include "policies/mix/solver.h"

#define MIX_TYPES_MAX SOLVER_TYPES_MAX
#define MIX_BUCKETS_MAX SOLVER_GROUPS_MAX

/* What can be bought, as far as a mix depends on it. */
struct mix_type {
    double price_h;
    uint32_t max; /* instances that can be had; at most SOLVER_COUNT_MAX */
    bool spot;
    double hazard_h; /* spot: losses an hour */
    double lead_s;
};

/* Requests alike: mean lengths and how many a second. */
struct mix_bucket {
    double prompt_tokens, output_tokens;
    double rate_s;
};

/* One instance that serves only such requests within the SLO. */
struct mix_score {
    double rate_s;         /* at most; 0: not even one */
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
    bool optimal; /* proven for the problem as the row poses it */
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
    double rate[MIX_BUCKETS_MAX][MIX_TYPES_MAX]; /* the evaluator's answers */
};

struct mix_policy {
    const char *name;   /* as in muster.yaml */
    const char *about;  /* --help and the documents */
    const char *source; /* where the rule comes from */
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

/* What policies share (mix.c). */

/* Asks the evaluator for every bucket on every type. */
void mix_profile(const struct mix_problem *m, struct mix_memory *work);

/* The problem of `slices` slices a bucket with loads rate / (slices * profiled rate * fill[t]). */
void mix_program(const struct mix_problem *m, uint32_t slices, double scale,
                 const double fill[MIX_TYPES_MAX], struct mix_memory *work);

/* Why there is no mix: a kind of request that no type serves in time, or not enough instances. Static. */
const char *mix_lack(const struct mix_problem *m, const struct mix_memory *work);

/* The solver's answer as a verdict. */
void mix_verdict_of(const struct mix_problem *m, const struct mix_memory *work,
                    struct mix_verdict *ret);
