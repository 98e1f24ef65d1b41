/* gdsf_cost.c - greedy dual size frequency, weighted by what a page costs to compute again.
 *
 *     rank = floor + STEP * (hits + 1) * cost
 *     cost = (prefill_token_s + attend_s * tokens before it) / prefill_token_s     of the performance model: 1 for a first page
 *
 * A page deep in a long prompt attends to everything before it and so is dearer. RAGCache weighs
 * its documents likewise, and drops leaves only; here the index sees to it that a head stays as long
 * as its tail. */
#include "policies/evict/evict.h"

#define STEP 1000    /* ranks are whole numbers: a thousandth of a first page's cost */
#define COST_MAX 1e6 /* with all the hits that are counted a rank then fits its 63 bits */

static int64_t rank(const struct evict_page *page)
{
    double cost = page->cost < COST_MAX ? page->cost : COST_MAX;
    return page->floor + (int64_t)((double)STEP * ((double)page->hits + 1) * cost);
}

const struct evict_policy evict_gdsf_cost = {
    .name = "gdsf_cost",
    .about = "fewest hits times seconds to compute again first, aged by what was dropped",
    .source = "RAGCache (arXiv 2404.12457) on GDSF",
    .rank = rank,
};
