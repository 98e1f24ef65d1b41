/* planner.h - from a model, a workload and a price list to the question that placement policies answer.
 *
 * Layer: cli (policies, simulator/trace.h)
 */
#pragma once
#include "cli/cmd_offers.h"
#include "policies/mix/eval.h"
#include "simulator/trace.h"

/* What one column of the mix is: an offer at the parallelism that makes most of its money. */
struct planner_type {
    const struct price *price; /* of one device; borrowed from the list */
    uint32_t tp;
    bool extrapolated; /* its step times come from no measurement */
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
    bool spot; /* offers that may be taken away are asked too */
};

/* Buckets by powers of four of prompt and of output; rate_s > 0 replaces the trace's own. */
void planner_trace(struct planner *p, const struct trace *trace, double rate_s);

/* One bucket. */
void planner_lengths(struct planner *p, double prompt_tokens, double output_tokens, double rate_s);

/* The cheapest offer of each accelerator and purchase, of those whose name is in `only` (count 0:
 * all). After the workload. -ENOENT when there is no such offer or none can hold
 * the model. */
int planner_types(struct planner *p, const struct prices *prices, const struct model_spec *model,
                  const struct str *only, size_t only_count, const struct planner_slo *slo,
                  struct err *err);

/* The policy's answer, and the same without the type that carries most of its cost. */
void planner_ask(struct planner *p, const struct mix_policy *row, struct mix_verdict *ret,
                 struct mix_verdict *ret_runner_up);
