/* kv_transfers.c - carries out the acts of fleet/kv_transfer.c over the modelled link.
 *
 * A session's pages stay at its source until the last byte has arrived. The target's pages are taken
 * when the session is admitted there, not before: pages that count as reserved for it may have been given
 * away, and then the session waits first in the queue. As engines do, a target asks its peer for
 * KV_FETCH_US_MAX and computes the rest that has not come by then.
 */
#include "simulator/kv_transfers.h"

#include "base/core/bits.h"
#include "base/wire/kv_wire.h"
#include "simulator/run.h"

#include <stdlib.h>

int kv_transfers_start(struct run *run, struct err *err)
{
    struct kv_transfers *m = &run->kv;
    const struct sim_config *sim = &run->config;
    bool all = kv_link_init(&m->link, run->places_max, sim->link_bytes_s, sim->link_us);
    m->told = calloc(run->places_max, sizeof *m->told);
    for (uint32_t i = 0; i < sim->routers; i++) {
        m->memory[i] = calloc(1, migrate_look_bytes(run->places_max, run->trace->count));
        all &= m->memory[i] != NULL;
    }
    if (!all || !m->told) return err_set(err, -ENOMEM, "simulator: no memory for KV transfers");
    for (uint32_t i = 0; i < sim->routers; i++) {
        migrate_look_init(&m->look[i], sim->migrate, run->places_max, run->trace->count,
                          rng_at(sim->seed, ((uint64_t)WORLD_MIGRATE << 32) + i), m->memory[i]);
    }
    m->looks = sim->migrate != migrate_find(STR(MIGRATE_DEFAULT));
    run_at(run, &m->look_at, run->now_us, RANK_LOOK);
    if (m->looks) run_at(run, &m->tell, run->now_us, RANK_TELL);
    return 0;
}

void kv_transfers_stop(struct run *run)
{
    kv_link_fini(&run->kv.link);
    free(run->kv.told);
    for (uint32_t i = 0; i < SIM_ROUTERS_MAX; i++)
        free(run->kv.memory[i]);
}

void kv_transfers_instance_new(struct run *run, const struct instance *in)
{
    uint32_t place = in->config.place;
    kv_link_port_new(&run->kv.link, place);
    run->kv.told[place] = (struct kv_told){ 0 };
    for (uint32_t i = 0; i < run->config.routers; i++)
        run->kv.look[i].port[place] = (struct kv_port){ .serial = 1 + (uint64_t)in->config.serial };
}

uint32_t kv_transfers_incoming(const struct run *run, const struct instance *in)
{
    uint32_t incoming = 0;
    for (uint32_t i = 0; i < run->config.routers; i++)
        incoming += run->kv.look[i].port[in->config.place].incoming;
    return incoming;
}

static struct migrate_look *look_of(struct run *run, const struct flight *f)
{
    return &run->kv.look[f->router];
}

static struct kv_end end_at(struct run *run, const struct flight *f, uint32_t place)
{
    return (struct kv_end){ place, look_of(run, f)->port[place].serial };
}

static void set_due(struct run *run)
{
    run_at(run, &run->kv.due, kv_link_next_us(&run->kv.link), RANK_COPY);
}

/* ---- acts ----------------------------------------------------------------------------------- */

/* Returns the KV bytes of one token of the pool's model. */
static double token_bytes(const struct run *run, const struct sim_pool *pool)
{
    return model_spec_kv_token_bytes(pool->has_model ? &pool->model : &run->config.model);
}

/* Returns the whole computed pages: the rest of a page stays behind and is computed again. */
static uint32_t whole_pages(const struct run *run, const struct flight *f)
{
    return f->session->computed / run->config.page_tokens;
}

static void copy(struct run *run, struct flight *f, uint32_t tokens)
{
    struct kv_link *link = &run->kv.link;
    const struct sim_pool *pool = run->instance[f->routed.kv.to.slot]->config.pool;
    f->copy_tokens = tokens;
    must(kv_link_begin(link, &f->copy, f->routed.kv.from.slot, f->routed.kv.to.slot,
                       tokens * token_bytes(run, pool), run->now_us,
                       run->now_us + KV_FETCH_US_MAX));
    run->result->link_bytes = link->bytes;
    set_due(run);
}

