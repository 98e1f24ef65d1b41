/* bundles.h - fetches the engines' tokenizers, once for each digest, and keeps them.
 *
 * Layer:    router (base/io, base/text)
 * Threads:  fetched and decoded on the decision thread; an entry is immutable once ready and then
 *           read by any
 * Lifetime: an entry lives while it is pinned, and then among the idle ones
 * Pins:     each holder of pointers to entries (endpoint, snapshot, request) pins them with a mask of
 *           its own, one bit for each entry. Only the decision thread gives entries out, so that it may
 *           drop those without a pin
 * Bound:    BUNDLES_MAX digests, of which BUNDLES_IDLE_MAX may be without a pin; the idle entry that
 *           was asked for longest ago goes first. When all are pinned, instances of further models take
 *           no requests, and the log says so
 */
#pragma once
#include "base/core/block_key.h"
#include "base/io/http/http_client.h"
#include "base/text/bundle.h"
#include "base/wire/sync.h"
#include "router/fleet_link.h"

#include <stdatomic.h>

#define BUNDLES_MAX 64 /* as many as there may be services; bits of a mask */
#define BUNDLES_IDLE_MAX 8

struct bundle_pins {
    _Atomic uint32_t count[BUNDLES_MAX];
};

struct bundle_entry {
    struct bundle bundle;
    char digest[SHA256_HEX + 1]; /* of the engine's weights and tokenizer, as endpoints name it */
    uint64_t seed;               /* of the fleet's block keys */
    uint32_t bit;                /* in masks of pins */
};

/* Pins an entry for the owner of `mask`, on the owner's thread. A NULL entry is ignored, and so is a
 * second pin of the same mask. */
void bundle_pin(struct bundle_pins *pins, uint64_t *mask, const struct bundle_entry *e);
void bundle_unpin(struct bundle_pins *pins, uint64_t *mask); /* all of the mask */

struct bundles;
int bundles_new(struct loop *loop, struct signer *signer, const struct fleet_link *link,
                struct bundle_pins *pins, struct bundles **ret, struct err *err);
void bundles_free(struct bundles *b);

/* Returns the entry for an endpoint's digest, for the caller to pin before the next call; or NULL: a
 * fetch from that endpoint is then under way, or will be tried again a second after it failed, or
 * there is no place, or the endpoint is not `reachable` and none is begun. `on_ready` (set at most once) is called
 * after a tokenizer has arrived. */
const struct bundle_entry *bundles_get(struct bundles *b, const struct endpoint *ep,
                                       bool reachable);

struct bundles_counts {
    uint32_t held;    /* now */
    uint64_t refused; /* of another digest than was asked for */
    uint64_t evicted;
};
void bundles_counts_get(const struct bundles *b, struct bundles_counts *ret);
void bundles_on_ready(struct bundles *b, void (*on_ready)(void *arg), void *arg);

/* Returns the start of the chain of block keys of a tenant, with the digest of an adapter or an empty one. */
struct block_key bundle_salt(const struct bundle_entry *e, struct str adapter,
                             struct str tenant_salt);
