/* evict.h - the interface of eviction policies, which decide which cached page is dropped first.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) a page is ranked once, when its last session releases it; the lowest rank is dropped
 *              first, equal ranks in the order of release (the tail of a sequence is released
 *              before its head)
 *          (2) time is counted in releases, so a page's age is a number of pages, not seconds
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct evict_page {
    uint64_t releases;    /* pages released since start, this one included */
    uint32_t hits;        /* sessions that found this page in the cache since it was filled */
    uint32_t pages_total; /* of the whole pool */
    int64_t floor;        /* rank of the page dropped last; 0: none yet */
    double cost;          /* to compute it again, relative to a first page of a prompt, >= 1 */
};

struct evict_policy {
    const char *name;
    const char *about;
    const char *source;
    int64_t (*rank)(const struct evict_page *page);
};

#define POLICY(name) extern const struct evict_policy evict_##name;
#include "policies/evict/evict.def"
#undef POLICY

extern const struct evict_policy *const evict_table[];
extern const uint32_t evict_count;
#define EVICT_DEFAULT "probation_2hit"

const struct evict_policy *evict_find(struct str name); /* NULL when there is none */
