/* bill.h - counts what each service and pool has cost today, this month and in all, and turns ceilings for a day and a
 * month into dollars an hour.
 *
 * Layer:   controller/core (base/wire, base/core)
 * Threads: pure; the controller's loop calls
 * Periods: days and months of the date in UTC. Times of intents are fleet time, so a period is given in both
 * Rules:   (1) intents that are still known are counted from their own times; only forgotten ones are folded into
 *              rows, so that nothing has to be written while instances run
 *          (2) an hour may cost what is left of the ceiling, divided by the hours that are left of the period:
 *              what is unspent may be spent later, and at this rate the period ends at its ceiling. Within
 *              BILL_LEAST_US of the end it is divided by that
 *          (3) what was billed from the create call on counts, launches under way included: charge.h
 *          (4) a fold is two writes, the rows and the deletion of the intent. The rows name the intent that they
 *              took last, so that one whose deletion was cut short is not counted twice
 */
#pragma once
#include "controller/core/charge.h"

#include <string.h>

/* Pools that ever cost something; of more, the one spent on longest ago goes. */
#define BILL_ROWS_MAX 128
#define BILL_LEAST_US 3600000000

/* The day and the month that hold a moment. */
struct bill_periods {
    int64_t now_us; /* fleet time, as the next four */
    int64_t day_us, day_end_us, month_us, month_end_us;
    int64_t day, month; /* since 1970 */
};
struct bill_periods bill_periods_at(int64_t now_us, int64_t date_ahead_us);

/* Returns the sums as of these periods: the parts of earlier ones are over. */
struct cost cost_in(const struct cost *c, const struct bill_periods *p);

/* Holds the cost of forgotten intents of one pool, and the tokens that a service's routers counted. */
struct bill_row {
    char service[NAME_BYTES], pool[NAME_BYTES]; /* pool empty: the service's tokens */
    struct cost cost;
    struct cost mtokens; /* millions of tokens: prompts less what was cached, and outputs */
};
struct bill {
    struct bill_row row[BILL_ROWS_MAX];
    uint32_t count;
    double lost;                /* of rows that had to go */
    int64_t reserved_us;        /* until when reserved instances are counted; 0: not yet */
    char last[INTENT_ID_BYTES]; /* the intent that was folded last; empty: none */
};

/* Adds an intent that is about to be forgotten. */
void bill_fold(struct bill *l, const struct intent *i, const struct bill_periods *p);

/* Returns true if the intent was folded and only its deletion was cut short. */
static inline bool bill_has_folded(const struct bill *l, const struct intent *i)
{
    return i->state == INTENT_ENDED && strcmp(l->last, i->id) == 0;
}

/* Adds what the reserved instances of an offer have cost, whether they ran or not. */
#define BILL_RESERVED "(reserved)" /* the service of such rows; their pool is the offer */
void bill_reserve(struct bill *l, const char *offer, double dollars, const struct bill_periods *p);

/* Adds tokens that a service's routers have counted. */
void bill_count_tokens(struct bill *l, const char *service, uint64_t tokens,
                       const struct bill_periods *p);
struct cost bill_mtokens(const struct bill *l, const char *service, const struct bill_periods *p);

struct bill_spent {
    double day, month, total;
};

/* Returns what the service, or one pool of it (NULL: all), has cost: its rows and the intents that are its own. */
struct bill_spent bill_spent(const struct bill *l, const char *service, const char *pool,
                             const struct intent *intent, uint32_t count,
                             const struct bill_periods *p);
double bill_total(const struct bill *l, const struct intent *intent, uint32_t count,
                  int64_t now_us);

/* Ceilings in dollars; 0: none. */
struct bill_ceilings {
    double hour, day, month;
};
#define BILL_NOTHING_LEFT 1e-9 /* dollars an hour: 0 would mean that there is no ceiling */

/* Returns the dollars an hour that keep all ceilings; 0: there is none. */
double bill_pace_h(const struct bill_ceilings *c, const struct bill_spent *spent,
                   const struct bill_periods *p);

/* The stored form. Decode takes records of releases that kept the total alone, or services without pools. */
int bill_encode(const struct bill *l, struct buf *out);
int bill_decode(struct str text, struct arena *arena, struct bill *ret, struct err *err);
