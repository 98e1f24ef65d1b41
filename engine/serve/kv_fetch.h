/* kv_fetch.h - fetches a prefix from a peer engine's cache into our own; copies pages of a prefix
 * out for a peer or in from one.
 *
 * Layer:    engine/serve (engine/core, engine/model, base/io)
 * Threads:  the loop's; kv_prefix_here, _read and _adopt run on the device thread between two steps
 *           (device_call). A prefix is used by one thread at a time: its owner's, or the device's while a
 *           call is under way
 * Lifetime: kv_fetches_close before the device is freed, kv_fetches_free after it. A fetch lives from
 *           kv_fetch_start until on_end, which never comes from inside kv_fetch_start, or
 *           kv_fetch_cancel. A prefix copies the ids; kv_prefix_fini frees
 * Rules:    (1) an error of a peer ends the fetch and nothing else: pages that came before are
 *               kept, pages that did not come are computed
 *           (2) at most KV_FETCHES_MAX at once; one takes KV_FETCH_US_MAX at most, and a step of the
 *               device more
 *           (3) nothing is held between two calls: an imported page is cached, named and held by no
 *               session, like the pages of a session that has ended
 *           (4) imported pages take the place of cached pages at most, as a session's would, and
 *               never that of the prefix that they continue
 *           (5) pages are taken in directly behind those that are here, never with a gap
 *
 *     look ──► read from the peer ──► take in ──┐        each read begins behind what is here then
 *      │            ▲                           │
 *      └──────────► └───────────────────────────┘ ──► on_end
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/loop/loop.h"
#include "base/wire/kv_wire.h"
#include "engine/serve/device.h"
#include "engine/serve/executor.h"

/* The beginning of a sequence, in whole pages, under the keys that every engine gives them. */
struct kv_prefix {
    struct block_key salt;
    uint32_t pages, page_tokens;
    uint32_t *ids;
    struct block_key *keys; /* of its granules */
    uint32_t *found;        /* scratch: a page number for each */
    /* Pages read, or to be taken in, have both parts (kv_pool.h) from this one on. */
    uint32_t whole_from;
};

/* Makes a prefix of the whole pages of `count` ids. -ENOMEM: ret is empty. */
int kv_prefix_init(struct kv_prefix *ret, uint64_t key_seed, struct block_key salt,
                   const uint32_t *ids, uint32_t count, uint32_t page_tokens);

void kv_prefix_fini(struct kv_prefix *p);

/* Returns how many of its pages are cached here, from the first on, and can be used. */
uint32_t kv_prefix_here(struct executor *x, struct kv_prefix *p);

/* Appends the cached pages from page `from` on, as many as fit bytes_max, but one at least if it is
 * there: those before p->whole_from, which it sets, without the part of layers with a window. Returns how many;
 * -ENOMEM. */
int kv_prefix_read(struct executor *x, struct kv_prefix *p, uint32_t from, size_t bytes_max,
                   struct buf *out);

struct kv_adopted {
    uint32_t here; /* pages of the prefix that are cached now, from the first on, whole or not */
    uint32_t came; /* of them, those that were not here before */
};

/* Takes in `count` pages from `bytes`, which are those from page `from` on, while there is room. Those before
 * p->whole_from have one part. */
struct kv_adopted kv_prefix_adopt(struct executor *x, struct kv_prefix *p, uint32_t from,
                                  const char *bytes, uint32_t count);

enum kv_fetch_end {
    KV_FETCH_WHOLE,  /* all whole pages are here */
    KV_FETCH_DRY,    /* the peer has no more */
    KV_FETCH_FULL,   /* no room for more, or it was evicted meanwhile */
    KV_FETCH_LATE,   /* its time is up */
    KV_FETCH_FAILED, /* the peer did not reply, or with an error */
    KV_FETCH_MISFIT, /* the peer serves something else, or its reply is not valid */
    KV_FETCH_LEFT,   /* no request waits for it any more */
    KV_FETCH_BUSY,   /* not asked: KV_FETCHES_MAX, or no memory or descriptor here */
    KV_FETCH_END_COUNT
};

extern const char *const kv_fetch_end_names[KV_FETCH_END_COUNT]; /* whole dry full late ... */
struct kv_fetches;                                               /* all of an engine */
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

/* Call when the model is there, before the first fetch. Device, info and digest are borrowed. */
void kv_fetches_set_device(struct kv_fetches *all, struct device *device,
                           const struct device_info *info, struct str digest);

struct kv_fetch_ask {
    const uint32_t *ids; /* copied, as all of this is */
    uint32_t id_count;
    uint64_t key_seed;
    struct str tenant;     /* as the peer is told */
    struct block_key salt; /* block_salt of it, as the peer computes it */
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

/* Fills the head that a reply to a read must have for this engine; `first` and `tokens` are the
 * reply's. */
void kv_head_of(const struct device_info *info, struct str digest, uint32_t first, uint32_t tokens,
                struct kv_head *ret);
