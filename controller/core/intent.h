/* intent.h - keeps the durable wish behind one instance, from the decision to its end, and the back-off of
 * a provider's offers.
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
 *                   |           |            |                       ^
 *                   +-----------+------------+--- end, late, lost ---+
 *
 * Offers:  each class of error has its own back-off: a sold-out type is asked again after a while,
 *          a wrong credential is not tried again for long, a throttle passes within seconds. A
 *          success clears all but the counts
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/perf/perf.h"
#include "controller/core/cost.h"

#define NAME_BYTES 64 /* of ids and names, NUL included */
#define INTENT_WHY_BYTES 192
#define INTENT_MARK_BYTES 33 /* JOIN_MARK_BYTES of base/io/auth/join.h */
#define INTENT_ID_BYTES 16   /* "i-" and 12 hexadecimal digits, NUL and one spare */

enum intent_state {
    INTENT_WANTED,     /* written; nothing was asked of the provider */
    INTENT_CREATING,   /* the create call was made, or is about to be */
    INTENT_CREATED,    /* the provider has it */
    INTENT_REGISTERED, /* its agent has reported */
    INTENT_DRAINING,
    INTENT_ENDING, /* the remove call was made, or is about to be */
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
    INTENT_EVENT_COUNT
};

extern const char *const intent_event_names[INTENT_EVENT_COUNT];
enum intent_action { INTENT_NOTHING, INTENT_CALL_CREATE, INTENT_CALL_REMOVE, INTENT_ACTION_COUNT };

struct hardware;

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
    uint32_t calls;                  /* create calls made */
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

/* Applies an event: changes state and times, and returns the action to take once the intent is
 * durable. `why` may be NULL: the event's own words. An impossible event is our bug (must). */
enum intent_action intent_step(struct intent *i, enum intent_event e, const char *why,
                               int64_t now_us);

/* The stored form. Decode leaves version alone. */
int intent_encode(const struct intent *i, struct buf *out);
int intent_decode(struct str text, struct arena *arena, struct intent *ret, struct err *err);

/* Copies a name into a fixed field; -E2BIG when it does not fit (nothing is cut). */
int name_copy(char *to, size_t size, struct str from);

enum offer_error {
    OFFER_OK,
    OFFER_CAPACITY,  /* sold out: nothing was made */
    OFFER_QUOTA,     /* our limit at the provider is reached: nothing was made */
    OFFER_THROTTLE,  /* too many calls: nothing was made */
    OFFER_AUTH,      /* refused to talk to us: nothing was made */
    OFFER_INVALID,   /* it does not understand the request: nothing was made */
    OFFER_TRANSIENT, /* no reply, or an unclear one: it may have been made */
    OFFER_ERROR_COUNT
};

extern const char *const offer_error_names[OFFER_ERROR_COUNT];

/* Where the time of a launch goes, as far as a provider, or the machine itself, tells it. */
enum lead_phase {
    LEAD_SCHEDULE, /* until a machine that was there takes it */
    LEAD_NODE,     /* until a machine that had to be added takes it */
    LEAD_BOOT,     /* until that machine runs its user data */
    LEAD_PULL,     /* from there until its program runs: image, volumes, what comes before it */
    LEAD_LOAD,     /* until its engine takes requests */
    LEAD_WARM,     /* until the controller counts it as serving */
    LEAD_PHASE_COUNT
};
extern const char *const lead_phase_names[LEAD_PHASE_COUNT];

/* The phases of one launch, or what was learned of an offer's launches. */
struct lead {
    bool known[LEAD_PHASE_COUNT];
    double s[LEAD_PHASE_COUNT];
};

struct offer {
    char name[NAME_BYTES], provider[NAME_BYTES];
    char zone[NAME_BYTES]; /* losses of one zone come together; empty: the provider's only one */
    double price_h;        /* disk included */
    bool price_known;
    struct billing billing;
    double disk_h;     /* the part of the price that providers do not tell */
    double start_usd;  /* of each start: what it pulls */
    uint32_t reserved; /* instances that are paid for whether they run or not */
    bool spot;         /* the provider may take it away */
    double lead_s;     /* from the create call to ready: learned, or the provider's figure */
    struct lead lead;  /* its phases, learned; none known: the provider does not tell them */
    double share;      /* of a core or device; for people */
    char hardware[NAME_BYTES];   /* of an instance; for people; empty: not said */
    const struct hardware *sold; /* what it is said to compute with; NULL: not said */
    bool room_known;             /* the next two are said */
    uint32_t nodes, room;        /* machines that it is made of, and instances that they hold */
    bool price_default; /* its price is a default of the configuration, not the provider's */
    uint32_t seqs_max;
    uint64_t kv_tokens_max; /* of an instance; 0: unknown */
    uint32_t step_tokens;   /* prompt tokens that a step of it carries; 0: unknown */
    bool has_prior;         /* perf is known before any instance reported */
    struct perf_coef prior;
};

struct offer_health {
    enum offer_error last;
    uint32_t failures; /* in a row */
    int64_t until_us;  /* do not ask before */
    char text[INTENT_WHY_BYTES];
    uint32_t refused; /* refusals for want of capacity since the controller started */
    uint32_t lost;    /* instances that the provider took away, likewise */
};

/* Records a reply of the provider (OFFER_OK: success). */
void offer_answered(struct offer_health *h, enum offer_error e, const char *text, int64_t now_us);

static inline bool offer_may_be_asked(const struct offer_health *h, int64_t now_us)
{
    return now_us >= h->until_us;
}

/* Update the learned lead time, or its known phases: an exponential mean that begins at the provider's figure. */
void offer_learn_lead(struct offer *o, double seconds);
void offer_learn_phases(struct offer *o, const struct lead *launch);

/* Returns the seconds until an instance of the offer that is being started is expected to serve: what was learned of
 * the whole launch, or of its last phases once the agent has reported. One that is late takes longer by a part of
 * the time that it has taken. 1 at least. */
double offer_left_s(const struct offer *o, const struct intent *i, int64_t now_us);
