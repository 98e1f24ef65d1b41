/* kv_transfers.c - copies of K and V, and what follows when they arrive.
 *
 *     fetch       a peer's cached beginning ──► the request goes where it was sent
 *     hand-over   prompt done ──► copy all ──► decode instance goes on
 *     migration   copy all ──► copy what was added ──► ... ──► stop, copy the rest ──► target goes on
 *
 * A session's pages stay at its source until the last byte has arrived. A migration whose session
 * ends, is preempted or loses its target meanwhile is dropped: the session simply stays. A fetch
 * whose peer goes is dropped too: the prompt is computed where it was sent. The
 * target's pages are taken when the session is admitted there, not before: what a migration row
 * counted as under way may have been given away, and then the session waits first in the queue.
 */
#include "simulator/kv_transfers.h"

#include "base/core/bits.h"
#include "simulator/run.h"

#include <stdlib.h>

int kv_transfers_start(struct run *run, struct err *err)
{
    struct kv_transfers *m = &run->kv;
    const struct sim_config *sim = &run->config;
    list_init(&m->stranded);
    bool all = kv_link_init(&m->link, run->places_max, sim->link_bytes_s, sim->link_us);
    m->instance = calloc(run->places_max, sizeof *m->instance);
    if (!all || !m->instance) return err_set(err, -ENOMEM, "simulator: no memory for what moves");
    m->row = sim->migrate;
    m->config = migrate_config_for(sim->page_tokens);
    must(m->row->state_size <= KV_TRANSFERS_STATE_BYTES);
    rng_stream(&m->rng, sim->seed, 0, WORLD_MIGRATE);
    run_at(run, &m->look, run->now_us, RANK_LOOK);
    return 0;
}

void kv_transfers_stop(struct run *run)
{
    kv_link_fini(&run->kv.link);
    free(run->kv.instance);
    free(run->kv.session);
    free(run->kv.flight);
}

/* ---- copies --------------------------------------------------------------------------------- */

static struct instance *target_of(const struct run *run, const struct flight *f)
{
    struct instance *in = run->instance[f->move_to];
    return in && in->config.serial == f->move_serial ? in : NULL;
}

/* K and V of one token, as the model of this place has it. */
static double token_bytes(const struct run *run, const struct sim_pool *pool)
{
    return model_spec_kv_token_bytes(pool->has_model ? &pool->model : &run->config.model);
}

static void copy_tokens(struct run *run, struct flight *f, uint32_t from, uint32_t tokens)
{
    struct kv_transfers *m = &run->kv;
    const struct sim_pool *pool = run->instance[f->move_to]->config.pool;
    must(kv_link_begin(&m->link, &f->copy, from, f->move_to, tokens * token_bytes(run, pool),
                       run->now_us));
    run->result->link_bytes = m->link.bytes;
    run_at(run, &m->due, kv_link_next_us(&m->link), RANK_COPY);
}

static void aim(struct run *run, struct flight *f, uint32_t place, uint32_t pages)
{
    f->move_to = place;
    f->move_serial = run->instance[place]->config.serial;
    f->move_pages = pages;
    run->instance[place]->incoming++;
    run->instance[place]->incoming_pages += pages;
}

/* The flight has no target any more. */
static void unaim(struct run *run, struct flight *f)
{
    struct instance *to = target_of(run, f);
    kv_link_drop(&run->kv.link, &f->copy);
    run_at(run, &run->kv.due, kv_link_next_us(&run->kv.link), RANK_COPY);
    f->move = FLIGHT_STAYS;
    if (!to) return;
    to->incoming--;
    to->incoming_pages -= f->move_pages;
    if (to->incoming == 0 && to->state == INSTANCE_DRAINING) run->drained = true;
}

/* Of what is computed: the rest of a page stays behind and is computed again. */
static uint32_t whole_pages(const struct run *run, const struct flight *f)
{
    return f->session->computed / run->config.page_tokens;
}

static void deliver(struct run *run, struct flight *f)
{
    struct instance *from = run->instance[f->instance], *to = target_of(run, f);
    f->imported_tokens = whole_pages(run, f) * run->config.page_tokens;
    list_remove(&f->on_instance);
    from->in_flight--;
    from->kind->give(from, f, run->now_us);
    run_at(run, &from->event, from->next_us, RANK_INSTANCE + f->instance);
    if (from->in_flight == 0 && from->state == INSTANCE_DRAINING) run->drained = true;
    run->result->stall_s += (double)(run->now_us - f->held_us) * 1e-6;
    if (f->move == FLIGHT_STOPPED) {
        dispatch_migrate(run->router[f->router].core, &f->core, f->move_to, run->now_us);
        run->result->migrations++;
    } else {
        run->result->handoffs += f->move_to != f->instance;
    }
    unaim(run, f);
    f->instance = f->move_to;
    if (to->kind->submit(to, f, run->now_us, NULL) < 0) {
        routers_lost(run, f);
        return;
    }
    list_push_back(&to->flights, &f->on_instance);
    to->in_flight++;
    run_at(run, &to->event, to->next_us, RANK_INSTANCE + f->instance);
}

