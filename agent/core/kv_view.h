/* kv_view.h - turns the KV events of an engine of another kind into the block keys that routers ask for.
 *
 * Layer:    agent/core (base/core)
 * Threads:  pure; the agent's loop
 * Lifetime: on the heap, within its bounds
 * Rules:    (1) an engine names blocks by hashes of its own; here each is chained anew from its tokens,
 *               in granules of BLOCK_TOKENS, from the salt of (digest, tenant). An engine's block may
 *               complete several granules, one, or none
 *           (2) only what a router can ask for is kept: blocks on the device, of the first group of
 *               layers, of the model itself, of plain text
 *           (3) a block on an unknown parent is skipped and counted: its tokens alone do not name it
 *           (4) a repeated BlockStored changes no key: the engine has another copy, and the keys go with
 *               the last one
 *           (5) at the bound new blocks are skipped and counted
 *
 * Changes are numbered and remembered in a ring, so that several routers can follow, each at its own
 * pace; one that is behind the ring takes a snapshot.
 */
#pragma once
#include "agent/core/kv_events.h"
#include "base/core/block_key.h"

#define KV_VIEW_BLOCKS_MAX (1u << 20) /* of the engine; about 100 bytes each */
#define KV_VIEW_RING 16384            /* changes that are remembered */

struct kv_view;

struct kv_change {
    bool add;
    struct block_key key;
};

struct kv_view_counts {
    uint32_t blocks, keys; /* now */
    uint64_t stored;       /* blocks taken */
    uint64_t repeated;     /* that were known */
    uint64_t orphans;      /* on an unknown parent */
    uint64_t unsupported;  /* of adapters, images, further groups, other media */
    uint64_t full;         /* at the bound */
};

/* `digest` names tokenizer and weights as the engine's endpoint does. -ENOMEM. */
int kv_view_new(uint64_t seed, struct str digest, uint32_t blocks_max, struct kv_view **ret,
                struct err *err);
void kv_view_free(struct kv_view *v);

/* Applies an event. -EINVAL: a list in it is malformed; -ENOMEM. After either the view may lack a part of
 * the event: call kv_view_clear. */
int kv_view_apply(struct kv_view *v, const struct engine_kv_event *ev);

/* Forgets all blocks; every follower needs a snapshot then. */
void kv_view_clear(struct kv_view *v);

uint64_t kv_view_seq(const struct kv_view *v); /* of the newest change */

/* Copies at most `max` changes that came after `seq`. Returns their number, or -ENOENT: they are no longer
 * remembered. */
int kv_view_since(const struct kv_view *v, uint64_t seq, struct kv_change *ret, uint32_t max);

/* Walks all keys: *cursor starts at 0; false at the end. No change may come between. */
bool kv_view_next(const struct kv_view *v, size_t *cursor, struct block_key *ret);

void kv_view_counts(const struct kv_view *v, struct kv_view_counts *ret);