/* Returns the tokens of a flight's copy that are there. */
static uint32_t copied_tokens(const struct run *run, const struct flight *f)
{
    uint32_t page_tokens = run->config.page_tokens;
    if (f->copy_tokens == 0 || run->now_us >= f->copy.last_us) return f->copy_tokens;
    double there = f->copy_tokens * kv_copy_share(&f->copy, run->now_us);
    return (uint32_t)there / page_tokens * page_tokens;
}

/* Takes a flight off its instance. False: the instance is gone, and fleet_kill deals with its flights. */
static bool leave(struct run *run, struct flight *f)
{
    struct instance *from = run->instance[f->instance];
    bool here = from && list_linked(&f->on_instance);
    if (here && from->state == INSTANCE_GONE) return false;
    if (!here) return true;
    list_remove(&f->on_instance);
    from->in_flight--;
    from->kind->give(from, f, run->now_us);
    run_at(run, &from->event, from->next_us, RANK_INSTANCE + f->instance);
    if (from->in_flight == 0 && from->state == INSTANCE_DRAINING) run->drained = true;
    return true;
}

/* Continues a flight at its target, with the pages that are there. */
static void begin(struct run *run, struct flight *f)
{
    bool fetched = !list_linked(&f->on_instance);
    if (!fetched) {
        f->imported_tokens = f->routed.kv.copied * run->config.page_tokens;
        run->result->stall_s += (double)(run->now_us - f->held_us) * 1e-6;
        if (!leave(run, f)) {
            list_remove(&f->on_instance);
            run->instance[f->instance]->in_flight--;
        }
    }
    f->instance = f->routed.kv.to.slot;
    if (fetched) kv_transfers_sent(run, f);
    routers_deliver(run, f);
}

/* Lets the router decide anew, unless a gone instance still has the flight. */
static void reroute(struct run *run, struct flight *f)
{
    f->imported_tokens = f->imported_from = 0;
    if (!leave(run, f)) return;
    migrate_look_gone(&f->routed.kv);
    routers_died(run, f);
}

static void resume(struct run *run, struct flight *f)
{
    struct instance *from = run->instance[f->instance];
    from->kind->resume(from, f, run->now_us);
    run_at(run, &from->event, from->next_us, RANK_INSTANCE + f->instance);
}

/* ---- events --------------------------------------------------------------------------------- */

static void feed(struct run *run, struct flight *f, enum kv_transfer_event event,
                 struct kv_transfer_input in)
{
    struct kv_transfer *x = &f->routed.kv;
    bool was = x->state != KVT_IDLE, migrates = x->state == KVT_COPYING || x->state == KVT_STOPPING;
    bool copies = event != KVT_TOKENS || x->state == KVT_WAITING;
    const struct instance *to = run->instance[x->to.slot];
    in.page_tokens = run->config.page_tokens;
    in.now_us = run->now_us;
    enum kv_transfer_act act = migrate_look_on(look_of(run, f), x, event, in);
    if (copies) kv_link_drop(&run->kv.link, &f->copy);
    if (copies) set_due(run);
    run->result->migrations_dropped += migrates && x->state == KVT_IDLE;
    if (was && x->state == KVT_IDLE && to && to->state == INSTANCE_DRAINING) run->drained = true;
    switch (act) {
    case KVT_COPY:
        copy(run, f,
             event == KVT_FETCH ? f->imported_tokens - f->imported_from
                                : (x->wanted - min_u32(x->copied, x->wanted)) * in.page_tokens);
        break;
    case KVT_STOP:
        run->instance[f->instance]->kind->hold(run->instance[f->instance], f, run->now_us);
        break;
    case KVT_BEGIN:
        begin(run, f);
        break;
    case KVT_RESUME:
        resume(run, f);
        break;
    case KVT_REROUTE:
        reroute(run, f);
        break;
    case KVT_NOTHING:
    case KVT_STAY:
        break;
    }
}

