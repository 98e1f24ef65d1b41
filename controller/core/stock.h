/* stock.h - remembers where providers were sold out, and says how likely they still are.
 *
 * Layer:   controller/core (policies/place, base/wire, base/core)
 * Threads: pure; the controller's loop calls
 * Model:   what a provider has of a type in a zone comes and goes in runs: struct hazard (place.h), whose rates are
 *          learned. Right after a refusal it is sold out for certain; the chance decays with time at the rate at which
 *          runs have ended so far, an hour until more is known
 * Rules:   (1) one memory for a provider's type in a zone, on demand and spot apart: offers of several pools that buy
 *              the same share it
 *          (2) it is durable: runs last longer than controllers
 *          (3) what was never refused or lost is not sold out: absent is not zero, but it is no warning either
 *          (4) it says what to prefer; how soon a refused offer may be asked again is the back-off's (intent.h)
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "controller/core/intent.h"
#include "policies/place/place.h"

#define STOCKS_MAX 128 /* of more, the one that was seen longest ago goes */

struct stock {
    char provider[NAME_BYTES], zone[NAME_BYTES], type[NAME_BYTES];
    bool spot;
    struct hazard seen;
    int64_t refused_us; /* the last refusal or loss; 0: none */
};

struct stocks {
    struct stock at[STOCKS_MAX];
    uint32_t count;
};

/* Returns the memory of what the offer buys; it is made where there is none. */
struct stock *stock_of(struct stocks *s, const struct offer *o);

/* Returns NULL where there is none. */
const struct stock *stock_find(const struct stocks *s, const struct offer *o);

/* Counts the events at all offers that share a memory, since the controller's start. */
struct stock_seen {
    uint32_t refused, lost;
    /* Instances that the provider has made for us since the last refusal, and that are there. */
    uint32_t held;
};

/* Takes what was seen dt_h hours after the last time. Returns true if it should be written. */
bool stock_observe(struct stock *s, const struct stock_seen *seen, double dt_h, int64_t now_us);

/* Returns the chance that it is sold out now. */
double stock_out(const struct stock *s, int64_t now_us);

/* The stored form. Counters begin anew with each controller, so they are not in it. */
int stocks_encode(const struct stocks *s, struct buf *out);
int stocks_decode(struct str text, struct arena *arena, struct stocks *ret, struct err *err);
