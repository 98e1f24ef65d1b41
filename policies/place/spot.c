/* spot.c - spread spot instances over zones and fill in with on demand where they are missing.
 *
 *     spot wanted      = target + EXTRA
 *     next zone        = the cheapest active one, zones without an instance of ours first
 *     zone marked      when it took an instance away or had none to give
 *     zone active      again when an instance there is ready, or when fewer than two are active:
 *                      then all are
 *     on demand wanted = min(target, max(0, target + EXTRA - ready spot))
 *
 * SkyServe's spot placer with dynamic fallback (SpotHedge). Its number of extra instances is a
 * setting; one here. Deviation: zones are a pool's spot offers, and a refusal of capacity marks a
 * zone as a preemption does; a marked zone is asked where no other offer is left. */
#include "base/core/bits.h"
#include "policies/place/place.h"

#define EXTRA 1
#define ACTIVE_MIN 2
struct spot {
    bool marked[PLACE_OFFERS_MAX];
    uint32_t lost[PLACE_OFFERS_MAX], refused[PLACE_OFFERS_MAX]; /* as seen last */
    uint32_t ready[PLACE_OFFERS_MAX];
};
_Static_assert(sizeof(struct spot) <= PLACE_STATE_BYTES_MAX, "state of place_spot");

static void mark(struct spot *s, const struct place_view *view)
{
    uint32_t active = 0;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        const struct place_offer *o = &view->offer[i];
        if (o->ready > s->ready[i]) s->marked[i] = false;
        if (o->lost > s->lost[i] || o->refused > s->refused[i]) s->marked[i] = true;
        s->lost[i] = o->lost;
        s->refused[i] = o->refused;
        s->ready[i] = o->ready;
        active += o->spot && !s->marked[i];
    }
    if (active >= ACTIVE_MIN) return;
    for (uint32_t i = 0; i < view->offer_count; i++)
        s->marked[i] = false;
}

static uint32_t next_zone(const struct spot *s, const struct place_view *view,
                          const uint32_t want[PLACE_OFFERS_MAX])
{
    bool active[PLACE_OFFERS_MAX], fresh[PLACE_OFFERS_MAX];
    for (uint32_t i = 0; i < view->offer_count; i++) {
        active[i] = view->offer[i].spot && !s->marked[i];
        fresh[i] = active[i] && want[i] == 0;
    }
    uint32_t at = place_cheapest(view, fresh);
    return at != PLACE_NONE ? at : place_cheapest(view, active);
}

static void fill_on_demand(const struct place_view *view, uint32_t count, uint32_t *want)
{
    bool fits[PLACE_OFFERS_MAX];
    for (uint32_t i = 0; i < view->offer_count; i++) {
        fits[i] = !view->offer[i].spot;
        if (!fits[i]) continue;
        want[i] = min_u32(place_have(&view->offer[i]), count);
        count -= want[i];
    }
    uint32_t at = place_cheapest(view, fits);
    if (at != PLACE_NONE) want[at] += count;
}

/* Puts instances that no active zone or on-demand offer could take at the cheapest usable offer: a
 * marked zone is better than none. */
static void leave_none_out(const struct place_view *view, uint32_t *want)
{
    uint32_t there = 0, at = place_cheapest(view, NULL);
    for (uint32_t i = 0; i < view->offer_count; i++)
        there += want[i];
    if (at != PLACE_NONE && there < view->target) want[at] += view->target - there;
}

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)now_us, (void)rng;
    struct spot *s = state;
    mark(s, view);
    uint32_t spots = view->target > 0 ? view->target + EXTRA : 0;
    uint32_t left = spots, ready = 0;
    struct place_verdict v = { .reason = "spot in the cheapest active zone", .missing = -1 };
    for (uint32_t i = 0; i < view->offer_count; i++) { /* running instances stay */
        if (!view->offer[i].spot) continue;
        v.want[i] = min_u32(place_have(&view->offer[i]), left);
        left -= v.want[i];
        ready += view->offer[i].ready;
    }
    for (; left > 0; left--) {
        uint32_t at = next_zone(s, view, v.want);
        if (at == PLACE_NONE) break;
        v.want[at]++;
    }
    uint32_t gap = spots > ready ? spots - ready : 0;
    if (gap > 0) v.reason = "spot instances are missing: on demand until they are ready";
    fill_on_demand(view, min_u32(view->target, gap), v.want);
    leave_none_out(view, v.want);
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_spot = {
    .name = "spot",
    .about =
        "one spot instance more than needed, spread over zones; on demand fills what is missing",
    .source = "SkyServe's SpotHedge placer (arXiv 2411.01438)",
    .state_size = sizeof(struct spot),
    .choose = choose,
};
