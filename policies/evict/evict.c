/* evict.c - the table of eviction policies, and the least recently used page. */
#include "policies/evict/evict.h"

#include "base/core/bits.h"

const struct evict_policy *const evict_table[] = {
#define POLICY(name) &evict_##name,
#include "policies/evict/evict.def"
#undef POLICY
};
const uint32_t evict_count = COUNT_OF(evict_table);

const struct evict_policy *evict_find(struct str name)
{
    for (uint32_t i = 0; i < evict_count; i++) {
        if (str_eq(str_from(evict_table[i]->name), name)) return evict_table[i];
    }
    return NULL;
}

/* Drops the page that was released longest ago. */
static int64_t rank_lru(const struct evict_page *page)
{
    return (int64_t)page->releases;
}

const struct evict_policy evict_lru = {
    .name = "lru",
    .about = "least recently used first",
    .source = "vLLM, SGLang by default",
    .rank = rank_lru,
};
