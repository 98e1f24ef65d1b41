/* offer.c - back-off by class of error. */
#include "controller/core/offer.h"

#include <stdio.h>

#define SECOND ((int64_t)1000000)
#define LEAD_WEIGHT 0.3 /* of the newest launch: three launches forget most of a wrong prior */

const char *const offer_error_names[OFFER_ERROR_COUNT] = {
    [OFFER_OK] = "ok",
    [OFFER_CAPACITY] = "capacity",
    [OFFER_QUOTA] = "quota",
    [OFFER_THROTTLE] = "throttle",
    [OFFER_AUTH] = "auth",
    [OFFER_INVALID] = "invalid",
    [OFFER_TRANSIENT] = "transient",
};

/* First wait and cap; doubled for each failure in a row. Capacity as Karpenter's three minutes;
 * quota and auth need a person; throttles and lost answers pass by themselves. */
static const struct {
    int64_t first_us, cap_us;
} waits[OFFER_ERROR_COUNT] = {
    [OFFER_CAPACITY] = { 20 * SECOND, 180 * SECOND },
    [OFFER_QUOTA] = { 60 * SECOND, 1800 * SECOND },
    [OFFER_THROTTLE] = { 1 * SECOND, 60 * SECOND },
    [OFFER_AUTH] = { 60 * SECOND, 1800 * SECOND },
    [OFFER_INVALID] = { 300 * SECOND, 3600 * SECOND },
    [OFFER_TRANSIENT] = { 2 * SECOND, 60 * SECOND },
};

void offer_answered(struct offer_health *h, enum offer_error e, const char *text, int64_t now_us)
{
    if (e == OFFER_OK) {
        *h = (struct offer_health){ .refused = h->refused, .lost = h->lost };
        return;
    }
    if (h->last != e) h->failures = 0;
    int64_t wait = waits[e].first_us;
    for (uint32_t i = 0; i < h->failures && wait < waits[e].cap_us; i++)
        wait *= 2;
    h->last = e;
    h->refused += e == OFFER_CAPACITY;
    h->failures++;
    h->until_us = now_us + (wait < waits[e].cap_us ? wait : waits[e].cap_us);
    snprintf(h->text, sizeof h->text, "%s", text ? text : offer_error_names[e]);
}

void offer_learn_lead(struct offer *o, double seconds)
{
    if (!(seconds >= 0)) return;
    o->lead_s += LEAD_WEIGHT * (seconds - o->lead_s);
}