/* ---- hand-overs ----------------------------------------------------------------------------- */

/* Its target is gone, or what it had at its source: for the router it is where its pages are. */
static void count_at_source(struct run *run, struct flight *f)
{
    if (f->core.slot == f->instance) return;
    dispatch_migrate(run->router[f->router].core, &f->core, f->instance, run->now_us);
}

void kv_transfers_prefilled(struct run *run, struct flight *f)
{
    uint32_t place = dispatch_pd_handoff(run->router[f->router].core, &f->core, run->now_us);
    f->move = FLIGHT_HANDED_OVER;
    if (place == ROUTE_NONE) {
        count_at_source(run, f);
        list_push_back(&run->kv.stranded, &f->link);
        return;
    }
    aim(run, f, place, 0);
    if (place == f->instance) { /* its role has changed meanwhile: all of it is there */
        deliver(run, f);
        return;
    }
    copy_tokens(run, f, f->instance, whole_pages(run, f) * run->config.page_tokens);
}

void kv_transfers_stranded(struct run *run)
{
    struct list *last = run->kv.stranded.prev; /* who is stranded again comes behind it */
    for (bool more = !list_empty(&run->kv.stranded); more;) {
        struct list *node = list_pop_front(&run->kv.stranded);
        more = node != last;
        kv_transfers_prefilled(run, CONTAINER_OF(node, struct flight, link));
    }
}

/* ---- peers' caches -------------------------------------------------------------------------- */

/* What was cached there when the router last heard may be gone. The pages are copied as they are
 * now; that they are evicted under way does not matter. */
bool kv_transfers_fetch(struct run *run, struct flight *f)
{
    const struct route_verdict *v = &f->core.route;
    if (v->fetch_from_id == ROUTE_NONE || v->fetch_from_id == f->instance) return false;
    struct instance *from = run->instance[v->fetch_from_id], *to = run->instance[f->instance];
    if (!from || from->state == INSTANCE_GONE || !from->kind->cached || !to->kind->cached)
        return false;
    uint32_t held = from->kind->cached(from, f), local = to->kind->cached(to, f);
    if (held <= local) return false;
    f->imported_from = local;
    f->imported_tokens = held;
    aim(run, f, f->instance, 0);
    f->move = FLIGHT_FETCHING;
    f->fetch_from = v->fetch_from_id;
    run->result->fetches++;
    run->result->fetched_tokens += held - local;
    copy_tokens(run, f, v->fetch_from_id, held - local);
    return true;
}

/* ---- live migration ------------------------------------------------------------------------- */

/* Its copy can go on: it decodes, as when the copy began, and the target is there. */
static bool goes_on(const struct run *run, const struct flight *f)
{
    const struct session *s = f->session;
    return s->state == SESSION_RUNNING && s->total - s->computed == 1 &&
           s->preemptions == f->preemptions && target_of(run, f);
}

static void drop(struct run *run, struct flight *f)
{
    struct instance *from = run->instance[f->instance];
    run->result->migrations_dropped++;
    unaim(run, f);
    if (!f->session->held) return;
    from->kind->resume(from, f, run->now_us);
    run_at(run, &from->event, from->next_us, RANK_INSTANCE + f->instance);
}

static void next_stage(struct run *run, struct flight *f)
{
    uint32_t pages = whole_pages(run, f), left = pages - f->copied_pages;
    struct instance *from = run->instance[f->instance];
    if (migrate_stops(&run->kv.config, f->stage++, left)) {
        f->move = FLIGHT_STOPPING;
        from->kind->hold(from, f, run->now_us);
        return;
    }
    f->move = FLIGHT_COPYING;
    f->copied_pages = pages; /* once this stage has arrived */
    copy_tokens(run, f, f->instance, left * run->config.page_tokens);
}

void kv_transfers_stands(struct run *run, struct flight *f)
{
    f->held_us = run->now_us;
    if (!goes_on(run, f)) {
        drop(run, f);
        return;
    }
    f->move = FLIGHT_STOPPED;
    copy_tokens(run, f, f->instance,
                (whole_pages(run, f) - f->copied_pages) * run->config.page_tokens);
}