void kv_transfers_sent(struct run *run, struct flight *f)
{
    const struct dispatch *dispatch = run->router[f->router].dispatch;
    kv_transfer_at(&f->routed.kv, end_at(run, f, f->instance));
    if (dispatch_endpoint_at(dispatch, f->instance)->role == ROLE_PREFILL)
        feed(run, f, KVT_PREFILL, (struct kv_transfer_input){ 0 });
}

void kv_transfers_tokens(struct run *run, struct flight *f)
{
    if (run->kv.looks) {
        f->routed.kv.tokens = dispatch_tokens_known(&f->routed.dispatch);
        migrate_look_tokens(look_of(run, f), &f->routed.kv);
    }
    if (f->routed.kv.state != KVT_IDLE) feed(run, f, KVT_TOKENS, (struct kv_transfer_input){ 0 });
}

void kv_transfers_forget(struct run *run, struct flight *f)
{
    migrate_look_gone(&f->routed.kv);
    f->imported_tokens = f->imported_from = 0;
    feed(run, f, KVT_ENDED, (struct kv_transfer_input){ 0 });
}

void kv_transfers_prefilled(struct run *run, struct flight *f)
{
    struct kv_transfer_input in = { .pages = whole_pages(run, f) };
    struct director_verdict v;
    director_prefilled(run->router[f->router].director, &f->routed, run->now_us, &v);
    uint32_t place = v.slot;
    bool elsewhere = place != f->instance;
    if (elsewhere) in.to = end_at(run, f, place);
    run->result->handoffs += elsewhere;
    feed(run, f, elsewhere ? KVT_PREFILLED : KVT_UNPLACED, in);
}

/* The peer's cache may have lost blocks since the router's last report. Its pages are copied as they are
 * now; an eviction under way does not matter. */
bool kv_transfers_fetch(struct run *run, struct flight *f)
{
    const struct route_verdict *v = &f->routed.dispatch.route;
    if (v->fetch_from_id == ROUTE_NONE || v->fetch_from_id == f->instance) return false;
    struct instance *from = run->instance[v->fetch_from_id], *to = run->instance[f->instance];
    if (!from || from->state == INSTANCE_GONE || !from->kind->cached || !to->kind->cached)
        return false;
    uint32_t held = from->kind->cached(from, f), local = to->kind->cached(to, f);
    if (held <= local) return false;
    f->imported_from = local;
    f->imported_tokens = held;
    run->result->fetches++;
    run->result->fetched_tokens += held - local;
    const struct kv_transfer_input in = { .from = end_at(run, f, v->fetch_from_id),
                                          .to = end_at(run, f, f->instance),
                                          .pages = held / run->config.page_tokens,
                                          .copied = local / run->config.page_tokens };
    feed(run, f, KVT_FETCH, in);
    return true;
}

/* Returns true if a flight's copy can go on: its session decodes, as when the copy began. */
static bool goes_on(const struct flight *f)
{
    const struct session *s = f->session;
    return s->state == SESSION_RUNNING && s->total - s->computed == 1 &&
           s->preemptions == f->preemptions;
}

void kv_transfers_stands(struct run *run, struct flight *f)
{
    f->held_us = run->now_us;
    const struct kv_transfer_input in = { .pages = whole_pages(run, f) };
    if (!kv_port_of(look_of(run, f)->port, f->routed.kv.to)) {
        feed(run, f, KVT_TARGET_GONE, in);
    } else if (!goes_on(f)) {
        feed(run, f, KVT_LOST, in);
    } else {
        struct dispatch *dispatch = run->router[f->router].dispatch;
        run->result->migrations++;
        dispatch_migrate(dispatch, &f->routed.dispatch, f->routed.kv.to.slot, run->now_us);
        feed(run, f, KVT_STOPPED, in);
    }
}

/* ---- looks ---------------------------------------------------------------------------------- */

void kv_transfers_tell(struct run *run)
{
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (!in || in->state == INSTANCE_STARTING) continue;
        struct kv_told *told = &run->kv.told[i];
        *told = (struct kv_told){ .told = true, .at_us = run->now_us };
        instance_report(in, run->now_us, &told->load);
    }
    run_at(run, &run->kv.tell, run->now_us + EVENT_LOAD_MS * INT64_C(1000), RANK_TELL);
}

