/* intent.h - keeps the durable wish behind one instance, from the decision to its end.
 *
 * Layer:   controller/core (base/wire, base/perf, base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) an intent is written before the call that can cost money, and its state is written
 *              before each call that the new state stands for
 *          (2) its id is the idempotency key of the create call, the tag of what is created and
 *              the id of the instance: one instance per intent by construction
 *          (3) an ended intent is remembered for a while (tombstone), so that an instance that
 *              appears late, or is still listed, is removed and not adopted
 *          (4) every action may be carried out again: after a crash, or when its reply was lost
 *
 *      WANTED -> CREATING -> CREATED -> REGISTERED -> DRAINING -> ENDING -> ENDED
 *                   |           ^ |          |           |           ^
 *                   +-----------|-+----------+--- end, late, lost ---+
 *                               |                        v           |
 *                            STARTING <--- STOPPED <- STOPPING ------+
 *
 *          A drained instance may be kept stopped: its provider bills its disk alone, and the next launch of its
 *          pool at its offer starts it again under the same id, which is the idempotency key of that, too
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/perf/perf.h"
#include "controller/core/cost.h"
#include "controller/core/offer.h"

#define INTENT_MARK_BYTES 33 /* JOIN_MARK_BYTES of base/io/auth/join.h */
#define INTENT_ID_BYTES 16   /* "i-" and 12 hexadecimal digits, NUL and one spare */

enum intent_state {
    INTENT_WANTED,     /* written; nothing was asked of the provider */
    INTENT_CREATING,   /* the create call was made, or is about to be */
    INTENT_CREATED,    /* the provider has it */
    INTENT_REGISTERED, /* its agent has reported */
    INTENT_DRAINING,
    INTENT_STOPPING, /* the stop call was made, or is about to be */
    INTENT_STOPPED,  /* kept at the provider, billed for its disk */
    INTENT_STARTING, /* the start call was made, or is about to be */
    INTENT_ENDING,   /* the remove call was made, or is about to be */
    INTENT_ENDED,
    INTENT_STATE_COUNT
};

extern const char *const intent_state_names[INTENT_STATE_COUNT];

enum intent_event {
    INTENT_GO,       /* the create call may be made */
    INTENT_MADE,     /* the create call's reply: it exists */
    INTENT_REFUSED,  /* the create call's reply: it does not */
    INTENT_UNSURE,   /* the reply was lost */
    INTENT_LISTED,   /* the provider lists it */
    INTENT_ABSENT,   /* a listing that would have to hold it does not */
    INTENT_REPORTED, /* its agent reports */
    INTENT_DRAIN,    /* the plan wants it drained, or cancelled while it serves no request yet */
    INTENT_KEEP,     /* the plan wants it after all */
    INTENT_DRAINED,  /* its agent reports that engine and work are gone */
    INTENT_END,      /* the plan, or a person, wants it gone */
    INTENT_LATE,     /* over the deadline of its state */
    INTENT_PARK,     /* drained, and its pool keeps it stopped */
    INTENT_HALTED,   /* the provider lists it as stopped */
    INTENT_WAKE,     /* the plan wants a stopped one again */
    INTENT_EVENT_COUNT
};

extern const char *const intent_event_names[INTENT_EVENT_COUNT];
enum intent_action {
    INTENT_NOTHING,
    INTENT_CALL_CREATE,
    INTENT_CALL_REMOVE,
    INTENT_CALL_STOP,
    INTENT_CALL_START,
    INTENT_ACTION_COUNT
};

struct intent_cell {
    bool possible;
    enum intent_state next;
    enum intent_action action;
};

struct intent_cell intent_cell(enum intent_state s, enum intent_event e);

/* Times are fleet time (fleet_time.h), which outlives the controller; 0: not yet. */
struct intent {
    char id[INTENT_ID_BYTES];
    char service[NAME_BYTES], pool[NAME_BYTES], provider[NAME_BYTES], offer[NAME_BYTES];
    char handle[NAME_BYTES]; /* the provider's own name; empty until it is known */
    enum intent_state state;
    char why[INTENT_WHY_BYTES]; /* of the last change, for people */
    double price_h;             /* agreed at launch, then as the provider bills it */
    int64_t age_limit_us;       /* hard limit on its life; 0: none */
    int64_t wanted_us, called_us, made_us, registered_us, drain_us, removed_us, ended_us;
    int64_t state_us; /* since when it is in this state */
    struct charge charge;
    uint32_t calls;               /* create calls made */
    uint32_t starts;              /* times that it was started again after a stop */
    char mark[INTENT_MARK_BYTES]; /* of what its machine was told at the create; empty: not known */
    char joined[INTENT_MARK_BYTES];  /* mark of the agent that joined (join.h); empty: none */
    int64_t joined_us, contested_us; /* contested: another agent showed the same token then */
    bool adopted;                    /* found at the provider without an intent */
    bool let_go;                     /* a person drains it: the plan does not withdraw that */
    bool aside;       /* its record cannot be read: in memory only, and never ended */
    uint64_t version; /* of the stored record; 0: never stored */
};

static inline bool intent_is_live(const struct intent *i)
{
    return i->state != INTENT_ENDED;
}

/* Returns true if it costs money, as far as is known. */
static inline bool intent_is_billed(const struct intent *i)
{
    return i->state >= INTENT_CREATING && i->state != INTENT_ENDED;
}

/* Returns true if the instance is stopped, or on its way there or back. */
static inline bool intent_is_parked(const struct intent *i)
{
    return i->state >= INTENT_STOPPING && i->state <= INTENT_STARTING;
}

/* Applies an event: changes state and times, and returns the action to take once the intent is
 * durable. `why` may be NULL: the event's own words. An impossible event is our bug (must). */
enum intent_action intent_step(struct intent *i, enum intent_event e, const char *why,
                               int64_t now_us);

/* The stored form. Decode leaves version alone. */
int intent_encode(const struct intent *i, struct buf *out);
int intent_decode(struct str text, struct arena *arena, struct intent *ret, struct err *err);

/* Copies a name into a fixed field; -E2BIG when it does not fit (nothing is cut). */
int name_copy(char *to, size_t size, struct str from);