/* Room for every session of the fleet. */
static void reserve(struct run *run)
{
    struct kv_transfers *m = &run->kv;
    uint32_t all = 0;
    for (uint32_t i = 0; i < run->places; i++)
        all += run->instance[i] ? run->instance[i]->in_flight : 0;
    if (all <= m->session_max) return;
    m->session_max = 2 * all;
    m->session = realloc(m->session, m->session_max * sizeof *m->session);
    m->flight = realloc(m->flight, m->session_max * sizeof(struct flight *));
    must(m->session && m->flight);
}

static double sending_pages(const struct instance *in)
{
    double pages = 0;
    LIST_EACH (&in->flights, node) {
        const struct flight *f = CONTAINER_OF(node, struct flight, on_instance);
        if (f->move != FLIGHT_STAYS && f->move != FLIGHT_FETCHING) pages += f->move_pages;
    }
    return pages;
}

void kv_transfers_look(struct run *run)
{
    struct kv_transfers *m = &run->kv;
    struct migrate_view view = { .instance = m->instance,
                                 .page_tokens = run->config.page_tokens,
                                 .page_bytes = run->config.page_tokens *
                                               token_bytes(run, &run->config.pool[0]),
                                 .link_bytes_s = m->link.bytes_s };
    uint32_t used = 0;
    reserve(run);
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (!in || !in->kind->view || in->state == INSTANCE_STARTING) continue;
        struct migrate_instance *at = &m->instance[view.instance_count++];
        in->kind->view(in, at, &m->session[used], &m->flight[used], m->session_max - used);
        at->id = i;
        at->draining = in->state == INSTANCE_DRAINING;
        at->accepts &= !at->draining;
        at->receiving_pages = in->incoming_pages;
        at->sending_pages = sending_pages(in);
        at->leaves_us = in->leaves_us;
        for (uint32_t k = 0; k < at->session_count; k++)
            m->session[used + k].id = used + k;
        used += at->session_count;
    }
    struct migrate_verdict v;
    m->row->decide(m->state, &m->config, &view, run->now_us, &m->rng, &v);
    for (uint32_t i = 0; i < v.count; i++) {
        struct flight *f = m->flight[v.move[i].session];
        must(f->instance == v.move[i].from && f->move == FLIGHT_STAYS);
        f->stage = f->copied_pages = 0;
        f->preemptions = f->session->preemptions;
        aim(run, f, v.move[i].to, ceil_div_u32(f->session->computed + 1, view.page_tokens));
        next_stage(run, f);
    }
    run_at(run, &m->look, v.again_us, RANK_LOOK);
}

/* ---- what happens to copies ----------------------------------------------------------------- */

void kv_transfers_arrived(struct run *run)
{
    struct heap_node *node;
    while ((node = kv_link_arrived(&run->kv.link, run->now_us))) {
        struct flight *f = CONTAINER_OF(node, struct flight, copy);
        if (f->move == FLIGHT_FETCHING) {
            unaim(run, f);
            routers_deliver(run, f);
        } else if (f->move != FLIGHT_HANDED_OVER && !goes_on(run, f)) {
            drop(run, f);
        } else if (f->move == FLIGHT_COPYING) {
            next_stage(run, f);
        } else {
            deliver(run, f);
        }
    }
    run_at(run, &run->kv.due, kv_link_next_us(&run->kv.link), RANK_COPY);
}

void kv_transfers_forget(struct run *run, struct flight *f)
{
    if (f->move == FLIGHT_STAYS) return;
    if (list_linked(&f->link)) {
        list_remove(&f->link);
        f->move = FLIGHT_STAYS;
        return;
    }
    if (f->move == FLIGHT_HANDED_OVER) {
        count_at_source(run, f);
    } else {
        run->result->migrations_dropped++;
    }
    unaim(run, f);
}

/* A session that stands for its last step's end is looked at then; what leaves `in` by a hand-over or
 * a migration is among its flights, which are looked after one by one. */
void kv_transfers_instance_gone(struct run *run, const struct instance *in)
{
    struct heap *under_way = &run->kv.link.under_way;
    for (size_t i = 0; i < under_way->count;) {
        struct flight *f = CONTAINER_OF(under_way->node[i], struct flight, copy);
        bool from_it = f->move == FLIGHT_FETCHING && f->fetch_from == in->config.place;
        if (target_of(run, f) != in && !from_it) {
            i++;
            continue;
        }
        if (from_it) { /* computed anew where it was sent */
            unaim(run, f);
            f->imported_tokens = f->imported_from = 0;
            routers_deliver(run, f);
        } else if (f->move == FLIGHT_FETCHING) {
            unaim(run, f);
            f->imported_tokens = f->imported_from = 0;
            routers_died(run, f);
        } else if (f->move == FLIGHT_HANDED_OVER) {
            unaim(run, f);
            kv_transfers_prefilled(run, f);
        } else {
            drop(run, f);
        }
        i = 0; /* their places in the heap have changed */
    }
}
