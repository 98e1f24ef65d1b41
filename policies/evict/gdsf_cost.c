/* gdsf_cost.c - drops the page with the least hits times recompute cost, aged (GDSF).
 *
 *     rank = floor + STEP * (hits + 1) * cost
 *     cost = (prefill_token_s + attend_s * tokens before it) / prefill_token_s
 *
 * The seconds are those of the performance model; a first page costs 1. A page deep in a long
 * prompt attends to everything before it and so costs more. RAGCache weighs its documents likewise,
 * and drops leaves only; here the index makes a head stay at least as long as its tail. */
#include "policies/evict/evict.h"

#define STEP 1000    /* ranks are whole numbers: a thousandth of a first page's cost */
#define COST_MAX 1e6 /* with it a rank fits 63 bits whatever the hits */

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
