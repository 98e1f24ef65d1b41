/* target.h - names the engine that a leg of a request goes to, with the predictions for the leg.
 *
 * Layer:    router
 * Lifetime: a copy; its keeper pins `bundle` (bundles.h)
 */
#pragma once
#include "base/wire/generate.h"
#include "router/bundles.h"
#include "router/core/dispatch.h"

#define TARGET_HOST_MAX 64
#define TARGET_MODEL_MAX 256

/* Where a leg goes: one call to one engine. An output that goes on elsewhere has several legs. */
struct target {
    char instance[DISPATCH_NAME_MAX];
    char host[TARGET_HOST_MAX];
    uint16_t port;
    bool tls;
    enum engine_kind kind;
    char model
        [TARGET_MODEL_MAX]; /* as the engine calls it; for engines that take the client's JSON */
    /* Where its agent serves /internal/events and tokenizer; port 0: at the engine's own address. */
    char agent_host[TARGET_HOST_MAX];
    uint16_t agent_port;
    bool agent_tls;
    uint32_t context_tokens, page_tokens;
    enum model_task task;
    const struct bundle_entry *bundle;          /* NULL: not known, as of most other engines */
    double length_p50, length_p90, length_mean; /* predicted tokens */
    double rank, weight;                        /* predicted, with has_rank; of the tenant, 0: 1 */
    uint32_t hit_tokens;                        /* of the prompt, expected in the engine's cache */
    uint32_t slice_tokens;         /* of output, after which it is routed again; 0: none */
    bool has_rank, pd_handoff;     /* pd_handoff: it computes only the first token */
    char kv_host[TARGET_HOST_MAX]; /* the engine that has KV of the beginning; "": none */
    uint16_t kv_port;
    char kv_instance[DISPATCH_NAME_MAX];
    bool kv_tls;
};
