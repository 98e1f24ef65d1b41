/* charge.h - counts what one instance costs as its provider bills it: its life in whole units of billing, at the
 * prices that held.
 *
 * Layer:   controller/core (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) the provider's own word counts before ours: when it made the instance, what this one costs, when it
 *              was gone. What it does not say is taken to be the latest moment that is possible, so that no sum is
 *              too small; charge.unsure_us says how much too large it may be
 *          (2) a unit that has begun is owed: a new price holds from the next one
 *          (3) a create call may have made something until a reply says that it has not
 */
#pragma once
#include "controller/core/intent.h"

struct bill_periods; /* bill.h */

/* Returns what it has cost until p->now_us. */
struct cost charge_of(const struct intent *i, const struct bill_periods *p);

/* The whole of it, at any time. */
double charge_total(const struct intent *i, int64_t now_us);

/* Returns the dollars by which the charge may be too large. */
double charge_unsure(const struct intent *i, int64_t now_us);

/* Adds what its start costs beside its time. */
void charge_add(struct intent *i, double dollars, const struct bill_periods *p);

/* Sets the price from p->now_us on. */
void charge_price(struct intent *i, double price_h, const struct bill_periods *p);

/* Names the differences between a provider's word on a billed instance and ours. */
enum charge_difference {
    CHARGE_SAME,
    CHARGE_TIME,   /* it was made at another time, by more than CHARGE_TIME_US */
    CHARGE_PRICE,  /* it costs another price than its offer */
    CHARGE_GONE,   /* it has ended, and nobody here ended it */
    CHARGE_ORPHAN, /* it is billed, and no intent stands for it */
    CHARGE_DIFFERENCE_COUNT
};
extern const char *const charge_difference_names[CHARGE_DIFFERENCE_COUNT];
#define CHARGE_TIME_US 60000000
/* Prices that differ by less are equal: exchange rates, rounding. */
#define CHARGE_PRICE_SHARE 0.001

/* An instance's entry in a listing, as far as money is concerned. */
struct charge_entry {
    int64_t made_us; /* 0: not said */
    bool price_known;
    double price_h;
};

/* Takes what the provider says of a live instance. *ret_changed: the intent has to be stored. */
enum charge_difference charge_reconcile(struct intent *i, const struct charge_entry *e,
                                        const struct bill_periods *p, bool *ret_changed);

/* When an instance ended, as far as is known; 0: not. */
struct charge_end {
    int64_t asked_us;   /* we first asked for its end */
    int64_t removed_us; /* the provider took our remove */
    int64_t shown_us;   /* the latest moment at which it was there for certain */
    int64_t absent_us;  /* the earliest at which it was gone for certain */
};
void charge_close(struct intent *i, const struct charge_end *e);

/* Ends what was billed so far at at_us and bills on from there at another price: an instance was stopped, or started
 * again. `unsure_us`: it may have ended so much earlier. */
struct charge_turn {
    int64_t at_us, unsure_us;
    double price_h;
    struct billing billing;
    bool halted;
};
void charge_turn(struct intent *i, const struct charge_turn *t, const struct bill_periods *p);

/* Begins another life of an ended intent: its instance came late. */
void charge_reopen(struct intent *i, int64_t made_us, const struct bill_periods *p);
