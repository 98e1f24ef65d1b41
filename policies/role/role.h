/* role.h - the interface of role policies: which instances compute prompts, which decode, which
 * do both?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) the verdict names a role for every instance of the view; of those that are ready
 *              somebody prefills and somebody decodes: where instances die, all of one phase may,
 *              and role_decide sees to it that the others then serve whole requests
 *          (2) absent is not zero: without demand or without a perf the roles stay as they are, as
 *              far as (1) allows (`colocated` asks for neither)
 *          (3) an instance that is not ready, or whose role is changing, keeps its role; one that
 *              is pinned too, but for (1)
 *          (4) what a choice is worth is asked of the view's evaluator, never of a simulator
 *
 * A prefill instance computes a prompt and its first token; a decode instance goes on with the K
 * and V that it gets from there. Units are seconds, tokens, requests a second.
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
    uint64_t decode_pending; /* tokens that its sessions hold */
    uint32_t decoding;
};

/* Of what is asked lately; m2: the mean of the square. */
struct role_demand {
    bool present;
    double prompt_mean, prompt_m2;
    double output_mean, output_m2;
};

struct role_view;

/* Requests a second that the instances with these roles answer within both SLOs, or less. */
struct role_evaluator {
    const void *ctx;
    double (*goodput_rps)(const void *ctx, const struct role_view *view, const enum role *role);
};

struct role_view {
    const struct role_instance *instance;
    uint32_t instance_count;
    struct role_demand demand;
    double ttft_slo_s, tpot_slo_s;
    double attainment;   /* share of requests that shall meet both, < 1 */
    double link_bytes_s; /* of an instance's port; 0: K and V cannot be moved */
    double token_bytes;  /* K and V of one token */
    const struct role_evaluator *evaluator;
};

struct role_verdict {
    enum role role[ROLE_INSTANCES_MAX]; /* by place in the view */
    uint32_t changes;
    double goodput_rps;   /* by the evaluator; < 0: nobody asked */
    double runner_up_rps; /* of the next best; < 0: nobody asked, or there was none */
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

/* Asks the policy, and sees to rule 1. */
void role_decide(const struct role_policy *p, void *state, const struct role_view *view,
                 int64_t now_us, struct rng *rng, struct role_verdict *ret);

/* The same where nobody chooses: the roles stay as they are, as far as rule 1 allows. */
void role_hold(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret);

/* Functions that policies share (role.c). */

/* Of those the policies choose. */
static inline bool role_is_free(const struct role_instance *in)
{
    return in->ready && !in->changing && !in->pinned;
}

/* The roles as they are. */
void role_keep(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret);

/* False: nothing can be decided (rule 2). */
bool role_known(const struct role_view *view);

/* Instances that may change, in the order in which they should become prefill instances: first
 * those that are quicker at prompts than at decoding compared with the others, among like ones
 * those that already are one, then by id. Like are those within five per cent of the first of
 * them: the order of the view plays no part. Returns how many; the places in the view. */
uint32_t role_order(const struct role_view *view, uint32_t ret[ROLE_INSTANCES_MAX]);

/* The first `prefill` of an order get that role, the next `decode` the other, the rest both. Those
 * not in the order keep theirs. */
void role_assign(const struct role_view *view, const uint32_t *order, uint32_t count,
                 uint32_t prefill, uint32_t decode, enum role ret[ROLE_INSTANCES_MAX]);

/* Counts the changes and asks the evaluator. */
void role_answer(const struct role_view *view, const char *reason, int64_t again_us,
                 struct role_verdict *ret);

/* The closed form (role.c); the evaluator where no better one is given. */
extern const struct role_evaluator role_closed_form;

/* Requests a second that one instance sustains within one SLO: prompts alone, outputs alone. */
double role_prefill_rps(const struct role_view *view, const struct role_instance *in);
double role_decode_rps(const struct role_view *view, const struct role_instance *in);

/* A role policy that is asked again and again: by the controller for each of its
 * services, by the simulator for its fleet.
 *
 * Threads: pure, as role.h
 */

#define ROLE_LOOK_US_MIN 1000000 /* between two looks */
#define ROLE_ATTAINMENT 0.9      /* share of requests that a choice of roles shall serve in time */

struct role_look {
    const struct role_policy *policy;
    struct rng rng;
    int64_t again_us; /* when to ask again */
    _Alignas(8) unsigned char state[ROLE_STATE_BYTES_MAX];
};

/* Asks the policy. */
void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret);