struct looking {
    struct run *run;
    uint32_t router;
};

static bool endpoint(void *arg, uint32_t slot, struct migrate_endpoint *ret)
{
    const struct looking *l = arg;
    const struct instance *in = l->run->instance[slot];
    const struct kv_told *told = &l->run->kv.told[slot];
    const struct director *d = l->run->router[l->router].director;
    if (!in || !director_migrate_endpoint(d, slot, ret)) return false;
    ret->load = told->told ? &told->load : NULL;
    ret->told_us = told->at_us;
    return true;
}

/* Begins a migration, or drops it: a session that lost its pages meanwhile, which its router does not see,
 * has nothing to copy. */
static void migrate(void *arg, struct kv_transfer *x, uint32_t to)
{
    const struct looking *l = arg;
    struct flight *f = CONTAINER_OF(x, struct flight, routed.kv);
    struct kv_transfer_input in = { .to = end_at(l->run, f, to),
                                    .tokens = x->tokens,
                                    .pages = whole_pages(l->run, f),
                                    .page_tokens = l->run->config.page_tokens,
                                    .now_us = l->run->now_us };
    f->preemptions = f->session->preemptions;
    if (goes_on(f)) {
        feed(l->run, f, KVT_MIGRATE, in);
        return;
    }
    migrate_look_on(look_of(l->run, f), x, KVT_MIGRATE, in);
    migrate_look_on(look_of(l->run, f), x, KVT_LOST, in);
    l->run->result->migrations_dropped++;
}

void kv_transfers_look(struct run *run)
{
    int64_t again_us = INT64_MAX;
    for (uint32_t i = 0; i < run->router_count; i++) {
        struct looking looking = { run, i };
        const struct migrate_host host = { &looking, endpoint, migrate };
        again_us = min_i64(again_us, migrate_look(&run->kv.look[i], &host, run->now_us));
    }
    run_at(run, &run->kv.look_at, again_us, RANK_LOOK);
}

/* ---- ends of copies ------------------------------------------------------------------------- */

/* Ends a copy. The part that came counts: its time may be up, or its source gone. */
static void over(struct run *run, struct flight *f, enum kv_transfer_event event)
{
    uint32_t tokens = copied_tokens(run, f);
    bool fetching = f->routed.kv.state == KVT_FETCHING;
    if (fetching && tokens == 0) f->imported_from = 0;
    if (fetching) f->imported_tokens = tokens > 0 ? f->imported_from + tokens : 0;
    if (f->routed.kv.state == KVT_COPYING && event == KVT_COPIED && !goes_on(f)) event = KVT_LOST;
    const struct kv_transfer_input in = { .pages = fetching ? 0 : whole_pages(run, f),
                                          .copied = f->routed.kv.copied +
                                                    tokens / run->config.page_tokens };
    feed(run, f, event, in);
}

void kv_transfers_over(struct run *run)
{
    struct kv_copy *c;
    while ((c = kv_link_over(&run->kv.link, run->now_us)))
        over(run, CONTAINER_OF(c, struct flight, copy), KVT_COPIED);
    set_due(run);
}

/* Ends the copies from and to a gone instance. A session that waits for the end of its last step is dealt
 * with then; fleet_kill deals with the instance's own flights one by one. */
void kv_transfers_instance_gone(struct run *run, const struct instance *in)
{
    uint32_t place = in->config.place;
    struct heap *under_way = &run->kv.link.under_way;
    for (size_t i = 0; i < under_way->count;) {
        struct kv_copy *c = CONTAINER_OF(under_way->node[i], struct kv_copy, node);
        struct flight *f = CONTAINER_OF(c, struct flight, copy);
        i++;
        if (f->routed.kv.from.slot != place && f->routed.kv.to.slot != place) continue;
        over(run, f, f->routed.kv.from.slot == place ? KVT_SOURCE_GONE : KVT_TARGET_GONE);
        i = 0; /* their places in the heap have changed */
    }
    for (uint32_t i = 0; i < run->config.routers; i++)
        run->kv.look[i].port[place].serial = 0;
}
