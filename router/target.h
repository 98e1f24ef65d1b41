/* target.h - the engine that a leg of a request goes to, and what is expected of it there.
 *
 * Layer:    router
 * Lifetime: a copy; its keeper pins `bundle` (bundles.h)
 */
#pragma once
#include "base/wire/generate.h"
#include "router/bundles.h"
#include "router/core/dispatch.h"

#define TARGET_HOST_MAX 64

/* Where a leg goes: one call to one engine. An answer that goes on elsewhere has several. */
struct target {
    char instance[DISPATCH_NAME_MAX];
    char host[TARGET_HOST_MAX];
    uint16_t port;
    bool tls;
    enum engine_kind kind;
    uint32_t context_tokens, page_tokens;
    const struct bundle_entry *bundle;          /* NULL for engines that take the client's JSON */
    double length_p50, length_p90, length_mean; /* predicted tokens */
    double rank, weight;                        /* predicted, with has_rank; of the tenant, 0: 1 */
    uint32_t hit_tokens;                        /* of its prompt, expected in the engine's cache */
    uint32_t slice_tokens;         /* of its output, after which it is routed again; 0: none */
    bool has_rank, pd_handoff;     /* pd_handoff: only the first token is wanted of it */
    char kv_host[TARGET_HOST_MAX]; /* the engine that has K and V of the beginning; "": none */
    uint16_t kv_port;
    char kv_instance[DISPATCH_NAME_MAX];
    bool kv_tls;
};
