/* offer.h - what a provider sells, and what we remember of its refusals.
 *
 * Layer:   controller/core (base/core, base/perf/perf.h)
 * Threads: pure
 * Rules:   each class of error has its own back-off: a sold-out type is asked again after a while,
 *          a wrong credential is not worth asking for long, a throttle passes within seconds. A
 *          success forgets all but what is counted.
 */
#pragma once
#include "base/perf/perf.h"
#include "controller/core/intent.h"

enum offer_error {
    OFFER_OK,
    OFFER_CAPACITY,  /* sold out: nothing was made */
    OFFER_QUOTA,     /* our limit at the provider is reached: nothing was made */
    OFFER_THROTTLE,  /* too many calls: nothing was made */
    OFFER_AUTH,      /* refused to talk to us: nothing was made */
    OFFER_INVALID,   /* it does not understand what we ask: nothing was made */
    OFFER_TRANSIENT, /* no answer, or one that says nothing: it may have been made */
    OFFER_ERROR_COUNT
};
extern const char *const offer_error_names[OFFER_ERROR_COUNT];

struct offer {
    char name[NAME_BYTES], provider[NAME_BYTES];
    char zone[NAME_BYTES]; /* losses of one zone come together; empty: the provider's only one */
    double price_h;
    bool price_known;
    bool spot;     /* the provider may take it away */
    double lead_s; /* from the create call to ready: learned, or the provider's word */
    double share;  /* of a core or device; for people */
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
    uint32_t refused; /* answers without capacity, since we know the offer */
    uint32_t lost;    /* instances that the provider took away, likewise */
};

/* Records an answer of the provider (OFFER_OK: success). */
void offer_answered(struct offer_health *h, enum offer_error e, const char *text, int64_t now_us);

static inline bool offer_may_be_asked(const struct offer_health *h, int64_t now_us)
{
    return now_us >= h->until_us;
}

/* Learned lead time: an exponential mean over launches, from the provider's word on. */
void offer_learn_lead(struct offer *o, double seconds);
