/* flight.h - a request under way: what router, engine and tally each keep of it.
 *
 * Layer:    simulator (router/core, engine/core, base/core)
 * Lifetime: taken when the request arrives, given back when it has ended; buffers are reused
 */
#pragma once
#include "base/core/block_key.h"
#include "engine/core/session.h"
#include "router/core/core.h"
#include "simulator/trace.h"

struct flight {
    struct list link;        /* in the free list, or in an instance's queue */
    struct list on_instance; /* among the flights of the instance it is at */
    struct core_request core;
    uint32_t request; /* index in the trace */
    uint32_t router, instance;
    uint32_t generated, cached_tokens;
    int64_t arrival_us, first_us, last_us; /* as they happened */
    int64_t due_first_us, due_last_us;     /* as an instance foresees them that can */
    struct block_key *keys;                /* what the router matches; keys_max places */
    uint32_t key_count, keys_max;
    struct block_key salt;
    struct session *session;
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
