/* lru.c - drops the page that was released longest ago. */
#include "policies/evict/evict.h"

static int64_t rank(const struct evict_page *page)
{
    return (int64_t)page->releases;
}

const struct evict_policy evict_lru = {
    .name = "lru",
    .about = "least recently used first",
    .source = "vLLM, SGLang by default",
    .rank = rank,
};
