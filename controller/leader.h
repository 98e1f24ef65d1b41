/* leader.h - holds the store's lease for this process, and says when a term of leadership begins and ends.
 *
 * Layer:    controller (base/io)
 * Threads:  the loop's; threads of clouds read the fence
 * Lifetime: the loop and the configuration outlive it
 * Rules:    (1) between on_begin and on_end this process leads; both are called from the loop's turn, never
 *               from inside a call of the controller
 *           (2) leader_leads asks the clock: after a stop of the process it is false before any timer fires
 *           (3) while the store is away a term goes on to its end, and no other begins
 */
#pragma once
#include "base/core/own.h"
#include "base/io/loop/loop.h"
#include "base/io/metrics.h"
#include "base/io/store/store.h"
#include "controller/cloud/cloud.h"

struct leader;

struct leader_config { /* strings are copied */
    struct loop *loop;
    struct store *store; /* borrowed */
    struct metrics *metrics;
    struct cloud_fence *fence; /* set as terms begin, are renewed and end */
    struct str address;        /* [https://]HOST:PORT at which others reach us; no blanks */
    int64_t term_us;

    /* A term of this epoch begins. A failure is the end of it; it is tried again with another term. */
    int (*on_begin)(void *arg, uint64_t epoch, struct err *err);
    void (*on_end)(void *arg);
    void (*on_standby)(void *arg); /* we have looked, and another leads */
    void *arg;
};

/* Takes the lease at once if the store is ours alone: then a failure of on_begin is returned. Otherwise the
 * process stands by and tries from the loop. */
int leader_new(const struct leader_config *config, struct leader **ret, struct err *err);

/* Gives the lease back and ends the term. */
void leader_free(struct leader *l);
CLEANUP_FREEP(leader, struct leader)

/* Returns true if this process leads at this moment. */
bool leader_leads(void *l);

/* Ends a term that is over, if the store or a provider said so in the calls since; after each tick. `epoch_seen`
 * is control_epoch_seen. */
void leader_check(struct leader *l, uint64_t epoch_seen);

/* Returns what the term found lost in the store when it began, as a sentence; NULL: nothing. */
const char *leader_found(const struct leader *l);

/* Returns the address of the process that leads, as it gave it; empty: unknown, or it is us. */
struct str leader_address(const struct leader *l);
