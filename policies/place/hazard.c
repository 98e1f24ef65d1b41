/* hazard.c - gamma posteriors of loss and repair, one zone. */
#include "policies/place/hazard.h"

#include <math.h>

#define HOUR_US 3600e6

static double hours(int64_t from_us, int64_t to_us)
{
    return fmax(0, (double)(to_us - from_us) / HOUR_US);
}

static void goes_down(struct hazard *h, int64_t now_us)
{
    if (h->since_us == 0) h->since_us = now_us;
    h->down = true;
    h->seen_us = now_us;
}

static void comes_back(struct hazard *h, int64_t now_us)
{
    if (h->down) {
        h->repairs += 1;
        /* Seen absent at seen_us and present by now: it came back in between. */
        h->down_h += hours(h->since_us, h->seen_us) + hours(h->seen_us, now_us) / 2;
    }
    h->down = false;
    h->since_us = 0;
    h->seen_us = now_us;
}

void hazard_observe(struct hazard *h, const struct place_offer *offer, double dt_h, int64_t now_us)
{
    if (h->ready > 0) h->up_h += dt_h;
    /* A wall clock that went back must not make a zone absent until it is where it was. */
    if (h->seen_us > now_us) h->seen_us = now_us;
    if (h->since_us > now_us) h->since_us = now_us;
    /* Counters that begin anew, as those of a provider do that was forgotten, tell of nothing. */
    bool lost = offer->lost > h->lost, refused = offer->refused > h->refused;
    if (lost) h->losses += 1; /* one event, however many instances went with it */
    /* What still runs there shows that the zone as a whole has capacity. */
    if ((lost && offer->ready == 0) || refused)
        goes_down(h, now_us);
    else if (offer->ready > 0)
        comes_back(h, now_us);
    h->lost = offer->lost;
    h->refused = offer->refused;
    h->ready = offer->ready;
}

double hazard_rate_h(const struct hazard *h)
{
    return (1 + (double)h->losses) / (HAZARD_PRIOR_H + h->up_h);
}

double hazard_up(const struct hazard *h, int64_t now_us)
{
    double lambda = hazard_rate_h(h);
    double absent_h = h->down_h + (h->down ? hours(h->since_us, h->seen_us) : 0);
    double mu = (1 + (double)h->repairs) / (REPAIR_PRIOR_H + absent_h);
    double share = mu / (lambda + mu);
    if (h->seen_us == 0) return share;
    double start = h->down ? 0 : 1;
    return share + (start - share) * exp(-(lambda + mu) * hours(h->seen_us, now_us));
}
