/* leaders.c - elects one of two controllers that share a store, in virtual time. */
#include "tests/sim/leaders.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <stdio.h>

#define ADDRESS "c%u:%u" /* of a controller, by its index */

static int64_t clock_us(const struct controller_node *n)
{
    return node_mono_us(n->world, &n->node);
}

bool leaders_leads(const struct controller_node *n)
{
    if (n->world->mutant == MUTANT_UNFENCED) return n->control != NULL;
    return n->alive && election_leads(&n->election, clock_us(n)) && store_epoch(n->store) > 0;
}

static bool leads(void *arg)
{
    return leaders_leads(arg);
}

/* Two never believe at one time, whether they run or are stopped. */
static void check_believers(struct world *w)
{
    uint32_t believers = 0;
    for (uint32_t i = 0; i < w->controller_count; i++) {
        const struct controller_node *n = &w->controllers[i];
        believers += n->alive && election_leads(&n->election, clock_us(n));
    }
    if (believers > 1)
        check_fail(w, CHECK_FENCED, "%u controllers believe that they lead", believers);
}

/* ---- terms ---- */

static void set_fence(struct controller_node *n)
{
    int64_t ahead_us = controller_clock_us(n->world, n) - clock_us(n);
    bool open = n->world->mutant == MUTANT_UNFENCED;
    atomic_store(&n->fence.until_us, open ? INT64_MAX : n->election.until_us + ahead_us);
    atomic_store(&n->fence.epoch, n->setup.term.epoch);
}

static void end_term(struct world *w, struct controller_node *n)
{
    if (!n->control) return;
    timeline_note(&w->time, "term_over", w->name, n->index);
    atomic_store(&n->fence.epoch, 0);
    control_free(n->control);
    n->control = NULL;
    cloud_cut(w, n);
    n->life++; /* its ticks are over */
}

static void begin_term(struct world *w, struct controller_node *n, uint64_t epoch)
{
    /* A lost store begins at the date, which may be off: the provider then asks for a later epoch. */
    if (epoch <= w->epoch_last && !n->store_was_lost)
        check_fail(w, CHECK_FENCED, "epoch %d again", (int)epoch);
    w->epoch_last = max_u64(w->epoch_last, epoch);
    w->controller = n;
    n->terms++;
    n->setup.term = (struct control_term){ epoch, leads, n };
    timeline_note(&w->time, "term_begins", w->name, n->index);
    if (controller_begin_control(w, n)) {
        set_fence(n);
        return;
    }
    election_lost(&n->election, true, clock_us(n));
    store_lease_release(n->store);
}

static void step_down(struct world *w, struct controller_node *n)
{
    election_lost(&n->election, store_epoch(n->store) > 0, clock_us(n));
    end_term(w, n);
    store_lease_release(n->store);
}

bool leaders_may_tick(struct world *w, struct controller_node *n)
{
    check_believers(w);
    if (!leaders_leads(n)) {
        step_down(w, n);
        return false;
    }
    if (n == w->controller) return true;
    (void)control_tick(n->control,
                       controller_clock_us(w, n)); /* the mutant's: its calls give it away */
    return false;
}

bool leaders_after_tick(struct world *w, struct controller_node *n)
{
    if (!n->control) return false; /* it died in its tick */
    uint64_t seen = control_epoch_seen(n->control);
    if (w->mutant == MUTANT_UNFENCED) return true;
    if (store_epoch(n->store) && seen == 0) return true;
    n->election.epoch = max_u64(n->election.epoch, seen);
    step_down(w, n);
    return false;
}

/* ---- the election ---- */

static void elect(struct world *w, const struct event *e);

static void elect_later(struct world *w, struct controller_node *n)
{
    int64_t at_us = max_i64(election_again_us(&n->election), clock_us(n) + 10 * MS);
    timeline_at(&w->time, max_i64(node_world_us(&n->node, at_us), w->time.now_us + 1), elect, n,
                n->deaths);
}

static void see(struct world *w, struct controller_node *n, int64_t now_us)
{
    struct store_lease lease = { 0 };
    int rc = store_lease_see(n->store, &lease, NULL);
    election_saw(&n->election, rc, &lease, now_us, now_us);
    if (w->mutant == MUTANT_HASTY)
        n->election.since_us = n->election.line_us = -(100 * SIM_TERM_US);
}

static void acquire(struct world *w, struct controller_node *n, int64_t now_us)
{
    uint64_t epoch = 0, date_s = (uint64_t)max_i64(node_date_us(w, &n->node) / SECOND, 1);
    char address[32];
    snprintf(address, sizeof address, ADDRESS, n->index, 1 + n->index);
    const struct store_claim claim = { str_from(n->election.holder), str_from(address), SIM_TERM_US,
                                       max_u64(date_s, n->election.epoch + 1) };
    int rc = store_lease_acquire(n->store, &claim, &n->election.seen, &epoch, NULL);
    election_acquired(&n->election, rc, epoch, now_us, now_us);
    if (rc == 0) begin_term(w, n, epoch);
}

static void elect(struct world *w, const struct event *e)
{
    struct controller_node *n = e->who;
    if (!n->alive || e->what != n->deaths || node_defers(w, &n->node, true)) return;
    int64_t now_us = clock_us(n);
    store_memory_cut(n->store, w->time.now_us < n->away_until);
    enum election_act act = election_turn(&n->election, now_us);
    if (!n->election.leads && w->mutant != MUTANT_UNFENCED) end_term(w, n);
    if (act == ELECTION_SEE) see(w, n, now_us);
    if (act == ELECTION_ACQUIRE) acquire(w, n, now_us);
    if (act == ELECTION_RENEW_IT) {
        election_renewed(&n->election, store_lease_renew(n->store, NULL), now_us, now_us);
        if (n->election.leads)
            set_fence(n);
        else if (w->mutant != MUTANT_UNFENCED)
            end_term(w, n);
    }
    check_believers(w);
    elect_later(w, n);
}

void leaders_start(struct world *w, struct controller_node *n)
{
    n->alive = true;
    n->election = (struct election){ .term_us = SIM_TERM_US, .shared = true };
    snprintf(n->election.holder, sizeof n->election.holder, "c%u-%u", n->index, n->deaths);
    elect_later(w, n);
}

void leaders_lose_store(struct world *w)
{
    store_memory_lose(w->controller->store);
    for (uint32_t i = 0; i < w->controller_count; i++)
        w->controllers[i].store_was_lost = true;
    timeline_note(&w->time, "store_lost", w->name, 0);
}

/* ---- who is asked ---- */

void leaders_known(const struct world *w, struct controllers *ret)
{
    *ret = (struct controllers){ 0 };
    for (uint32_t i = 0; i < w->controller_count; i++) {
        char at[32];
        snprintf(at, sizeof at, ADDRESS, i, 1 + i);
        must(controllers_add(ret, str_from(at), NULL) == 0);
    }
}

struct controller_node *leaders_asked(struct world *w, const struct controllers *c)
{
    if (w->controller_count == 1) return w->controller;
    return &w->controllers[controllers_next(c)->port - 1];
}

bool leaders_sends_on(const struct world *w, const struct controller_node *n, struct controllers *c)
{
    (void)w;
    struct str leader = election_leader(&n->election);
    (void)controllers_stands_by(c, leader);
    return leader.len > 0;
}
