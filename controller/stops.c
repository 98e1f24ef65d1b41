/* stops.c - decides which instances are stopped and not removed, and which stopped ones may be started.
 *
 * A mark is a digest of the launch document without its addresses: controllers may have moved while an instance was
 * stopped, and the document lists all of them; another model, engine or certificate is another machine. */
#include "controller/stops.h"

#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

static uint32_t kept_by(const struct control *c, uint32_t service, uint32_t pool)
{
    bool known = service != PLAN_NONE && pool != PLAN_NONE;
    return known ? c->desired.service[service].pool[pool].keep_stopped : 0;
}

bool control_may_stop(const struct control *c, uint32_t service, uint32_t pool, uint32_t offer)
{
    return kept_by(c, service, pool) > 0 && offer != PLAN_NONE && c->money.offer[offer].stops;
}

bool control_may_stop_at(const struct control *c, uint32_t at)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    return control_may_stop(c, d->service, d->pool, control_find_offer(c, i->provider, i->offer));
}

void control_mark(const struct control *c, uint32_t service, uint32_t pool, uint32_t offer,
                  char ret[INTENT_MARK_BYTES])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct launch_spec spec;
    ret[0] = 0;
    if (!control_may_stop(c, service, pool, offer)) return;
    control_launch_spec(&c->setup, &c->setup.launch[service][pool], &spec);
    spec.controllers = NULL;
    spec.controller_count = 0;
    spec.controller_host = STR("-");
    spec.controller_port = 1;
    spec.instance = STR("-");
    spec.service = str_from(c->desired.service[service].name);
    spec.pool = str_from(c->desired.service[service].pool[pool].name);
    spec.offer = str_from(c->money.offer[offer].name);
    if (launch_spec_encode(&spec, &text) < 0) return;
    struct hash128 h = hash128(text.data, text.len, 0);
    snprintf(ret, INTENT_MARK_BYTES, "%016llx%016llx", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
    explicit_bzero(text.data, text.len);
}

static bool is_as_new(const struct control *c, uint32_t at)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    char mark[INTENT_MARK_BYTES];
    control_mark(c, d->service, d->pool, control_find_offer(c, i->provider, i->offer), mark);
    return mark[0] && strcmp(mark, i->mark) == 0;
}

uint32_t control_find_stopped(const struct control *c, uint32_t service, uint32_t pool,
                              uint32_t offer)
{
    const struct offer *o = &c->money.offer[offer];
    uint32_t best = PLAN_NONE;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        const struct detail *d = &c->observed.detail[at];
        if (i->state != INTENT_STOPPED || i->aside || d->service != service || d->pool != pool)
            continue;
        if (strcmp(i->offer, o->name) != 0 || strcmp(i->provider, o->provider) != 0) continue;
        if (!is_as_new(c, at)) continue;
        if (best == PLAN_NONE || i->state_us > c->money.intent[best].state_us) best = at;
    }
    return best;
}

/* Returns how many instances of its pool are stopped, or will be, before `at` in the order of their stops. */
static uint32_t stopped_before(const struct control *c, uint32_t at)
{
    const struct intent *mine = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->money.count; k++) {
        const struct intent *i = &c->money.intent[k];
        bool rests = i->state == INTENT_STOPPED || i->state == INTENT_STOPPING;
        if (k == at || !rests || c->observed.detail[k].service != d->service ||
            c->observed.detail[k].pool != d->pool)
            continue;
        bool first = mine->state == INTENT_DRAINING || i->state_us < mine->state_us ||
                     (i->state_us == mine->state_us && strcmp(i->id, mine->id) < 0);
        n += first;
    }
    return n;
}

enum intent_event control_keep_or_end(const struct control *c, uint32_t at, enum intent_event e)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    uint32_t keep = kept_by(c, d->service, d->pool);
    if (i->state == INTENT_DRAINING && e == INTENT_DRAINED && keep > 0) {
        bool sound = !i->let_go && !i->adopted && !d->doomed && !d->at_risk && i->handle[0] &&
                     d->machine.health == MACHINE_WELL;
        return sound && stopped_before(c, at) < keep && is_as_new(c, at) ? INTENT_PARK : e;
    }
    if (i->state != INTENT_STOPPED || e != INTENT_EVENT_COUNT) return e;
    return stopped_before(c, at) < keep && is_as_new(c, at) ? e : INTENT_END;
}
