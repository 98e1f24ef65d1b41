/* cloud.h - what the controller asks of whoever has machines.
 *
 * Layer:    controller/cloud (controller/core, base/io)
 * Threads:  the controller's loop; a call blocks for a second at most
 * Rules:    (1) create is idempotent by intent id: asked twice it makes one instance and answers
 *               with it. A provider without idempotency keys puts the id into the instance's name
 *               and looks it up first; what slips through, the merge finds (a duplicate).
 *           (2) everything created carries the intent, service, pool and offer as tags from the
 *               first moment it is listed
 *           (3) an error says whether something may have been made: only OFFER_TRANSIENT leaves
 *               that open
 *           (4) list shows everything under our tag, however it came to be; it may lag by lag_us
 *           (5) remove is idempotent: what is gone is removed
 *           (6) prices are asked for, never written into code; an unknown price is not zero
 *           (7) time is an argument (fleet time, controller/core/fleet_time.h)
 */
#pragma once
#include "base/wire/launch.h"
#include "controller/core/merge.h"
#include "controller/core/offer.h"

#define CLOUD_LIST_MAX 1024 /* instances of one listing; more is an error, not a cut */

struct cloud_request {
    const char *intent; /* the idempotency key and the tag */
    const struct offer *offer;
    const struct launch_spec *spec; /* handed to the instance as it is, see launch.h */
    struct str key; /* for a private file of the instance, which spec.secret_file then names; empty:
                       spec.secret_file is the fleet's own */
};

struct cloud_notice { /* the provider will take an instance away */
    char handle[NAME_BYTES];
};

struct cloud_driver {
    const char *name;  /* as in the configuration and in intents */
    const char *about; /* docs table */

    void (*close)(void *ctx);

    /* What may be bought: writes up to `max`, sets *ret_count. */
    int (*offers)(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err);

    /* 0 and *ret, or a negative errno, *ret_class and a sentence. */
    int (*create)(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err);

    /* One instance by its intent; -ENOENT. */
    int (*get)(void *ctx, const char *intent, int64_t now_us, struct listed *ret, struct err *err);

    /* All under our tag. -E2BIG beyond `max`. */
    int (*list)(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err);

    /* By handle, or by the intent's tag where the handle is empty (its create reply was lost).
     * 0: gone or going; the listing tells when. */
    int (*remove)(void *ctx, const char *handle, const char *intent, int64_t now_us,
                  struct err *err);

    /* Dollars an hour and how old that knowledge is. -ENOENT: nobody knows. */
    int (*price)(void *ctx, const char *offer, int64_t now_us, double *ret_price_h,
                 int64_t *ret_age_us, struct err *err);

    /* Instances that will be taken away; optional. */
    int (*notice)(void *ctx, int64_t now_us, struct cloud_notice *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err);
};

/* A driver with its state. */
struct cloud {
    const struct cloud_driver *driver;
    void *ctx;
    int64_t lag_us; /* of its listings */
};

static inline void cloud_close(struct cloud *c)
{
    if (c->driver) c->driver->close(c->ctx);
    c->driver = NULL;
    c->ctx = NULL;
}
