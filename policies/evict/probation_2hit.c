/* probation_2hit.c - drops pages that were never found again before pages that were.
 *
 *     rank = releases + (hits > 0 ? pages_total : 0)
 *
 * Most prompts come once; under plain LRU a burst of them evicts the system prompts that all
 * requests share. A page that was hit survives one whole turnover of the pool, but not longer: a
 * prefix that fell out of use still leaves. */
#include "policies/evict/evict.h"

static int64_t rank(const struct evict_page *page)
{
    return (int64_t)(page->releases + (page->hits > 0 ? page->pages_total : 0));
}

const struct evict_policy evict_probation_2hit = {
    .name = "probation_2hit",
    .about = "pages never found again first; others outlive one turnover",
    .source = "our own, after 2Q (VLDB 1994)",
    .rank = rank,
};
