/* dispatch_state.h - defines the members of a dispatch.
 *
 * Layer:   router/core, private to dispatch.c and dispatch_endpoint.c
 * Threads: the decision thread
 * Rules:   `slot` and `name_hash` are written by dispatch_endpoint.c, but for loads, rests and suspects, which
 *          requests change; `hit_blocks` and `instance` are scratch of the view that was filled last
 */
#pragma once
#include "router/core/dispatch.h"
#include "router/core/held_share.h"

struct dispatch_slot {
    bool used;
    struct dispatch_endpoint ep;
    bool home; /* among several routers, one that this router fills first */
    struct load load;
    struct load_meter prompts; /* seconds of prompts' arithmetic sent to it */
    struct stream_perf learned;
    int64_t believe_us; /* 0: not learned yet */
    int64_t suspended_until_us;
    int64_t suspend_us; /* the next rest, doubling; 0 after a success */
    uint32_t suspects;  /* requests in flight there that may have killed an engine */
};

struct dispatch {
    struct dispatch_config config;
    struct prefix_index *index;
    struct ledger *ledger;
    void *route_state;
    void *predict_state;
    struct rng rng;
    struct retry_budget budget;
    struct quarantine *quarantine;
    struct dispatch_slot *slot; /* endpoints_max of each */
    uint64_t *name_hash;        /* apart, because every search for a name reads them all */
    uint32_t *hit_blocks;
    struct route_instance *instance;
    uint32_t slots_end; /* no slot from here on is used */
    bool homes_dealt;
    struct load_models models;
    uint64_t decisions;
    uint32_t peer_index, peer_count;
    struct list held;
    uint32_t held_count;
    uint64_t held_tokens;
    struct held_share *held_share;
    struct dispatch_request *displaced; /* until dispatch_displaced returns it */
    struct dispatch_demand total;       /* the running counters only */
};

/* ---- dispatch_endpoint.c ---- */

void dispatch_deal_homes(struct dispatch *c);
/* Returns the step times of an endpoint: its own, or what its streams or another router's have taught. */
bool dispatch_perf_of(const struct dispatch_slot *s, struct perf_coef *ret);

/* Expects the request's blocks at the slot that it is sent to. */
void dispatch_expect_blocks(struct dispatch *c, const struct dispatch_request *r, uint32_t slot,
                            int64_t now_us);
/* Learns from a whole reply how long blocks may be believed there. */
void dispatch_learn_belief(struct dispatch *c, const struct dispatch_request *r, int64_t now_us);
/* Watches the stream of a request that is sent, and learns step times from its new tokens. */
void dispatch_watch_stream(struct dispatch *c, struct dispatch_request *r, uint32_t slot,
                           int64_t now_us);
void dispatch_learn_stream(struct dispatch *c, struct dispatch_request *r, int64_t now_us);
