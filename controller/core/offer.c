/* offer.c - learns lead times of offers, and holds the back-off after refusals. */
#include "controller/core/offer.h"

#include "base/core/bits.h"
#include "controller/core/intent.h"

#include <math.h>
#include <stdio.h>

#define SECOND ((int64_t)1000000)
#define LEAD_WEIGHT 0.3 /* of the newest launch: three launches forget most of a wrong prior */
/* Of the time that a launch has taken: what one that is late may still take. */
#define LATE_SHARE 0.25

const char *const offer_error_names[OFFER_ERROR_COUNT] = {
    [OFFER_OK] = "ok",
    [OFFER_CAPACITY] = "capacity",
    [OFFER_QUOTA] = "quota",
    [OFFER_THROTTLE] = "throttle",
    [OFFER_AUTH] = "auth",
    [OFFER_INVALID] = "invalid",
    [OFFER_TRANSIENT] = "transient",
};

/* The first wait, doubled for each failure in a row, and its cap. Capacity has Karpenter's three minutes;
 * quota and auth need a person; throttles and lost replies pass by themselves. */
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

void offer_learn_restart(struct offer *o, double seconds)
{
    if (!(seconds >= 0)) return;
    o->restart_s = o->restart_s > 0 ? o->restart_s + LEAD_WEIGHT * (seconds - o->restart_s)
                                    : fmax(seconds, 1e-3);
}

double offer_left_s(const struct offer *o, const struct intent *i, int64_t now_us)
{
    double passed = i->called_us ? (double)(now_us - i->called_us) / 1e6 : 0;
    double whole = offer_lead_s(o, i->starts > 0);
    if (i->registered_us && o->lead.known[LEAD_LOAD]) { /* its machine and image are there */
        passed = (double)(now_us - i->registered_us) / 1e6;
        whole = o->lead.s[LEAD_LOAD] + (o->lead.known[LEAD_WARM] ? o->lead.s[LEAD_WARM] : 0);
    }
    double left = whole - passed;
    return fmax(1, left > 0 ? left : LATE_SHARE * passed);
}

const char *const lead_phase_names[] = {
    [LEAD_SCHEDULE] = "schedule", [LEAD_NODE] = "node", [LEAD_BOOT] = "boot",
    [LEAD_PULL] = "pull",         [LEAD_LOAD] = "load", [LEAD_WARM] = "warm",
};
_Static_assert(sizeof lead_phase_names / sizeof lead_phase_names[0] == LEAD_PHASE_COUNT,
               "a name each");

void offer_learn_phases(struct offer *o, const struct lead *launch)
{
    for (int p = 0; p < LEAD_PHASE_COUNT; p++) {
        double seconds = launch->s[p];
        if (!launch->known[p] || !(seconds >= 0)) continue;
        /* There is no prior: the first launch is all that is known. */
        o->lead.s[p] =
            o->lead.known[p] ? o->lead.s[p] + LEAD_WEIGHT * (seconds - o->lead.s[p]) : seconds;
        o->lead.known[p] = true;
    }
}
