/* role.h - the interface of role policies, which choose for each instance prefill, decode or both.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) the verdict names a role for every instance of the view; the ready ones serve both
 *              phases. All instances of one phase may die: role_decide then makes the others serve
 *              whole requests
 *          (2) absent is not zero: without demand or without a perf the roles stay as they are, as
 *              far as (1) allows (`colocated` asks for neither)
 *          (3) an instance that is not ready, or is changing its role, keeps its role; a pinned one
 *              too, except for (1)
 *          (4) the view's evaluator says what a choice is worth; no policy runs a simulation
 *
 * A prefill instance computes a prompt and its first token; a decode instance continues with the K
 * and V transferred from there. Units are seconds, tokens, requests a second.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"
#include "base/perf/perf.h"

#define ROLE_INSTANCES_MAX 4096
#define ROLE_STATE_BYTES_MAX 4608

struct role_instance {
    uint32_t id; /* < ROLE_INSTANCES_MAX */
    bool ready;
    bool changing; /* a change of its role is under way */
    bool pinned;   /* its role is configured: no policy changes it, but policies count it */
    enum role role;
    bool has_perf;
    struct perf_coef perf;
    uint32_t token_budget; /* tokens of one step; at least 1 */
    uint32_t seqs_max;     /* at least 1 */
    uint64_t kv_tokens_max;
    uint64_t prompt_pending; /* prompt tokens sent there and not computed */
    uint64_t decode_pending; /* tokens of KV that its sessions hold */
    uint32_t decoding;
};

/* Lengths of recent requests in tokens; m2: the mean of the square. */
struct role_demand {
    bool present;
    double prompt_mean, prompt_m2;
    double output_mean, output_m2;
};

struct role_view;

/* Returns the goodput of the instances in these roles: requests a second within both SLOs. It is a
 * lower estimate. */
struct role_evaluator {
    const void *ctx;
    double (*goodput_rps)(const void *ctx, const struct role_view *view, const enum role *role);
};

struct role_view {
    const struct role_instance *instance;
    uint32_t instance_count;
    struct role_demand demand;
    double ttft_slo_s, tpot_slo_s;
    double attainment;   /* share of requests that should meet both, < 1 */
    double link_bytes_s; /* of an instance's port; 0: no KV transfer is possible */
    double token_bytes;  /* K and V of one token */
    const struct role_evaluator *evaluator;
};

struct role_verdict {
    enum role role[ROLE_INSTANCES_MAX]; /* by place in the view */
    uint32_t changes;
    double goodput_rps;   /* by the evaluator; < 0: not evaluated */
    double runner_up_rps; /* of the next best choice; < 0: not evaluated, or there was none */
    const char *reason;   /* static */
    int64_t again_us;
};

struct role_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size; /* at most ROLE_STATE_BYTES_MAX; zeroed bytes are the first state */
    void (*decide)(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret);
};

#define POLICY(name) extern const struct role_policy role_##name;
#include "policies/role/role.def"
#undef POLICY

extern const struct role_policy *const role_table[];
extern const uint32_t role_count;
#define ROLE_DEFAULT "planner"

const struct role_policy *role_find(struct str name); /* NULL when there is none */

/* Asks the policy and enforces rule 1. */
void role_decide(const struct role_policy *p, void *state, const struct role_view *view,
                 int64_t now_us, struct rng *rng, struct role_verdict *ret);

/* Keeps the roles as they are, as far as rule 1 allows; for use where no policy chooses. */
void role_hold(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret);

/* Functions that policies share (role.c). */

/* Returns true if policies may choose the instance's role. */
static inline bool role_is_free(const struct role_instance *in)
{
    return in->ready && !in->changing && !in->pinned;
}

/* Fills the verdict with the roles as they are. */
void role_keep(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret);

/* Returns false if nothing can be decided because demand or speeds are unknown (rule 2). */
bool role_known(const struct role_view *view);

/* Sorts the instances that may change by how soon they should become prefill instances. First come
 * those that are faster at prefill than at decode compared with the others; among like instances,
 * those that already prefill; then by id. Instances within five per cent of the first of their class
 * are alike, so the order of the view plays no part. Fills ret with places in the view and returns
 * their number. */
uint32_t role_order(const struct role_view *view, uint32_t ret[ROLE_INSTANCES_MAX]);

/* Gives the first `prefill` instances of an order the prefill role, the last `decode` the decode role
 * and the rest both. Instances that are not in the order keep their roles. */
void role_assign(const struct role_view *view, const uint32_t *order, uint32_t count,
                 uint32_t prefill, uint32_t decode, enum role ret[ROLE_INSTANCES_MAX]);

/* Completes a verdict with set roles: counts the changes and evaluates the goodput. */
void role_answer(const struct role_view *view, const char *reason, int64_t again_us,
                 struct role_verdict *ret);

/* The closed-form evaluator (role.c), used where no better one is given. */
extern const struct role_evaluator role_closed_form;

/* Return the requests a second that one instance sustains within one SLO: prefill alone within the
 * TTFT, decode alone within the TPOT. */
double role_prefill_rps(const struct role_view *view, const struct role_instance *in);
double role_decode_rps(const struct role_view *view, const struct role_instance *in);

/* struct role_look calls a role policy repeatedly: the controller has one for each service, the
 * simulator one for its fleet.
 *
 * Threads: pure, as role.h
 */

#define ROLE_LOOK_US_MIN 1000000 /* between two looks */
#define ROLE_ATTAINMENT 0.9      /* share of requests that a choice of roles should serve in time */

struct role_look {
    const struct role_policy *policy;
    struct rng rng;
    int64_t again_us; /* when to ask again */
    _Alignas(8) unsigned char state[ROLE_STATE_BYTES_MAX];
};

/* Asks the policy. */
void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret);
