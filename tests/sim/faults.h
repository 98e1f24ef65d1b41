/* faults.h - what may go wrong in a world, and what is wrong with its own making.
 *
 * Layer: tests/sim
 * Swarm: each fault is enabled with p = 1/2 a seed, so that the ones that are on meet each other
 *        and the ones that are off do not hide what only shows without them.
 * Mutants are bugs planted in the world, not in the product: with each, one named check must
 * fire. They show that the checks can fail.
 */
#pragma once
#include "base/core/rng.h"

#include <stdbool.h>

enum fault_kind {
    FAULT_LOSS,            /* reports, syncs and their answers get lost */
    FAULT_SLOW_NET,        /* they take up to seconds, and overtake each other */
    FAULT_CUT_UP,          /* one-way: nothing reaches the controller from one peer */
    FAULT_CUT_DOWN,        /* one-way: no answer reaches one peer */
    FAULT_CUT_ALL,         /* the controller hears nobody, the cloud still answers */
    FAULT_STOCK_OUT,       /* create: no capacity */
    FAULT_THROTTLE,        /* create: too many calls */
    FAULT_LOST_REPLY,      /* create and remove: done, but the answer is lost */
    FAULT_LATE_SUCCESS,    /* create: timed out, and done seconds later */
    FAULT_CLOUD_DOWN,      /* any call: timed out, not done */
    FAULT_LISTING_LAG,     /* listings show the world of seconds ago */
    FAULT_SLOW_BOOT,       /* a machine takes long, or for ever */
    FAULT_MACHINE_DIES,    /* without a word */
    FAULT_NOTICE,          /* the provider takes a machine away and says so before */
    FAULT_PRICE_UNKNOWN,   /* for a while */
    FAULT_CRASH,           /* of an engine's process */
    FAULT_HANG,            /* of an engine: no progress, no answer to its agent */
    FAULT_START_FAILS,     /* an engine's process dies before it is ready */
    FAULT_OVERLOAD,        /* an engine answers 503 at random */
    FAULT_NO_PERF,         /* engines never fit their speed */
    FAULT_CONTROLLER_DIES, /* anywhere between two events */
    FAULT_CONTROLLER_STEP, /* at an armed step between a write and a call */
    FAULT_DISK_FULL,       /* one write of the store fails */
    FAULT_STORE_LOST,      /* the controller comes back on an empty store */
    FAULT_ROUTER_RESTARTS, /* and forgets everything */
    FAULT_CLIENTS_LEAVE,
    FAULT_CLOCK_SKEW, /* boot clocks run at other speeds, dates are apart */
    FAULT_CLOCK_STEP, /* a date is set, by up to an hour in either direction */
    FAULT_STOPPED,    /* a process does not run for a while (SIGSTOP) */
    FAULT_STUCK,      /* an engine's device makes no step, its loop answers on */
    FAULT_CUT_TO,     /* one-way: nothing of one router reaches one engine */
    FAULT_CUT_FROM,   /* one-way: nothing of one engine reaches one router */
    FAULT_SHORT,      /* of descriptors: a process can begin no call for a while */
    FAULT_TWICE,      /* reports and syncs arrive twice, apart from each other */
    FAULT_SLOW_STORE, /* a write takes seconds, and the controller with it */
    FAULT_DAMAGE,     /* the controller comes back to a record that is torn or gone */
    FAULT_RESOLVER,   /* names that a process does not know yet cannot be resolved */
    FAULT_VERSIONS,   /* peers of a newer release say more, an older controller says less */
    FAULT_SLOW_CLOUD, /* calls take up to 40 s, listings are seldom and the budget is small */
    FAULT_KIND_COUNT
};
extern const char *const fault_names[FAULT_KIND_COUNT];

struct faults {
    bool on[FAULT_KIND_COUNT];
    struct rng rng[FAULT_KIND_COUNT]; /* of their times */
};

/* Kinds from `kinds` on are off: a seed that was kept before they were added. */
void faults_draw(struct faults *f, uint64_t seed, uint32_t kinds);

enum mutant {
    MUTANT_NONE,
    MUTANT_ABSENT_IS_ZERO,  /* a lost report or sync arrives as one that says zero */
    MUTANT_KEYLESS,         /* the provider ignores the idempotency key */
    MUTANT_LOAD_IS_ZERO,    /* the agent's supervisor is told that nothing is in flight */
    MUTANT_REMOVE_DOES_NOT, /* the provider says removed, and goes on billing */
    MUTANT_LOST_END,        /* the end of a stream never reaches the router, nor does the leaving */
    MUTANT_LOST_TOKENS,     /* a piece in the middle of a stream is lost */
    MUTANT_BEGINS_ANEW,     /* the next engine begins an answer anew that clients have a part of */
    MUTANT_LEAVE_FORGOTTEN, /* the router forgets to tell its dispatch that a client left */
    MUTANT_FREE_RETRIES,    /* the router takes every failure for one that costs no retry */
    MUTANT_HOLD_FOR_EVER,   /* the router forgets its timer of held requests */
    MUTANT_SOLD_OUT,        /* no offer can be had, ever */
    MUTANT_NEVER_READY,     /* engines die before they are ready, for ever */
    MUTANT_PHANTOM_HELD,    /* the router says for ever that it holds a request */
    MUTANT_FREE_PRICE,      /* a price that nobody knows is given as zero */
    MUTANT_STORE_FORGETS,   /* it is empty after each restart, and listings are for a while */
    MUTANT_STORE_DAMAGED,   /* a record is overwritten */
    MUTANT_OWN_CLOCK,       /* a decision depends on the real clock */
    MUTANT_DATES,           /* the controller counts in dates */
    MUTANT_NEVER_LATE,      /* the controller does not know that its ticks come late */
    MUTANT_AGENT_PUNCTUAL,  /* nor the agents that their looks do */
    MUTANT_TWO_ENDS,        /* a client is told twice how its request ended */
    MUTANT_STALLED,         /* an engine makes no step and looks well */
    MUTANT_DEAF,            /* a router does not mind the silence of engines */
    MUTANT_NO_EXCUSE,       /* an agent that could not ask takes that for silence */
    MUTANT_SHORT_IS_FAR,    /* a router that runs short takes the engine for unreachable */
    MUTANT_FORGED_RECORD,   /* a record is wrong, and can be read */
    MUTANT_NO_BUDGET,       /* the controller is not told of the budget */
    MUTANT_COUNT
};

struct mutant_row {
    const char *name;
    const char *check; /* what must fire */
};
extern const struct mutant_row mutant_rows[MUTANT_COUNT];

/* Starts the stream of faults that come by themselves; it ends at world->heal_us. */
struct world;
void faults_begin(struct world *w);

/* Enabled, and the time of faults is not over; faults_hit also asks chance. */
bool faults_are_on(const struct world *w, enum fault_kind kind);
bool faults_hit(struct world *w, enum fault_kind kind, double p);
