/* cmd_plan.h - turns a model, a workload and a price list into the problem that mix policies solve, and holds
 * the functions that the commands below `muster plan` share.
 *
 * Layer: cli (policies, simulator/trace.h)
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/io/config/config.h"
#include "cli/cmd_offers.h"
#include "policies/mix/eval.h"
#include "simulator/trace.h"

/* One type of the mix: an offer, at the parallelism that serves most for its price. */
struct planner_type {
    const struct price *price; /* of one device; borrowed from the list */
    uint32_t tp;
    bool extrapolated; /* its step times do not come from measurements */
    double rate_alone; /* requests a second of one instance, at the workload's mean lengths */
};

struct planner {
    struct mix_problem mix;
    struct eval_fleet fleet;
    struct planner_type type[MIX_TYPES_MAX];
    struct mix_bucket mean; /* of the whole workload */
    struct mix_memory memory;
};

struct planner_slo {
    double slo_ttft_s, slo_tpot_s, budget_h;
    bool spot; /* spot offers, which may be taken away, are considered too */
};

/* Makes buckets by powers of four of prompt and output; rate_s > 0 replaces the trace's own rate. */
void planner_trace(struct planner *p, const struct trace *trace, double rate_s);

/* Makes one bucket. */
void planner_lengths(struct planner *p, double prompt_tokens, double output_tokens, double rate_s);

/* Takes the cheapest offer of each accelerator and purchase, among the names in `only` (count 0: all).
 * Called after the workload is set. -ENOENT when there is no such offer or none can hold the model. */
int planner_types(struct planner *p, const struct prices *prices, const struct model_spec *model,
                  const struct str *only, size_t only_count, const struct planner_slo *slo,
                  struct err *err);

/* Asks the policy for its mix, and for a runner-up without the type that makes most of the first's cost. */
void planner_ask(struct planner *p, const struct mix_policy *policy, struct mix_verdict *ret,
                 struct mix_verdict *ret_runner_up);

/* Run `muster plan layers`, `move` and `load`. argv is without these words; they return the exit status. */
int plan_layers_run(int argc, char *const *argv);
int plan_move_run(int argc, char *const *argv);
int plan_load_run(int argc, char *const *argv);

/* struct plan_policies holds the policies that a planner-only command compares.
 *
 * Rules: (1) the first policy is --policy's, the choice; the others are compared with it
 *        (2) a command keeps its results in an array of PLAN_POLICIES_MAX, by a policy's place here
 */

#define PLAN_COMPARE_MAX 8 /* of --compare */
#define PLAN_POLICIES_MAX (PLAN_COMPARE_MAX + 1)

struct plan_policies {
    const char *name[PLAN_POLICIES_MAX];
    uint32_t at[PLAN_POLICIES_MAX]; /* the policy's place in the table of its kind */
    uint32_t count;
};

/* Looks up the names among the policies of `kind`. COMMAND_MISUSED with a sentence that names the option
 * and the known policies. `row` is the value of the former name of --policy. */
int plan_policies_find(const char *kind, struct str policy, struct str row,
                       const struct config_texts *compare, struct plan_policies *ret,
                       struct err *err);

/* Adds as many of the kind's other policies as fit, for a command that compares all when none is
 * named. */
void plan_policies_others(const char *kind, struct plan_policies *policies);

/* Writes members of the open object: the choice's name, its result and those of the other policies, each
 * as one value by `put_answer`. */
void plan_policies_json(struct json_writer *w, const struct plan_policies *policies,
                        void (*put_answer)(struct json_writer *w, const void *ctx, uint32_t i),
                        const void *ctx);
