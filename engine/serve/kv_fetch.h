/* kv_fetch.h - fetches a prefix from a peer engine's cache into our own.
 *
 * Layer:    engine/serve (base/io)
 * Threads:  the loop's
 * Lifetime: kv_fetches_close before the device is freed, kv_fetches_free after it. A fetch lives from
 *           kv_fetch_start until on_end, which never comes from inside kv_fetch_start, or
 *           kv_fetch_cancel
 * Rules:    (1) what a peer does wrong ends the fetch and nothing else: what came before is kept,
 *               what did not come is computed
 *           (2) at most KV_FETCHES_MAX at once; one takes KV_FETCH_US_MAX at most, and a step of the
 *               device more
 *
 *     look ──► read from the peer ──► take in ──┐        each read asks from what is here then
 *      │            ▲                           │
 *      └──────────► └───────────────────────────┘ ──► on_end
 */
#pragma once
#include "base/io/loop/loop.h"
#include "base/wire/kv_wire.h"
#include "engine/serve/device.h"

enum kv_fetch_end {
    KV_FETCH_WHOLE,  /* all whole pages are here */
    KV_FETCH_DRY,    /* the peer has no more */
    KV_FETCH_FULL,   /* no room for more, or it was evicted meanwhile */
    KV_FETCH_LATE,   /* its time is up */
    KV_FETCH_FAILED, /* the peer did not answer, or with an error */
    KV_FETCH_MISFIT, /* the peer serves something else, or says what cannot be */
    KV_FETCH_LEFT,   /* nobody waits for it any more */
    KV_FETCH_BUSY,   /* not asked: KV_FETCHES_MAX, or no memory or descriptor here */
    KV_FETCH_END_COUNT
};
extern const char *const kv_fetch_end_names[KV_FETCH_END_COUNT]; /* whole dry full late ... */

struct kv_fetches; /* all of an engine */
struct kv_fetch;

struct kv_fetches_config {
    struct loop *loop;
    struct engine_metrics *metrics;
    const struct credentials *held; /* with any, nothing is read without a ticket */
    struct tls *tls;                /* to peers that speak it */
};

/* Strings of the config are borrowed. */
int kv_fetches_new(const struct kv_fetches_config *config, struct kv_fetches **ret,
                   struct err *err);
void kv_fetches_close(struct kv_fetches *all); /* no on_end comes any more */
void kv_fetches_free(struct kv_fetches *all);
CLEANUP_FREEP(kv_fetches, struct kv_fetches)

/* Before the first fetch, when the model is there. Borrowed; so is the digest. */
void kv_fetches_set_device(struct kv_fetches *all, struct device *device,
                           const struct device_info *info, struct str digest);

struct kv_fetch_ask {
    const uint32_t *ids; /* copied, as all of this is */
    uint32_t id_count;
    uint64_t key_seed;
    struct str tenant;     /* as the peer is told, */
    struct block_key salt; /* and what it makes of it together with all else */
    struct str host;       /* as http_call_request has it: a name asks the resolver and blocks */
    uint16_t port;
    bool tls;
    struct str ticket, key; /* from the router (generate.h); empty: the peer asks for none */
    int64_t deadline_us;    /* on the loop's clock; 0: KV_FETCH_US_MAX from now */
    void (*on_end)(void *arg, uint32_t tokens, uint32_t pulled);
    void *arg;
};

/* on_end hears how many tokens of the ids are cached here then, and how many of them came by this
 * fetch. -EAGAIN: KV_FETCHES_MAX; -ENOMEM. */
int kv_fetch_start(struct kv_fetches *all, const struct kv_fetch_ask *ask, struct kv_fetch **ret);
void kv_fetch_cancel(struct kv_fetch *p); /* NULL is fine */

/* What an answer to a read must begin with, here: `first` and `tokens` are of the answer. */
void kv_head_of(const struct device_info *info, struct str digest, uint32_t first, uint32_t tokens,
                struct kv_head *ret);
