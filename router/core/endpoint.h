/* endpoint.h - describes an engine as the dispatch knows it.
 *
 * Layer: router/core (base/wire, base/perf). A plain value
 */
#pragma once
#include "base/core/hash.h"
#include "base/perf/perf.h"
#include "base/wire/report.h"

#define DISPATCH_NAME_MAX 64

struct dispatch_endpoint {
    char name[DISPATCH_NAME_MAX]; /* the instance's; names it across updates */
    uint64_t model;               /* hash of the served model's name; requests match on it */
    uint64_t boot;                /* the engine's boot id: another one means its blocks are gone */
    bool ready;                   /* not starting, not draining */
    bool at_risk;   /* it may be taken away soon: gets requests only where no other takes them */
    bool takes_ids; /* continues what another engine began: takes prompt and output as ids */
    enum role role; /* a decode instance gets handoffs only */
    bool cache_guessed; /* no events confirm what it has cached: only its replies say */
    /* of its cache only whole multiples of so many are used; 0: all that is known */
    uint32_t hit_tokens;
    bool perf_learned; /* it reports no step times: its streams teach them, and other routers' */
    bool has_perf;
    struct perf_coef perf;
    uint32_t token_budget, seqs_max;
    uint64_t kv_tokens_max;      /* 0: unknown */
    double link_bytes_s;         /* rate at which it is sent its peers' KV; 0: it is not */
    uint32_t kv_bytes_per_token; /* 0: unknown */
    double price_per_hour;
    uint64_t adapter[WIRE_ADAPTERS_MAX]; /* adapter_id of those that it has */
    uint32_t adapter_count;
};

/* Returns the number that requests and endpoints name an adapter by, never 0. */
static inline uint64_t adapter_id(struct str digest)
{
    return hash64(digest.data, digest.len, 0) | 1;
}
