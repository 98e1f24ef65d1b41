/* kv_prefix.h - pages of one prefix in this engine's cache, copied out for a peer or taken in from one.
 *
 * Layer:    engine/serve (engine/core, engine/model)
 * Threads:  kv_prefix_here, _read and _adopt run on the device thread between two steps (device_call). A prefix is used
 *           by one thread at a time: its owner's, or the device's while a call is under way
 * Lifetime: a prefix copies the ids; kv_prefix_fini frees
 * Rules:    (1) nothing is held between two calls: what comes in is cached, named and held by
 *               nobody, like the pages of a session that has ended
 *           (2) what comes in takes the place of cached pages at most, as a session's would, and
 *               never that of the prefix it continues
 *           (3) pages come in behind what is here without a gap, or not at all
 */
#pragma once
#include "base/core/buf.h"
#include "engine/serve/executor.h"

/* The beginning of a sequence, in whole pages, under the names that every engine gives it. */
struct kv_prefix {
    struct block_key salt;
    uint32_t pages, page_tokens;
    uint32_t *ids;
    struct block_key *keys; /* of its granules */
    uint32_t *found;        /* scratch: a page number for each */
};

/* Whole pages of `count` ids. -ENOMEM: ret is empty. */
int kv_prefix_init(struct kv_prefix *ret, uint64_t key_seed, struct block_key salt,
                   const uint32_t *ids, uint32_t count, uint32_t page_tokens);
void kv_prefix_fini(struct kv_prefix *p);

/* How many of its pages are cached here, from the first on. */
uint32_t kv_prefix_here(struct executor *x, struct kv_prefix *p);

/* Appends the cached pages from page `from` on, as many as fit bytes_max, but one at least when it
 * is there. How many; -ENOMEM. */
int kv_prefix_read(struct executor *x, struct kv_prefix *p, uint32_t from, size_t bytes_max,
                   struct buf *out);

struct kv_adopted {
    uint32_t here; /* pages of the prefix that are cached now, from the first on */
    uint32_t came; /* of them, those that were not here before */
};

/* Takes `count` pages that lie in `bytes` and are those from page `from` on, while there is room. */
struct kv_adopted kv_prefix_adopt(struct executor *x, struct kv_prefix *p, uint32_t from,
                                  const char *bytes, uint32_t count);
