/* instance.h - simulates engines behind one interface, as routers see them, with their block events.
 *
 * Layer:    simulator (engine/core, policies, base/core)
 * Lifetime: made by its kind, freed by instance_free; flights belong to the run
 * Rules:    (1) an instance calls the run through its hooks, never another instance
 *           (2) between events nothing changes: next_us says when it wants to be called
 *
 * Kinds: `paged` is the real scheduler over the modelled hardware; `serial` is the reference of
 * published routing comparisons (one prompt after another, decoding without contention).
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/heap.h"
#include "base/wire/events.h"
#include "base/wire/report.h"
#include "simulator/flight.h"
#include "simulator/world.h"

#include <stdint.h>

struct instance;

/* Calls to the run. Times are those of the events. */
struct instance_hooks {
    void *arg;
    void (*tokens)(void *arg, struct flight *f, uint32_t count, int64_t first_us, int64_t last_us);
    void (*ended)(void *arg, struct flight *f, int64_t now_us);
    /* The flight lost its place in a full queue and never ran. */
    void (*displaced)(void *arg, struct flight *f, int64_t now_us);
    void (*sliced)(void *arg, struct flight *f, int64_t now_us);    /* to be routed again */
    void (*prefilled)(void *arg, struct flight *f, int64_t now_us); /* ready for its handoff */
    void (*stands)(void *arg, struct flight *f, int64_t now_us);    /* stands still, after hold */
    void (*block)(void *arg, const struct instance *in, struct block_key key, bool add,
                  int64_t now_us);
};

/* An engine's load, as it would report it. */
struct instance_load {
    uint32_t running, waiting;
    uint32_t head_pages;     /* of the queue */
    uint64_t prefill_tokens; /* known and not computed */
    uint64_t kv_tokens, kv_tokens_max, pages_cached;
    struct perf_coef perf;
};

struct instance_stats {
    uint64_t steps, preemptions, swaps, prompt_tokens, hit_tokens;
    double busy_s, energy_j;
    bool extrapolated; /* some steps are outside of measured tables */
};

/* An engine's work, for the power policy. */
struct instance_work {
    const struct roofline *roofline; /* from data sheets and fits, without the world's bias */
    struct wire_work work;           /* as an engine reports it */
};

struct instance_config {
    const struct sim_config *sim;
    const struct world *world;
    const struct sim_pool *pool;
    uint32_t serial; /* counts launches; keys its streams of chance */
    uint32_t place;  /* its slot in every router */
    uint64_t key_seed;
    uint32_t block_tokens; /* of the trace; 0: nothing is shared, no prefix cache */
    struct instance_hooks hooks;
};

struct instance_kind {
    int (*submit)(struct instance *in, struct flight *f, int64_t now_us, struct err *err);
    void (*advance)(struct instance *in, int64_t now_us); /* at next_us */
    void (*load)(struct instance *in, int64_t now_us, struct instance_load *ret);
    void (*stats)(struct instance *in, struct instance_stats *ret);
    void (*free)(struct instance *in);

    void (*work)(struct instance *in, int64_t now_us, struct instance_work *ret); /* optional */

    /* For KV transfers; NULL where the kind has none. */
    uint32_t (*cached)(struct instance *in, const struct flight *f);     /* tokens of its prompt */
    void (*hold)(struct instance *in, struct flight *f, int64_t now_us); /* hooks.stands follows */
    void (*resume)(struct instance *in, struct flight *f, int64_t now_us);
    void (*give)(struct instance *in, struct flight *f, int64_t now_us); /* it goes on elsewhere */
};

enum instance_state {
    INSTANCE_STARTING,
    INSTANCE_READY,
    INSTANCE_DRAINING,
    INSTANCE_GONE, /* while its flights and transfers are dealt with */
};

struct instance {
    const struct instance_kind *kind;
    struct instance_config config;
    enum instance_state state;
    enum role role; /* its pool's at first */
    int64_t launched_us, ready_us;
    int64_t leaves_us;          /* when its provider takes it away; 0: not announced */
    double clock;               /* share of the full one; from the next step on */
    struct wire_work work_seen; /* as the power policy was last shown it */
    uint32_t number;            /* by which the controller knows it */
    struct list flights;        /* sent here and not ended */
    uint32_t in_flight;
    uint64_t routed_tokens; /* prompt tokens sent here */
    struct heap_node event;
    int64_t next_us; /* INT64_MAX: idle */
};

/* The limits of an instance, and the first guess of its speed. context_max: prompt and output. */
struct instance_limits {
    uint32_t context_max, seqs_max, batch_tokens_max, page_tokens;
    uint64_t kv_tokens;
    bool extrapolated;
    struct perf_coef prior;
};
void instance_limits_get(const struct sim_config *sim, const struct sim_pool *pool,
                         struct instance_limits *ret);

void paged_limits(const struct sim_config *sim, const struct sim_pool *pool,
                  struct instance_limits *ret);
void serial_limits(struct instance_limits *ret);
int paged_new(const struct instance_config *config, struct instance **ret, struct err *err);
int serial_new(const struct instance_config *config, struct instance **ret, struct err *err);

/* Fills the load that an instance reports to routers. */
void instance_report(struct instance *in, int64_t now_us, struct reported_load *ret);

/* Makes an instance of the kind that the pool's hardware asks for. */
int instance_new(const struct instance_config *config, struct instance **ret, struct err *err);
void instance_free(struct instance *in);

/* Queues block events on their way from engines to routers, all equally late. */

struct feed_event {
    int64_t due_us;
    struct block_key key;
    uint32_t serial, place; /* of the instance */
    bool add;
};

struct feed {
    struct feed_event *event; /* ring */
    size_t first, count, capacity;
};

void feed_fini(struct feed *f);
bool feed_push(struct feed *f, const struct feed_event *ev);           /* false without memory */
bool feed_pop(struct feed *f, int64_t now_us, struct feed_event *ret); /* false: none is due */
