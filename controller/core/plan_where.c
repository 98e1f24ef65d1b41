/* plan_where.c - where a pool's next instances come from, and which of those there are too many. */
#include "base/core/bits.h"
#include "controller/core/plan_desk.h"
#include "controller/core/plan_place.h"

#include <string.h>

/* The cheapest offer that the row wants more of, less what was launched since; the earlier on equal
 * prices. A row may want more than the target (spares, something beside): the target bounds what is
 * launched, so that the dearer of it is left out. */
uint32_t plan_next_offer(struct plan_desk *d, uint32_t pool)
{
    struct place_verdict *v = &d->where[pool];
    const struct plan_pool *p = &d->service->pool[pool];
    uint32_t next = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count; i++) {
        const struct offer *o = &d->view->offer[p->offer[i]];
        if (v->want[i] == 0) continue;
        if (!plan_offer_usable(d->view, d->service, p->offer[i], d->now_us)) continue;
        if (next != PLACE_NONE && o->price_h >= d->view->offer[p->offer[next]].price_h) continue;
        next = i;
    }
    if (next == PLACE_NONE) next = v->next;
    if (next == PLACE_NONE) return PLAN_NONE;
    if (v->want[next] > 0) v->want[next]--;
    return p->offer[next];
}

static bool may_be_taken(const struct plan_desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (d->view->offer[p->offer[i]].spot) return true;
    return false;
}

/* A pool with spot offers follows its row beyond the count: what stands where the row wants it is
 * kept, spares and replacements under way included, and while nothing else is under way all that the
 * row misses is started. What it replaces is surplus then, and goes first. */
static void follow_row(struct plan_desk *d, uint32_t pool, const struct place_view *v)
{
    struct plan_decision *r = d->decision;
    const struct place_verdict *w = &d->where[pool];
    uint32_t have = r->have[pool], settled = 0, wanted = 0, total = 0;
    uint32_t missing = 0;
    if (r->target[pool] == 0 || plan_in_hand(d, pool) || !may_be_taken(d, pool)) return;
    for (uint32_t i = 0; i < v->offer_count; i++) {
        uint32_t there = place_have(&v->offer[i]);
        settled += min_u32(w->want[i], there);
        wanted += w->want[i];
        if (v->offer[i].usable && w->want[i] > there) missing += w->want[i] - there;
        d->surplus[pool][i] = there > w->want[i] ? there - w->want[i] : 0;
    }
    if (r->target[pool] < have) r->target[pool] = max_u32(r->target[pool], min_u32(have, settled));
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    bool still = r->target[pool] == have && d->scale.pool[pool].starting == 0;
    if (!still || missing == 0 || wanted <= have) return;
    uint32_t room = d->service->pool[pool].max - min_u32(have, d->service->pool[pool].max);
    room = min_u32(room, d->service->max - min_u32(total, d->service->max));
    if (room == 0) return;
    r->target[pool] = have + min_u32(missing, room);
    r->reason = w->reason;
}

/* What the row is asked to place: what is needed, not what the shaper still holds up, or spares would
 * be bought for spares. */
static uint32_t needed(const struct plan_desk *d, uint32_t pool)
{
    uint32_t target = d->decision->target[pool];
    if (plan_in_hand(d, pool) || !may_be_taken(d, pool)) return target;
    uint32_t asked = d->decision->verdict.choice.want[pool];
    return min_u32(target, max_u32(asked, d->service->pool[pool].min));
}

void plan_ask_row(struct plan_desk *d, uint32_t pool)
{
    struct place_verdict *w = &d->where[pool];
    struct place_view v;
    plan_place_view(d->view, d->index, pool, needed(d, pool), d->now_us, &v);
    d->service->place->choose(d->memory->place[pool], &v, d->now_us, d->rng, w);
    d->decision->placed[pool] = (struct plan_placed){ w->reason, w->cost_h, w->missing };
    memset(d->surplus[pool], 0, sizeof d->surplus[pool]);
    follow_row(d, pool, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        w->want[i] -= min_u32(w->want[i], place_have(&v.offer[i]));
}
