/* migrate_plan.c - looks at the engines as their loads tell them, and at the router's own requests.
 *
 * A look is one verdict for every group of engines that may exchange sessions. What it wants is told
 * to the byte loops, which carry it out (migrate_request.c) and say what came of it. Pages count as on their
 * way until the first token at the target: only then does its load hold them.
 */
#include "router/migrate_plan.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "router/core/move_view.h"
#include "router/decide.h"

#include <math.h>
#include <stdlib.h>

struct migrate_plan {
    struct decide *d;
    const struct migrate_policy *row;
    struct loop_timer look;
    struct rng rng;
    struct list decoding; /* requests with a first token */
    uint32_t under_way;

    /* Of one look: instances of a group; sessions of all, by their slot. */
    struct migrate_instance instance[DISPATCH_ENDPOINTS];
    uint32_t first[DISPATCH_ENDPOINTS + 1];
    struct migrate_session *session;
    struct request **request; /* behind each session */
    uint32_t session_max;

    _Alignas(8) unsigned char state[MIGRATE_STATE_BYTES];
};

static void on_look(void *arg);

int migrate_plan_new(struct decide *d, const struct migrate_policy *row, uint32_t requests_max,
                     uint64_t seed, struct migrate_plan **ret, struct err *err)
{
    struct migrate_plan *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "router: no memory");
    must(row->state_size <= sizeof m->state);
    m->d = d;
    m->row = row;
    m->session_max = requests_max;
    m->session = calloc(requests_max, sizeof *m->session);
    m->request = calloc(requests_max, sizeof(struct request *));
    m->look = (struct loop_timer){ .fn = on_look, .arg = m };
    list_init(&m->decoding);
    rng_seed(&m->rng, seed);
    int rc = m->session && m->request ? 0 : -ENOMEM;
    if (rc == 0) rc = loop_timer_set(d->loop, &m->look, 0);
    if (rc < 0) {
        migrate_plan_free(m);
        return err_set(err, rc, "router: no memory for %u requests", requests_max);
    }
    *ret = m;
    return 0;
}

void migrate_plan_free(struct migrate_plan *m)
{
    if (!m) return;
    loop_timer_clear(m->d->loop, &m->look);
    free(m->session);
    free(m->request);
    free(m);
}

const struct migrate_policy *migrate_plan_policy(const struct migrate_plan *m)
{
    return m->row;
}

/* ---- moves ---------------------------------------------------------------------------------- */

/* Of the target; NULL when it has gone. Its slot may be another's by now. */
static struct endpoint_place *target_of(struct migrate_plan *m, const struct request *r)
{
    struct endpoint_place *place = &m->d->endpoint[r->placed.move_to];
    return place->used && place->serial == r->placed.move_serial ? place : NULL;
}

/* False: its endpoint was taken from the list while it went on there. */
static bool is_listed(const struct migrate_plan *m, const struct request *r)
{
    const struct endpoint_place *place = &m->d->endpoint[r->placed.dispatch.slot];
    return place->used && place->serial == r->placed.at_serial;
}

/* Its copies are over, one way or the other; it is still counted where it came from. */
static void sent(struct migrate_plan *m, struct request *r)
{
    struct endpoint_place *from = &m->d->endpoint[r->placed.dispatch.slot];
    if (!is_listed(m, r)) return;
    from->sending_pages -= r->placed.move_pages;
    from->moved_us = loop_now_us(m->d->loop);
}

static void end(struct migrate_plan *m, struct request *r)
{
    struct endpoint_place *to = target_of(m, r);
    if (to) to->incoming_pages -= r->placed.move_pages;
    m->under_way--;
    r->placed.moves = MOVES_NOT;
}

static void begin(struct migrate_plan *m, struct request *r, uint32_t to)
{
    struct endpoint_place *place = &m->d->endpoint[to];
    r->placed.moves = MOVES_COPYING;
    r->placed.move_to = to;
    r->placed.move_serial = place->serial;
    r->placed.move_pages =
        ceil_div_u32(dispatch_tokens_known(&r->placed.dispatch) + 1, place->target.page_tokens);
    place->incoming_pages += r->placed.move_pages;
    m->d->endpoint[r->placed.dispatch.slot].sending_pages += r->placed.move_pages;
    m->under_way++;
    decide_tell_migrate(m->d, r, to);
}

void migrate_plan_tokens(struct migrate_plan *m, struct request *r)
{
    if (!list_linked(&r->placed.decoding)) list_push_back(&m->decoding, &r->placed.decoding);
    if (r->placed.moves != MOVES_ARRIVING) return;
    struct endpoint_place *to = target_of(m, r);
    if (to) to->moved_us = loop_now_us(m->d->loop);
    end(m, r);
}

void migrate_plan_arrives(struct migrate_plan *m, struct request *r)
{
    if (r->placed.moves != MOVES_COPYING) return;
    log_event(LOG_INFO, "moved", "id=%s from=%s to=%s", r->id,
              m->d->endpoint[r->placed.dispatch.slot].target.instance,
              m->d->endpoint[r->placed.move_to].target.instance);
    metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS));
    sent(m, r);
    r->placed.moves = MOVES_ARRIVING;
    if (!target_of(m, r)) return;
    dispatch_migrate(m->d->dispatch, &r->placed.dispatch, r->placed.move_to,
                     loop_now_us(m->d->loop));
    r->placed.at_serial = r->placed.move_serial;
}

