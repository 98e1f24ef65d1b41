/* migrate_plan.c - looks at the engines as their loads tell them, and at the router's own requests.
 *
 * What a look wants is told to the byte loops, which carry it out (migrate_request.c) and say what
 * came of it. A word that comes late, about a migration that is over, changes nothing.
 */
#include "router/migrate_plan.h"

#include "base/core/hash.h"
#include "base/io/log.h"
#include "router/decide.h"

#include <stdlib.h>

struct migrate_plan {
    struct decide *d;
    struct loop_timer timer;
    struct migrate_look look;
    void *memory; /* of the look */
};

static void on_look(void *arg);

int migrate_plan_new(struct decide *d, const struct migrate_policy *policy, uint32_t requests_max,
                     uint64_t seed, struct migrate_plan **ret, struct err *err)
{
    struct migrate_plan *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "router: no memory");
    m->d = d;
    m->timer = (struct loop_timer){ .fn = on_look, .arg = m };
    m->memory = calloc(1, migrate_look_bytes(DISPATCH_ENDPOINTS, requests_max));
    int rc = m->memory ? loop_timer_set(d->loop, &m->timer, 0) : -ENOMEM;
    if (rc < 0) {
        migrate_plan_free(m);
        return err_set(err, rc, "router: no memory for %u requests", requests_max);
    }
    migrate_look_init(&m->look, policy, DISPATCH_ENDPOINTS, requests_max, seed, m->memory);
    *ret = m;
    return 0;
}

void migrate_plan_free(struct migrate_plan *m)
{
    if (!m) return;
    loop_timer_clear(m->d->loop, &m->timer);
    free(m->memory);
    free(m);
}

const struct migrate_policy *migrate_plan_policy(const struct migrate_plan *m)
{
    return m->look.policy;
}

void migrate_plan_endpoint(struct migrate_plan *m, uint32_t slot, uint64_t serial)
{
    if (m->look.port[slot].serial != serial)
        m->look.port[slot] = (struct kv_port){ .serial = serial };
}

/* ---- events --------------------------------------------------------------------------------- */

static struct kv_end end_at(const struct migrate_plan *m, uint32_t slot)
{
    return (struct kv_end){ slot, m->look.port[slot].serial };
}

static void feed(struct migrate_plan *m, struct request *r, enum kv_transfer_event event)
{
    const struct kv_transfer_input in = { .now_us = loop_now_us(m->d->loop) };
    migrate_look_on(&m->look, &r->placed.kv, event, in);
}

void migrate_plan_sent(struct migrate_plan *m, struct request *r, bool prefills)
{
    kv_transfer_at(&r->placed.kv, end_at(m, r->placed.dispatch.slot));
    r->placed.kv.fixed = r->is_question;
    if (prefills) feed(m, r, KVT_PREFILL);
}

void migrate_plan_prefilled(struct migrate_plan *m, struct request *r, uint32_t to)
{
    struct kv_transfer *x = &r->placed.kv;
    if (x->state != KVT_PREFILLING) return;
    const struct kv_transfer_input in = { .to = end_at(m, to), .now_us = loop_now_us(m->d->loop) };
    migrate_look_on(&m->look, x, to == x->from.slot ? KVT_UNPLACED : KVT_PREFILLED, in);
}

void migrate_plan_tokens(struct migrate_plan *m, struct request *r)
{
    r->placed.kv.tokens = dispatch_tokens_known(&r->placed.dispatch);
    migrate_look_tokens(&m->look, &r->placed.kv);
    feed(m, r, KVT_TOKENS);
}

/* The byte loop has not said yet what came of its copies. */
static bool is_copying(const struct request *r)
{
    return r->placed.kv.state == KVT_COPYING || r->placed.kv.state == KVT_STOPPING;
}

void migrate_plan_arrives(struct migrate_plan *m, struct request *r)
{
    const struct kv_transfer *x = &r->placed.kv;
    if (!is_copying(r)) return;
    log_event(LOG_INFO, "migrated", "id=%s from=%s to=%s", r->id,
              m->d->endpoint[x->from.slot].target.instance,
              m->d->endpoint[x->to.slot].target.instance);
    metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS));
    feed(m, r, KVT_STOPPED);
    if (!kv_port_of(m->look.port, x->to)) return; /* its slot may be another's by now */
    dispatch_migrate(m->d->dispatch, &r->placed.dispatch, x->to.slot, loop_now_us(m->d->loop));
}

void migrate_plan_stays(struct migrate_plan *m, struct request *r)
{
    if (!is_copying(r)) return;
    metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS_DROPPED));
    feed(m, r, KVT_LOST);
}

void migrate_plan_gone(struct migrate_plan *m, struct request *r)
{
    migrate_look_gone(&r->placed.kv);
    if (is_copying(r)) metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS_DROPPED));
    feed(m, r, KVT_ENDED);
}

/* ---- the look ------------------------------------------------------------------------------- */

/* Sessions go between engines of one service with one tokenizer and weights. */
static uint64_t group_of(const struct endpoint_place *place)
{
    const struct {
        uint64_t service;
        const struct bundle_entry *bundle;
    } key = { place->service, place->target.bundle };
    if (!key.bundle || place->target.page_tokens == 0) return 0;
    return hash64(&key, sizeof key, 0) | 1;
}

static bool endpoint(void *arg, uint32_t slot, struct migrate_endpoint *ret)
{
    const struct migrate_plan *m = arg;
    const struct endpoint_place *place = &m->d->endpoint[slot];
    if (!place->used) return false;
    const struct dispatch_endpoint *ep = dispatch_endpoint_at(m->d->dispatch, slot);
    *ret = (struct migrate_endpoint){ .group = group_of(place),
                                      .page_tokens = place->target.page_tokens,
                                      .kv_bytes_per_token = ep->kv_bytes_per_token,
                                      .link_bytes_s = ep->link_bytes_s,
                                      .role = ep->role,
                                      .ready = ep->ready,
                                      .draining = place->draining,
                                      .leaves_us = place->leaves_us,
                                      .kv_tokens_max = ep->kv_tokens_max,
                                      .perf = ep->has_perf ? &ep->perf : NULL };
    if (place->feed) ret->load = block_feed_load(place->feed, &ret->told_us);
    return true;
}

static void migrate(void *arg, struct kv_transfer *x, uint32_t to)
{
    struct migrate_plan *m = arg;
    struct request *r = CONTAINER_OF(x, struct request, placed.kv);
    uint32_t page_tokens = m->d->endpoint[to].target.page_tokens;
    const struct kv_transfer_input in = { .to = end_at(m, to),
                                          .tokens = x->tokens,
                                          .pages = x->tokens / page_tokens,
                                          .page_tokens = page_tokens,
                                          .now_us = loop_now_us(m->d->loop) };
    migrate_look_on(&m->look, x, KVT_MIGRATE, in);
    decide_tell_migrate(m->d, r, to);
}

static void on_look(void *arg)
{
    struct migrate_plan *m = arg;
    const struct migrate_host host = { m, endpoint, migrate };
    int64_t again_us = migrate_look(&m->look, &host, loop_now_us(m->d->loop));
    if (again_us < INT64_MAX) loop_timer_set(m->d->loop, &m->timer, again_us);
}
