/* flight.h - a request under way: what router, engine and tally each keep of it.
 *
 * Layer:    simulator (router/core, engine/core, fleet, base/core)
 * Lifetime: taken when the request arrives, given back when it has ended; buffers are reused
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/heap.h"
#include "engine/core/session.h"
#include "fleet/kv_transfer.h"
#include "fleet/telemetry.h"
#include "router/core/dispatch.h"
#include "simulator/kv_link.h"
#include "simulator/trace.h"

struct flight {
    struct list link;        /* free, or in an instance's queue */
    struct list on_instance; /* among the flights of the instance it is at */
    struct dispatch_request dispatch;
    uint32_t request;                          /* index in the trace */
    uint32_t router, instance, first_instance; /* the first token's */
    uint32_t generated, cached_tokens;
    int64_t arrival_us, first_us, last_us; /* as they happened */
    int64_t due_us;                        /* its next token, of an instance that knows */
    struct block_key *keys;                /* what the router matches; keys_max places */
    uint32_t key_count, keys_max;
    struct block_key salt;
    struct telemetry_place told; /* in its router's telemetry */
    struct session *session;
    uint32_t imported_tokens; /* whose K and V come with it to its next instance, */
    uint32_t imported_from;   /* from this one on */

    /* On its way to another instance (kv_transfers.c). */
    struct kv_transfer kv;
    struct kv_copy copy;
    uint32_t copy_tokens; /* of the copy that is under way */
    uint32_t preemptions; /* when its migration began */
    int64_t held_us;      /* since it stands still, or its prompt was done */
};

struct flights {
    struct list free, all_pages;
    uint32_t taken;
};

void flights_init(struct flights *fs);
void flights_fini(struct flights *fs);

/* Zeroed but for its buffers. NULL without memory. */
struct flight *flight_take(struct flights *fs);
void flight_give(struct flights *fs, struct flight *f);

/* Room for `count` keys; false without memory. */
bool flight_keys_reserve(struct flight *f, uint32_t count);

/* The token ids that a trace's blocks stand for, and the keys a router chains of them.
 *
 * Rule:  equal blocks give equal ids, so that router, index and cache see exactly the sharing that
 *        the trace names; prompts without blocks share nothing and need no ids
 */

/* `ret` has room for the request's prompt_tokens. */
void prompt_ids(const struct trace *t, const struct trace_request *r, uint32_t *ret);

/* One key for each block of the trace, chained; for engines whose cache has pages of that size. */
void prompt_block_keys(const struct trace *t, const struct trace_request *r, uint64_t seed,
                       struct block_key salt, struct block_key *ret);
