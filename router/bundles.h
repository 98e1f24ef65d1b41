/* bundles.h - tokenizers of the engines, fetched once for each digest and kept.
 *
 * Layer:    router (base/io, base/text)
 * Threads:  fetched and decoded on the decision thread; an entry is immutable once ready and then
 *           read by any
 * Lifetime: entries live as long as the bundles: requests may point at them
 * Bound:    BUNDLES_MAX digests. One that could never be fetched gives its place to the next; when
 *           all were fetched, instances of further models take no requests, and the log says so
 */
#pragma once
#include "base/core/block_key.h"
#include "base/io/http_client.h"
#include "base/text/bundle.h"
#include "base/wire/sync.h"

#define BUNDLES_MAX 16

struct bundle_entry {
    struct bundle bundle;
    char digest[SHA256_HEX + 1]; /* of the engine's weights and tokenizer, as endpoints name it */
    uint64_t seed;               /* of the fleet's keys */
};

struct bundles;
int bundles_new(struct loop *loop, struct http_client *client, struct str secret,
                struct bundles **ret, struct err *err);
void bundles_free(struct bundles *b);

/* The entry for an endpoint's digest, or NULL: a fetch from that endpoint is then under way, or
 * will be tried again a second after it failed, or there is no place. `on_ready` (set at most once) is called after one
 * arrived. */
const struct bundle_entry *bundles_get(struct bundles *b, const struct endpoint *ep);
void bundles_on_ready(struct bundles *b, void (*on_ready)(void *arg), void *arg);

/* Where the chain of a tenant's keys begins. */
struct block_key bundle_salt(const struct bundle_entry *e, struct str tenant_salt);
