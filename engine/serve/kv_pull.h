/* kv_pull.h - a prefix fetched from a peer engine's cache into our own, as far as it goes.
 *
 * Layer:    engine/serve (base/io)
 * Threads:  the loop's
 * Lifetime: kv_pulls_close before the device is freed, kv_pulls_free after it. A pull lives from
 *           kv_pull_start until on_end, which never comes from inside kv_pull_start, or
 *           kv_pull_cancel
 * Rules:    (1) what a peer does wrong ends the pull and nothing else: what came before is kept,
 *               what did not come is computed
 *           (2) at most KV_PULLS_MAX at once; one takes KV_PULL_US_MAX at most, and a step of the
 *               device more
 *
 *     look ──► read from the peer ──► take in ──┐        each read asks from what is here then
 *      │            ▲                           │
 *      └──────────► └───────────────────────────┘ ──► on_end
 */
#pragma once
#include "base/io/loop.h"
#include "base/wire/kv_share.h"
#include "engine/serve/device.h"

#define KV_PULLS_MAX 16 /* each holds one answer of a peer, KV_READ_BYTES_MAX */
#define KV_PULL_US_MAX 10000000

enum kv_pull_end {
    KV_PULL_WHOLE,  /* all whole pages are here */
    KV_PULL_DRY,    /* the peer has no more */
    KV_PULL_FULL,   /* no room for more, or it was evicted meanwhile */
    KV_PULL_LATE,   /* its time is up */
    KV_PULL_FAILED, /* the peer did not answer, or with an error */
    KV_PULL_MISFIT, /* the peer serves something else, or says what cannot be */
    KV_PULL_LEFT,   /* nobody waits for it any more */
    KV_PULL_BUSY,   /* not asked: KV_PULLS_MAX, or no memory or descriptor here */
    KV_PULL_END_COUNT
};
extern const char *const kv_pull_end_names[KV_PULL_END_COUNT]; /* whole dry full late ... */

struct kv_pulls; /* all of an engine */
struct kv_pull;

struct kv_pulls_config {
    struct loop *loop;
    struct meters *meters;
    const struct credentials *held; /* with any, nothing is read without a ticket */
    struct tls *tls;                /* to peers that speak it */
};

/* Strings of the config are borrowed. */
int kv_pulls_new(const struct kv_pulls_config *config, struct kv_pulls **ret, struct err *err);
void kv_pulls_close(struct kv_pulls *all); /* no on_end comes any more */
void kv_pulls_free(struct kv_pulls *all);
CLEANUP_FREEP(kv_pulls, struct kv_pulls)

/* Before the first pull, when the model is there. Borrowed; so is the digest. */
void kv_pulls_set_device(struct kv_pulls *all, struct device *device,
                         const struct device_info *info, struct str digest);

struct kv_pull_ask {
    const uint32_t *ids; /* copied, as all of this is */
    uint32_t id_count;
    uint64_t key_seed;
    struct str tenant;     /* as the peer is told, */
    struct block_key salt; /* and what it makes of it together with all else */
    struct str host;       /* as http_call_request has it: a name asks the resolver and blocks */
    uint16_t port;
    bool tls;
    struct str ticket, key; /* from the router (generate.h); empty: the peer asks for none */
    int64_t deadline_us;    /* on the loop's clock; 0: KV_PULL_US_MAX from now */
    void (*on_end)(void *arg, uint32_t tokens, uint32_t pulled);
    void *arg;
};

/* on_end hears how many tokens of the ids are cached here then, and how many of them came by this
 * pull. -EAGAIN: KV_PULLS_MAX; -ENOMEM. */
int kv_pull_start(struct kv_pulls *all, const struct kv_pull_ask *ask, struct kv_pull **ret);
void kv_pull_cancel(struct kv_pull *p); /* NULL is fine */

/* What an answer to a read must begin with, here: `first` and `tokens` are of the answer. */
void kv_head_of(const struct device_info *info, struct str digest, uint32_t first, uint32_t tokens,
                struct kv_head *ret);
