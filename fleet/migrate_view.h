/* migrate_view.h - builds the view of migrate policies: endpoints as their engines report them, and a router's
 * own sessions.
 *
 * Layer:    fleet (policies/migrate, base/wire)
 * Threads:  pure functions over the caller's structs
 * Lifetime: migrate_look_init takes the caller's arrays; a transfer is known from its first token to
 *           migrate_look_gone
 * Rules:    (1) only the router's own sessions move, and only between engines that serve the same
 *               weights in pages of the same size
 *           (2) absent is not zero: an engine that does not report its load is neither source nor
 *               target, nor is one that has not reported it since a migration last stopped or started a
 *               session there
 *           (3) an idle engine reports nothing new: its last report stays true
 *           (4) at most KV_FETCHES_MAX transfers are on their way to an engine: it would refuse more
 */
#pragma once
#include "base/perf/perf.h"
#include "base/wire/events.h"
#include "fleet/kv_transfer.h"

#define MIGRATE_STATE_BYTES 1024  /* of a policy */
#define MIGRATE_SETTLE_US 1000000 /* silence after which an engine has nothing new to report */

/* Describes an endpoint as its router knows it. */
struct migrate_endpoint {
    uint64_t group;       /* sessions move only within a group; 0: none moves from or to here */
    uint32_t page_tokens; /* at least 1 */
    uint32_t kv_bytes_per_token;
    double link_bytes_s; /* rate at which it reads K and V of peers; 0: it reads none */
    enum role role;
    bool ready, draining;
    int64_t leaves_us;                /* when its provider takes it away; 0: no notice */
    uint64_t kv_tokens_max;           /* 0: unknown */
    const struct perf_coef *perf;     /* NULL: unknown */
    const struct reported_load *load; /* last report, of told_us; NULL: it reports none */
    int64_t told_us;
};

/* Fills all members of *ret but the id and the sessions, which stay as they are. */
void migrate_view_fill(const struct migrate_endpoint *ep, const struct kv_port *port,
                       int64_t now_us, struct migrate_instance *ret);

/* The functions of the host that a look calls. */
struct migrate_host {
    void *arg;
    /* Returns false if no endpoint has the slot. Pointers in *ret live until the look is over. */
    bool (*endpoint)(void *arg, uint32_t slot, struct migrate_endpoint *ret);
    /* Begins a migration of `x` to slot `to`: the host feeds KVT_MIGRATE. */
    void (*migrate)(void *arg, struct kv_transfer *x, uint32_t to);
};

struct migrate_look {
    const struct migrate_policy *policy;
    struct rng rng;
    struct list decoding; /* transfers of sessions with a first token, by `decoding` */
    uint32_t slots, sessions_max;
    struct kv_port *port; /* slots */
    /* Scratch of one look: instances of one group; sessions of all, by their slot. */
    struct migrate_endpoint *endpoint; /* slots */
    struct migrate_instance *instance; /* slots */
    uint32_t *first, *next;            /* slots + 1 */
    struct migrate_session *session;   /* sessions_max, as the next one */
    struct kv_transfer **transfer;
    _Alignas(8) unsigned char state[MIGRATE_STATE_BYTES];
};

/* Returns the bytes of memory that migrate_look_init needs. The memory is the caller's, aligned and
 * zeroed. */
size_t migrate_look_bytes(uint32_t slots, uint32_t sessions_max);
void migrate_look_init(struct migrate_look *l, const struct migrate_policy *policy, uint32_t slots,
                       uint32_t sessions_max, uint64_t seed, void *memory);

/* Calls kv_transfer_on with the look's ports. */
enum kv_transfer_act migrate_look_on(struct migrate_look *l, struct kv_transfer *x,
                                     enum kv_transfer_event event, struct kv_transfer_input in);
void migrate_look_tokens(struct migrate_look *l, struct kv_transfer *x); /* its tokens came */
void migrate_look_gone(struct kv_transfer *x);                           /* it decodes no more */

/* Asks the policy for one verdict per group and begins the moves. Returns when to look again;
 * INT64_MAX: never. */
int64_t migrate_look(struct migrate_look *l, const struct migrate_host *host, int64_t now_us);
