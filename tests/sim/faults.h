/* faults.h - the kinds of faults that a world may have, and the mutants that prove its checks.
 *
 * Layer: tests/sim
 * Swarm: each seed enables each kind with p = 1/2, so that the enabled ones meet each other and the
 *        others do not hide a defect that shows only without them.
 * Mutants are bugs planted in the world, not in the product: with each, one named check must
 * fire. They show that the checks can fail.
 */
#pragma once
#include "base/core/rng.h"

#include <stdbool.h>

enum fault_kind {
    FAULT_LOSS,            /* reports, syncs and their replies get lost */
    FAULT_SLOW_NET,        /* they take up to seconds, and overtake each other */
    FAULT_CUT_UP,          /* one-way: nothing reaches the controller from one peer */
    FAULT_CUT_DOWN,        /* one-way: no reply of the controller reaches one peer */
    FAULT_CUT_ALL,         /* the controller hears no peer; the cloud still answers it */
    FAULT_STOCK_OUT,       /* create: no capacity */
    FAULT_THROTTLE,        /* create: too many calls */
    FAULT_LOST_REPLY,      /* create and remove: done, but the reply is lost */
    FAULT_LATE_SUCCESS,    /* create: timed out, and done seconds later */
    FAULT_CLOUD_DOWN,      /* any call: timed out, not done */
    FAULT_LISTING_LAG,     /* listings are up to 7 s old */
    FAULT_SLOW_BOOT,       /* a machine boots late, or never */
    FAULT_MACHINE_DIES,    /* a machine dies without notice */
    FAULT_NOTICE,          /* the provider takes a machine away after a notice */
    FAULT_PRICE_UNKNOWN,   /* no price is known for a while */
    FAULT_CRASH,           /* an engine's process dies */
    FAULT_HANG,            /* an engine makes no progress and does not answer its agent */
    FAULT_START_FAILS,     /* an engine's process dies before it is ready */
    FAULT_OVERLOAD,        /* an engine answers 503 at random */
    FAULT_NO_PERF,         /* engines never fit their speed */
    FAULT_CONTROLLER_DIES, /* it dies anywhere between two events */
    FAULT_CONTROLLER_STEP, /* it dies at an armed step between a write and a call */
    FAULT_DISK_FULL,       /* one write of the store fails */
    FAULT_STORE_LOST,      /* the controller comes back on an empty store */
    FAULT_ROUTER_RESTARTS, /* a router restarts and forgets everything */
    FAULT_CLIENTS_LEAVE,
    FAULT_CLOCK_SKEW, /* boot clocks run at different speeds, dates differ */
    FAULT_CLOCK_STEP, /* a date is set, by up to an hour in either direction */
    FAULT_STOPPED,    /* a process does not run for a while (SIGSTOP) */
    FAULT_STUCK,      /* an engine's device makes no step, while its loop goes on */
    FAULT_CUT_TO,     /* one-way: nothing of one router reaches one engine */
    FAULT_CUT_FROM,   /* one-way: nothing of one engine reaches one router */
    FAULT_SHORT,      /* a process is short of descriptors and can begin no call for a while */
    FAULT_TWICE,      /* reports and syncs arrive twice, at different times */
    FAULT_SLOW_STORE, /* a write takes seconds and holds up the controller */
    FAULT_DAMAGE,     /* the controller comes back to a record that is torn or gone */
    FAULT_RESOLVER,   /* names that a process does not know yet cannot be resolved */
    FAULT_VERSIONS,   /* messages have fields of a newer release, or lack one of today's */
    FAULT_SLOW_CLOUD, /* calls take up to 40 s, listings are rare and calls are limited in rate */
    FAULT_TWO, /* two controllers share the store; faults of the controller strike the leader */
    FAULT_STORE_AWAY, /* one of the two cannot reach the store for a while */
    FAULT_KIND_COUNT
};
extern const char *const fault_names[FAULT_KIND_COUNT];

struct faults {
    bool on[FAULT_KIND_COUNT];
    struct rng rng[FAULT_KIND_COUNT]; /* draws the times of each kind */
};

/* Draws the kinds that are on. Kinds from `kinds` on stay off, as in a seed that was recorded before they
 * were added. */
void faults_draw(struct faults *f, uint64_t seed, uint32_t kinds);

enum mutant {
    MUTANT_NONE,
    MUTANT_ABSENT_IS_ZERO,  /* a lost report or sync arrives as one that says zero */
    MUTANT_KEYLESS,         /* the provider ignores the idempotency key */
    MUTANT_LOAD_IS_ZERO,    /* the agent's supervisor is told that nothing is in flight */
    MUTANT_REMOVE_DOES_NOT, /* the provider says removed, and goes on billing */
    MUTANT_LOST_END,        /* a router misses the ends of streams, and clients that leave */
    MUTANT_LOST_TOKENS,     /* a piece in the middle of a stream is lost */
    MUTANT_BEGINS_ANEW,     /* the next engine starts anew an output that a client has a part of */
    MUTANT_LEAVE_FORGOTTEN, /* the router forgets to tell its dispatch that a client left */
    MUTANT_FREE_RETRIES,    /* the router treats every failure as one that costs no retry */
    MUTANT_HOLD_FOR_EVER,   /* the router forgets its timer of held requests */
    MUTANT_SOLD_OUT,        /* no offer can be had, ever */
    MUTANT_NEVER_READY,     /* engines die before they are ready, for ever */
    MUTANT_PHANTOM_HELD,    /* the router says for ever that it holds a request */
    MUTANT_FREE_PRICE,      /* an unknown price is given as zero */
    MUTANT_STORE_FORGETS,   /* the store is empty after each restart, and listings for a while */
    MUTANT_STORE_DAMAGED,   /* a record is overwritten */
    MUTANT_OWN_CLOCK,       /* a decision depends on the real clock */
    MUTANT_DATES,           /* the controller counts in dates */
    MUTANT_NEVER_LATE,      /* the controller does not know that its ticks come late */
    MUTANT_AGENT_PUNCTUAL,  /* agents do not know that their looks come late */
    MUTANT_TWO_ENDS,        /* a client is told twice how its request ended */
    MUTANT_STALLED,         /* an engine makes no step and looks well */
    MUTANT_DEAF,            /* a router ignores the silence of engines */
    MUTANT_NO_EXCUSE,       /* an agent that could not ask its engine counts that as silence */
    MUTANT_SHORT_IS_FAR,    /* a router short of descriptors blames the engine as unreachable */
    MUTANT_FORGED_RECORD,   /* a stored record is wrong but readable */
    MUTANT_NO_BUDGET,       /* the controller is not told of the budget */
    MUTANT_HASTY,           /* a controller that stands by does not wait for the end of the lease */
    MUTANT_UNFENCED,        /* one that was deposed goes on calling the provider */
    MUTANT_COUNT
};

struct mutant_row {
    const char *name;
    const char *check; /* the one that must fire */
};
extern const struct mutant_row mutant_rows[MUTANT_COUNT];

/* Starts the faults that come by themselves; they end at world->heal_us. */
struct world;
void faults_begin(struct world *w);

/* Return true if the kind is enabled and the time of faults is not over; faults_hit also needs luck of
 * probability p. */
bool faults_are_on(const struct world *w, enum fault_kind kind);
bool faults_hit(struct world *w, enum fault_kind kind, double p);
