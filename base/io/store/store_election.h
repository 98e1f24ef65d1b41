/* store_election.h - decides when a process may take a store's lease, and until when it may believe that it
 * leads.
 *
 *     STANDBY: look at the lease ── it did not change for its whole term, and the slack ──► take it
 *     LEADER:  renew ── no renewal succeeded for a whole term, or a call was refused ──► STANDBY
 *
 * A store that lost content is written anew from the copy of the process that takes the lease. It should be
 * the last leader's, which alone has all that was acknowledged:
 *
 *     the last leader, its term not over by its clock: take it at once
 *     the last leader, its term over:                  as above
 *     any other process:                               as above, one term later
 *
 * Layer:   base/io (base/core): no I/O, no clock; the caller asks the store and says what came of it
 * Threads: the owner's
 * Rules:   (1) time is the caller's own boot clock. No clock of the store and no date is used: a step of
 *              the server's date would end a term too early
 *          (2) a term holds from the moment at which its last good renewal was *sent*. A candidate waits
 *              from the moment at which it *heard* of that renewal, and ELECTION_SLACK longer: with clocks
 *              whose speeds differ by less than that, no two processes believe at one time
 *          (3) a look that comes late, or over another connection, proves nothing about the time before
 *              it: the wait begins anew. A store without a lease may have lost it, and is waited for too
 *          (4) a lease that was given back is taken at once, unless the connection is younger than a
 *              term: the server behind it may have gone back to an older content
 *          (5) the lease of a store that is not shared is taken at once and held for ever
 *          (6) a store has lost content if it says so (store_lease.lost), or if its lease is older than one
 *              that was seen before; it may have behind a new connection. While the term of a leader that
 *              gave nothing back goes on by its own clock, nobody else can have waited for its end: it may
 *              take such a lease without a wait. The wait of the others is bounded: a leader that is gone
 *              with the store's content is missed for one term
 */
#pragma once
#include "base/io/store/store.h"

#define ELECTION_SLACK 8  /* an eighth of the term */
#define ELECTION_RENEW 3  /* renewals in a term */
#define ELECTION_LOOKS 8  /* looks of a candidate in a term */
#define ELECTION_AGAIN 12 /* tries in a term while renewals fail */

enum election_act {
    ELECTION_WAIT,    /* nothing is due before election_again_us */
    ELECTION_SEE,     /* store_lease_see, then election_saw */
    ELECTION_ACQUIRE, /* store_lease_acquire over `seen`, then election_acquired */
    ELECTION_RENEW_IT /* store_lease_renew, then election_renewed */
};

struct election {
    int64_t term_us; /* set by the owner, as is the next */
    bool shared;
    char holder[STORE_HOLDER_BYTES]; /* ours */

    bool leads;
    uint64_t epoch;     /* of our term, or the highest that we heard of */
    int64_t until_us;   /* our term ends then, or would, had the store not refused a call */
    uint64_t own_epoch; /* of our last term; 0: we never led */
    /* The latest lease that the store ever had, as far as we know. */
    uint64_t heard_epoch, heard_beat;
    int64_t due_us; /* the next look or renewal */
    bool has_seen;  /* the next two hold */
    struct store_lease seen;
    bool lost; /* the store has lost content; `seen` is what is left */
    /* `seen` came over another connection than the look before, and has not changed since. */
    bool moved;
    int64_t since_us;  /* `seen` has not changed since then */
    int64_t line_us;   /* nor has its connection since then */
    int64_t looked_us; /* when it was seen last */
};

/* Returns what to do now. Ends the term first if its time is over. */
enum election_act election_turn(struct election *e, int64_t now_us);
int64_t
election_again_us(const struct election *e); /* when to ask again, unless something happens */

/* These take the result of a call that was made at `asked_us` and ended at `now_us`. */
void election_saw(struct election *e, int rc, const struct store_lease *lease, int64_t asked_us,
                  int64_t now_us);
void election_acquired(struct election *e, int rc, uint64_t epoch, int64_t asked_us,
                       int64_t now_us);
void election_renewed(struct election *e, int rc, int64_t asked_us, int64_t now_us);

/* Ends the term at once: a write was refused, the reply of one was lost, or the process ends. `gives_back`: the
 * caller gives the lease back, so that others need not wait for the end of the term. */
void election_lost(struct election *e, bool gives_back, int64_t now_us);

/* Returns true if nobody has led since our last term, as far as we know: our copy of the store is exact. */
bool election_is_last(const struct election *e);

/* Returns true if we lead at this moment. */
bool election_leads(const struct election *e, int64_t now_us);

/* Returns the address of another process that leads, as far as is known; empty: unknown. */
struct str election_leader(const struct election *e);
