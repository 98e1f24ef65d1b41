/* prefix_index.h - finds the endpoints that hold blocks of KV, within a bound of bytes.
 *
 * Layer:    router/core (base/core, policies/route/route.h for the bound on slots)
 * Threads:  the decision thread only
 * Lifetime: all memory is taken at new; nothing grows beyond its bound afterwards, and what is
 *           never used is never touched
 * Rules:    (1) an engine's events are the truth: add and drop set and clear its bit
 *           (2) a request that was just sent adds tentative bits, so that siblings in the same
 *               burst follow it; a block's unconfirmed bits all end once none was added to it for
 *               as long as one is believed
 *           (3) at the bound the block that was touched longest ago is forgotten, counted
 *           (4) a slot that is dropped is gone from every match at once
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/err.h"
#include "policies/route/route.h"

struct prefix_index;

struct prefix_index_stats {
    size_t bytes;    /* memory held; constant after new */
    uint32_t blocks; /* blocks known now */
    uint32_t blocks_max;
    uint64_t evicted; /* blocks forgotten at the bound */
};

/* For slots below `slots`. -EINVAL when bytes_max is too small for one block, -ENOMEM. */
int prefix_index_new(size_t bytes_max, uint32_t slots, struct prefix_index **ret, struct err *err);

/* Makes room for slots below `slots`, by doubling: entries become larger and, within the same bound
 * of bytes, fewer; those that were touched last stay. Copies the whole index, tens of milliseconds
 * for a million blocks. -ENOMEM, and all stays as it was. */
int prefix_index_widen(struct prefix_index *ix, uint32_t slots);
size_t prefix_index_block_bytes(uint32_t slots); /* that each block costs */
void prefix_index_free(struct prefix_index *ix);

void prefix_index_add(struct prefix_index *ix, uint32_t slot, struct block_key key);
void prefix_index_expect(struct prefix_index *ix, uint32_t slot, const struct block_key *keys,
                         uint32_t count, int64_t now_us, int64_t until_us);
void prefix_index_drop(struct prefix_index *ix, uint32_t slot, struct block_key key);
void prefix_index_drop_slot(struct prefix_index *ix, uint32_t slot);

/* Fills for each slot the length, in blocks, of the longest run from keys[0] that it holds.
 * `ret_blocks` has `slots` places. The blocks met count as touched. */
void prefix_index_match(struct prefix_index *ix, const struct block_key *keys, uint32_t count,
                        int64_t now_us, uint32_t *ret_blocks);

void prefix_index_stats(const struct prefix_index *ix, struct prefix_index_stats *ret);