void migrate_plan_stays(struct migrate_plan *m, struct request *r)
{
    if (r->placed.moves != MOVES_COPYING) return;
    metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS_DROPPED));
    sent(m, r);
    end(m, r);
}

void migrate_plan_gone(struct migrate_plan *m, struct request *r)
{
    if (list_linked(&r->placed.decoding)) list_remove(&r->placed.decoding);
    if (r->placed.moves == MOVES_COPYING) {
        metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS_DROPPED));
        sent(m, r);
    }
    if (r->placed.moves != MOVES_NOT) end(m, r);
}

/* ---- the look ------------------------------------------------------------------------------- */

/* All that decode at endpoints that are listed, ordered by where they are. */
static void gather(struct migrate_plan *m)
{
    uint32_t next[DISPATCH_ENDPOINTS];
    memset(m->first, 0, sizeof m->first);
    LIST_EACH (&m->decoding, node) {
        const struct request *r = CONTAINER_OF(node, struct request, placed.decoding);
        m->first[r->placed.dispatch.slot + 1] += is_listed(m, r);
    }
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++)
        m->first[i + 1] += m->first[i];
    must(m->first[DISPATCH_ENDPOINTS] <= m->session_max); /* as many as the core has in flight */
    memcpy(next, m->first, sizeof next);
    LIST_EACH (&m->decoding, node) {
        struct request *r = CONTAINER_OF(node, struct request, placed.decoding);
        if (!is_listed(m, r)) continue;
        uint32_t at = next[r->placed.dispatch.slot]++;
        m->request[at] = r;
        m->session[at] = (struct migrate_session){
            .id = at,
            .tokens = dispatch_tokens_known(&r->placed.dispatch),
            .movable = r->placed.moves == MOVES_NOT && !r->placed.handing && !r->is_question,
        };
    }
}

static void instance_fill(struct migrate_plan *m, uint32_t slot, struct migrate_instance *in)
{
    const struct endpoint_place *place = &m->d->endpoint[slot];
    struct move_place p = { .ep = dispatch_endpoint_at(m->d->dispatch, slot),
                            .page_tokens = place->target.page_tokens,
                            .draining = place->draining,
                            .leaves_us = place->leaves_us,
                            .incoming_pages = place->incoming_pages,
                            .sending_pages = place->sending_pages,
                            .moved_us = place->moved_us };
    *in = (struct migrate_instance){ .id = slot,
                                     .session = &m->session[m->first[slot]],
                                     .session_count = m->first[slot + 1] - m->first[slot] };
    if (place->feed) p.load = block_feed_load(place->feed, &p.told_us);
    move_view_fill(&p, loop_now_us(m->d->loop), in);
}

static bool has_pages(const struct endpoint_place *p)
{
    return p->used && p->target.bundle && p->target.page_tokens > 0;
}

static bool may_exchange(const struct endpoint_place *a, const struct endpoint_place *b)
{
    return has_pages(a) && has_pages(b) && a->service == b->service &&
           a->target.bundle == b->target.bundle && a->target.page_tokens == b->target.page_tokens;
}

static int64_t ask(struct migrate_plan *m, struct migrate_view *view)
{
    const struct migrate_config config = migrate_config_for(view->page_tokens);
    struct migrate_verdict v;
    m->row->decide(m->state, &config, view, loop_now_us(m->d->loop), &m->rng, &v);
    for (uint32_t i = 0; i < v.count && m->under_way < MIGRATE_AT_ONCE; i++)
        begin(m, m->request[v.move[i].session], v.move[i].to);
    return v.again_us;
}

/* Those that slot `from` may exchange sessions with, and it, unless a slot before it has done so. */
static int64_t look_at(struct migrate_plan *m, uint32_t from)
{
    const struct decide *d = m->d;
    const struct endpoint_place *first = &d->endpoint[from];
    for (uint32_t i = 0; i < from; i++)
        if (may_exchange(&d->endpoint[i], first)) return INT64_MAX;
    struct migrate_view view = { .instance = m->instance,
                                 .page_tokens = first->target.page_tokens };
    for (uint32_t i = from; i < DISPATCH_ENDPOINTS; i++) {
        if (!may_exchange(&d->endpoint[i], first)) continue;
        const struct dispatch_endpoint *ep = dispatch_endpoint_at(d->dispatch, i);
        bool slower = view.link_bytes_s <= 0 || ep->link_bytes_s < view.link_bytes_s;
        if (ep->link_bytes_s > 0 && slower) view.link_bytes_s = ep->link_bytes_s;
        view.page_bytes = fmax(view.page_bytes, (double)ep->kv_bytes_per_token * view.page_tokens);
        instance_fill(m, i, &m->instance[view.instance_count++]);
    }
    return ask(m, &view);
}

static void on_look(void *arg)
{
    struct migrate_plan *m = arg;
    struct migrate_view none = { .instance = m->instance, .page_tokens = BLOCK_TOKENS };
    gather(m);
    int64_t again_us = ask(m, &none);
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++)
        if (has_pages(&m->d->endpoint[i])) again_us = min_i64(again_us, look_at(m, i));
    if (again_us < INT64_MAX) loop_timer_set(m->d->loop, &m->look, again_us);
}
