/* cloud.h - defines the interface between the controller and a provider of machines.
 *
 * Layer:    controller/cloud (controller/core)
 * Threads:  the controller's loop calls; nothing here waits. A client library that waits is a
 *           cloud_backend and runs behind cloud_thread.h
 * Rules:    (1) submit takes a call and returns at once. Every call that was taken completes exactly
 *               once, with an event that next() hands out; a driver ends a call that its provider
 *               does not answer with OFFER_TRANSIENT
 *           (2) one listing and one request for prices are under way at a time
 *           (3) create is idempotent by intent id: asked twice it makes one instance and completes
 *               with it. A driver for a provider without idempotency keys puts the id into the
 *               instance's name and looks it up first; the merge finds a duplicate that slips through
 *           (4) everything created carries the intent, service, pool and offer as tags from the
 *               first moment it is listed
 *           (5) an error says whether something may have been made: only OFFER_TRANSIENT leaves
 *               that open
 *           (6) a listing shows every instance under our tag, whoever made it; it may lag by
 *               lag_us behind the moment at which it was submitted
 *           (7) remove is idempotent: an instance that is gone is removed
 *           (8) prices are asked for, never written into code; an unknown price is not zero
 *           (9) time is an argument (fleet time, controller/core/fleet_time.h)
 *          (10) a call carries the epoch of the term that submits it. A driver with a fence looks at it
 *               when it is about to make the call: in another term, or after its end, the call is not
 *               made and completes with -EKEYREVOKED. A provider that can keep a number keeps the highest
 *               epoch and refuses lower ones: also those of a process that was stopped after its look
 */
#pragma once
#include "base/wire/launch.h"
#include "controller/cloud/cloud_told.h"
#include "controller/core/intent.h"
#include "controller/core/merge.h"

#include <stdatomic.h>

#define CLOUD_LIST_MAX 1024   /* instances of one listing; more is an error, not a cut */
#define CLOUD_CALLS_MAX 64    /* under way at one provider */
#define CLOUD_PRICES_MAX 64   /* offers of one provider */
#define CLOUD_POLL_US 1000000 /* between listings, unless the configuration says otherwise */

enum cloud_op {
    CLOUD_NONE,
    CLOUD_CREATE,
    CLOUD_REMOVE,
    CLOUD_STOP,  /* these two only of an offer that `stops` */
    CLOUD_START, /* its instance's handle is the idempotency key: one that runs is left as it is */
    CLOUD_LIST,
    CLOUD_PRICES,
    CLOUD_OP_COUNT
};
extern const char *const cloud_op_names[CLOUD_OP_COUNT];

struct cloud_request {
    const char *intent; /* the idempotency key and the tag */
    const struct offer *offer;
    const struct launch_spec *spec; /* handed to the instance as it is, see launch.h */
    struct str key; /* for a private file of the instance, which spec.secret_file then names; empty:
                       spec.secret_file is the fleet's own. Where the cloud `joins`: a one-time token */
    bool stops; /* its pool keeps instances stopped: one that switches itself off must not end */
};

/* The term of this process. The loop writes it, drivers read it on any thread. */
struct cloud_fence {
    _Atomic uint64_t epoch;   /* 0: there is no term */
    _Atomic int64_t until_us; /* its end, on the boot clock */
};

static inline bool cloud_fence_holds(const struct cloud_fence *f, uint64_t epoch, int64_t mono_us)
{
    return !f || (atomic_load(&f->epoch) == epoch && mono_us < atomic_load(&f->until_us));
}

/* One call; everything it points to is borrowed until submit returns. */
struct cloud_call {
    enum cloud_op op;
    uint64_t id;                 /* the caller's, never given twice; the event carries it */
    uint64_t epoch;              /* of the caller's term; 0: it has none */
    struct cloud_request create; /* CREATE */
    /* REMOVE, STOP, START; of a REMOVE empty: by the intent's tag, its create reply was lost. */
    const char *handle;
    const char *intent; /* likewise */
};

struct cloud_price {
    char offer[NAME_BYTES];
    bool known; /* false: the provider does not say */
    double price_h;
    bool is_default; /* as offer.price_default; the next ones as in struct offer too */
    bool room_known;
    uint32_t nodes, room;
    bool reserved_known; /* the next is the provider's own word, in place of the configuration's */
    uint32_t reserved;   /* as in struct offer */
    char hardware[NAME_BYTES];
};

