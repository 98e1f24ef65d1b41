/* core_part.h - what the files of the router's core share.
 *
 * Layer: router/core; core*.c only
 */
#pragma once
#include "router/core/core.h"

struct slot {
    bool used;
    struct core_endpoint ep;
    bool home; /* among several routers, one that this router fills first */
    struct load load;
    struct load_meter prompts; /* seconds of prompts' arithmetic sent to it */
    int64_t suspended_until_us;
    int64_t suspend_us; /* the next rest, doubling; 0 after a success */
    uint32_t suspects;  /* in flight there, of those that may have killed an engine */
};

/* The work that one model is sent. */
struct model {
    uint64_t name;
    struct load_meter meter;
};

struct core {
    struct core_config config;
    struct prefix_index *index;
    struct ledger *ledger;
    void *route_state;
    void *predict_state;
    struct rng rng;
    struct retry_budget budget;
    struct quarantine *quarantine;
    struct slot *slot;   /* endpoints_max of each */
    uint64_t *name_hash; /* apart, because every look for a name goes through them */
    uint32_t *hit_blocks;
    struct route_instance *instance;
    uint32_t slots_end; /* no slot from here on is used */
    bool homes_dealt;
    struct model model[CORE_MODELS_MAX];
    uint32_t model_count;
    uint64_t decisions;
    uint32_t peer_index, peer_count;
    struct list held;
    uint32_t held_count;
    uint64_t held_tokens;
    double starting_eta_s;
    struct core_demand total; /* the running counters only */
};

/* Seconds of work that a model was sent, for core_work_rate. */
void core_count_work(struct core *c, uint64_t model, double work_s, int64_t now_us);

/* Says of every slot whether it is a home; only among two routers or more. */
void core_deal_homes(struct core *c);

/* What the policy sees of the instances of the request's model, `hit_blocks` filled by the way.
 * Newcomers go to instances that compute prompts, handed-over ones to those that decode. */
void core_view(struct core *c, const struct core_request *r, bool handed_over, int64_t now_us,
               struct route_view *ret);

/* What names the beginning of a prompt: a key some way in, because all may share the first. */
uint64_t core_prefix_hash(const struct core *c, const struct core_request *r);
