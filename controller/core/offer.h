/* offer.h - keeps what providers sell: prices, learned lead times, and the back-off after refusals.
 *
 * Layer:   controller/core (base/perf, base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   each class of error has its own back-off: a sold-out type is asked again after a while, a wrong credential
 *          is not tried again for long, a throttle passes within seconds. A success clears all but the counts
 */
#pragma once
#include "base/perf/perf.h"
#include "controller/core/cost.h"

#define NAME_BYTES 64 /* of ids and names, NUL included */
#define INTENT_WHY_BYTES 192

struct hardware;
struct intent;

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
    bool stops;        /* it can be stopped and started again, and then only its disk is billed */
    double lead_s;     /* from the create call to ready: learned, or the provider's figure */
    double restart_s;  /* the same from the start call of a stopped one; 0: none was seen yet */
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

/* Returns how long a launch takes: of a stopped instance that is started again, or of a new one. Until a start was seen
 * it is taken to take as long: nothing shorter is proven. */
static inline double offer_lead_s(const struct offer *o, bool again)
{
    return again && o->restart_s > 0 ? o->restart_s : o->lead_s;
}

/* Learns what the start of a stopped instance took. */
void offer_learn_restart(struct offer *o, double seconds);

/* Update the learned lead time, or its known phases: an exponential mean that begins at the provider's figure. */
void offer_learn_lead(struct offer *o, double seconds);
void offer_learn_phases(struct offer *o, const struct lead *launch);

/* Returns the seconds until an instance of the offer that is being started is expected to serve: what was learned of
 * the whole launch, or of its last phases once the agent has reported. One that is late takes longer by a part of
 * the time that it has taken. 1 at least. */
double offer_left_s(const struct offer *o, const struct intent *i, int64_t now_us);
