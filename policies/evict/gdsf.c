/* gdsf.c - drops the page with the fewest hits, aged: greedy dual size frequency (Cherkasova 1998) with pages of equal
 * size, and of equal cost or of the cost to compute them again (gdsf_cost).
 *
 *     rank = floor + STEP * (hits + 1)
 *
 * `floor`, the rank of the page dropped last, is how the greedy dual family ages pages: a page that
 * was popular once stays only until the floor has risen past its rank. With equal costs the policy
 * is LFU with this aging; gdsf_cost is this policy with costs that differ. */
#include "policies/evict/evict.h"

#define STEP 1000    /* ranks are whole numbers: a thousandth of a first page's cost */
#define COST_MAX 1e6 /* with it a rank fits 63 bits whatever the hits */

static int64_t rank_hits(const struct evict_page *page)
{
    return page->floor + STEP * ((int64_t)page->hits + 1);
}

const struct evict_policy evict_gdsf = {
    .name = "gdsf",
    .about = "fewest hits first, aged by what was dropped",
    .source = "Cherkasova, HPL-98-69; Cao and Irani 1997",
    .rank = rank_hits,
};

/* Drops the page with the least hits times recompute cost, aged (GDSF).
 *
 *     rank = floor + STEP * (hits + 1) * cost
 *     cost = (prefill_token_s + attend_s * tokens before it) / prefill_token_s
 *
 * The seconds are those of the performance model; a first page costs 1. A page deep in a long
 * prompt attends to everything before it and so costs more. RAGCache weighs its documents likewise,
 * and drops leaves only; here the index makes a head stay at least as long as its tail. */
static int64_t rank_cost(const struct evict_page *page)
{
    double cost = page->cost < COST_MAX ? page->cost : COST_MAX;
    return page->floor + (int64_t)((double)STEP * ((double)page->hits + 1) * cost);
}

const struct evict_policy evict_gdsf_cost = {
    .name = "gdsf_cost",
    .about = "fewest hits times seconds to compute again first, aged by what was dropped",
    .source = "RAGCache (arXiv 2404.12457) on GDSF",
    .rank = rank_cost,
};
