/* blocks.h - carries one engine's KV events into the prefix index.
 *
 * Layer:   router (base/io, base/wire, router/core)
 * Threads: the decision thread only
 * Rules:   a gap, another boot id or a broken stream drops the slot's blocks from the index; the feed
 *          connects again after BLOCK_FEED_RETRY_US and begins with a snapshot
 */
#pragma once
#include "base/io/http/http_client.h"
#include "base/wire/events.h"
#include "router/core/ledger.h"
#include "router/core/prefix_index.h"
#include "router/fleet_link.h"

#define BLOCK_FEED_RETRY_US 500000

struct target;
struct block_feed;

/* Starts the feed of an endpoint. NULL without memory: the endpoint is then routed by load and by the
 * requests that were sent to it. */
struct block_feed *block_feed_new(struct loop *loop, struct signer *signer,
                                  struct prefix_index *index, uint32_t slot,
                                  const struct target *target, const struct fleet_link *link);
void block_feed_free(struct block_feed *f);

/* Returns the load that the engine reported last: all zeros before its first report. An engine reports
 * when its load changes. NULL while it cannot: its stream is down, or loads are not asked for. */
const struct reported_load *block_feed_load(const struct block_feed *f, int64_t *ret_told_us);

/* Sets the receiver of the engine's load reports; without one, loads are not asked for. Called before
 * the first turn of the loop. */
typedef void (*block_load_fn)(void *arg, uint32_t slot, const struct reported_load *load);
void block_feed_on_load(struct block_feed *f, block_load_fn fn, void *arg);