/* The end of a call. */
struct cloud_event {
    uint64_t id;
    enum cloud_op op;
    int rc;                 /* 0, or a negative errno */
    enum offer_error class; /* CREATE, STOP, START, when rc < 0 */
    struct err err;
    uint64_t epoch_seen;       /* -EKEYREVOKED of the provider: the epoch that it keeps; else 0 */
    struct listed made;        /* CREATE */
    const struct listed *item; /* LIST: until the next listing is submitted */
    uint32_t count;            /* LIST, PRICES */
    struct cloud_price price[CLOUD_PRICES_MAX];
};

struct cloud_driver {
    const char *name;  /* as in the configuration and in intents */
    const char *about; /* docs table */

    void (*close)(void *ctx);

    /* Lists the offers, from the configuration or the driver's own table, without a call to the
     * provider. Writes up to `max`, sets *ret_count. */
    int (*offers)(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err);

    /* Takes a copy of the call. -EBUSY: CLOUD_CALLS_MAX are under way; -ENOMEM. Either way the
     * caller asks again later. */
    int (*submit)(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err);

    /* Fills the next completion; false: there is none. */
    bool (*next)(void *ctx, int64_t now_us, struct cloud_event *ret);

    /* Names a function to be called, from any thread, when an event has come; optional: a driver
     * without it is asked at each tick. fn NULL: no longer. */
    void (*watch)(void *ctx, void (*fn)(void *arg), void *arg);

    /* Returns true once after an instance began to leave, or ended, by somebody else's hand: the next listing
     * should not wait for its turn. Optional, for drivers whose listings cost no call. */
    bool (*has_news)(void *ctx);

    /* Tells fn of what no listing shows and no instance needs, and with `remove` removes it. Optional.
     * It makes no call to a provider, and leaves alone what a create may be making. */
    int (*leftovers)(void *ctx, bool remove, cloud_leftover_fn fn, void *arg, struct err *err);
};

/* A driver with its state and its pace. */
struct cloud {
    const struct cloud_driver *driver;
    void *ctx;
    int64_t lag_us;     /* of its listings */
    int64_t poll_us;    /* between two listings; 0: one with each tick */
    double calls_per_s; /* budget for all its calls together; 0: unlimited */
    /* a create makes several things: it is repeated until a reply says that all are there */
    bool in_parts;
    /* Whoever reads the provider's records reads what instances are given: a one-time token instead of a key
     * (core/join.h) */
    bool joins;
    const struct cloud_fence *fence; /* NULL: no other process makes calls */
};

static inline void cloud_close(struct cloud *c)
{
    if (c->driver) c->driver->close(c->ctx);
    c->driver = NULL;
    c->ctx = NULL;
}

/* A provider's client that waits for each reply: the same calls as functions. cloud_thread.h runs it,
 * and in tests cloud_fake.h. One thread at a time calls, but for offers and leftovers. */
struct cloud_backend {
    const char *name, *about;
    void (*close)(void *ctx);
    int (*offers)(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err);

    /* 0 and *ret, or a negative errno, *ret_class and a sentence. */
    int (*create)(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err);

    /* Lists all under our tag. -E2BIG beyond `max`. */
    int (*list)(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err);

    /* 0: gone or going; the listing tells when. */
    int (*remove)(void *ctx, const char *handle, const char *intent, int64_t now_us,
                  struct err *err);

    /* Stops an instance, or starts it again; NULL: it sells no offer that `stops`. 0: it is so, or will be. */
    int (*turn)(void *ctx, const char *handle, const char *intent, bool on, int64_t now_us,
                enum offer_error *ret_class, struct err *err);

    int (*prices)(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err);

    /* Keeps the epoch if it is the highest so far. -EKEYREVOKED with *ret_seen: a higher one was seen, and
     * the call that was about to be made is not. Optional: before each call with an epoch. */
    int (*fence)(void *ctx, uint64_t epoch, uint64_t *ret_seen, struct err *err);
    int (*leftovers)(void *ctx, bool remove, cloud_leftover_fn fn, void *arg,
                     struct err *err); /* as the driver's; optional; any thread */

    /* Tells whether instances can be made with this configuration: reachable, credentials, rights, quota.
     * Optional. It may wait for the provider, and makes nothing. */
    void (*check)(void *ctx, cloud_finding_fn fn, void *arg);
};
