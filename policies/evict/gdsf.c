/* gdsf.c - drops the page with the fewest hits, aged: greedy dual size frequency with pages of
 * equal size and cost (Cherkasova 1998).
 *
 *     rank = floor + STEP * (hits + 1)
 *
 * `floor`, the rank of the page dropped last, is how the greedy dual family ages pages: a page that
 * was popular once stays only until the floor has risen past its rank. With equal costs the policy
 * is LFU with this aging. */
#include "policies/evict/evict.h"

#define STEP 1000 /* as in gdsf_cost, which is this policy where all pages cost alike */

static int64_t rank(const struct evict_page *page)
{
    return page->floor + STEP * ((int64_t)page->hits + 1);
}

const struct evict_policy evict_gdsf = {
    .name = "gdsf",
    .about = "fewest hits first, aged by what was dropped",
    .source = "Cherkasova, HPL-98-69; Cao and Irani 1997",
    .rank = rank,
};
