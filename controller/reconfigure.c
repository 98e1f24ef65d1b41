/* reconfigure.c - replaces the configured services in a running controller.
 *
 * All that the controller knows of services is kept in arrays by their index. A service keeps what belongs
 * to it under its name, wherever its index moves to:
 *
 *     overrides, demand, routers' counters, last decision   always
 *     policies' stored state                                where record.h finds it to be of the same kind
 *     mix, roles, power                                     with equal policies and pools, else begun anew
 *
 * Instances find their service and pool again by the names in their intents. An instance of a pool that is
 * not configured any more is drained by the plan; one of a pool that is configured again is taken up. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <stdlib.h>
#include <string.h>

struct control_next {
    struct control_setup setup;
    struct plan_service service[PLAN_SERVICES_MAX];
    struct plan_memory memory[PLAN_SERVICES_MAX];
    uint32_t from[PLAN_SERVICES_MAX]; /* index of the service of this name before; PLAN_NONE: new */
    /* The same, but PLAN_NONE also where policies or pools differ. */
    uint32_t same[PLAN_SERVICES_MAX];
    char *room; /* for one array of the old state */
};

/* The arrays by service and the size of one element. */
struct array {
    void *base;
    size_t size;
    const uint32_t *from;
};

#define ARRAYS_MAX (9 + CONTROL_ROUTERS_MAX)

static uint32_t list_arrays(struct control *c, const struct control_next *n,
                            struct array ret[ARRAYS_MAX])
{
    uint32_t count = 0;
    ret[count++] = (struct array){ c->desired.last, sizeof c->desired.last[0], n->from };
    ret[count++] = (struct array){ c->observed.demand, sizeof c->observed.demand[0], n->from };
    ret[count++] = (struct array){ c->observed.counted, sizeof c->observed.counted[0], n->from };
    ret[count++] = (struct array){ c->told, sizeof c->told[0], n->from };
    ret[count++] = (struct array){ c->desired.mix, sizeof c->desired.mix[0], n->same };
    ret[count++] = (struct array){ c->observed.power, sizeof c->observed.power[0], n->same };
    ret[count++] = (struct array){ c->observed.roles, sizeof c->observed.roles[0], n->same };
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->observed.router[r];
        ret[count++] = (struct array){ rt->demand, sizeof rt->demand[0], n->from };
    }
    return count;
}

/* ---- the next services ---- */

static uint32_t index_of(const struct plan_service *list, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return i;
    return PLAN_NONE;
}

static uint32_t pool_of(const struct plan_service *s, const char *name)
{
    for (uint32_t p = 0; p < s->pool_count; p++)
        if (strcmp(s->pool[p].name, name) == 0) return p;
    return PLAN_NONE;
}

static bool pools_are_equal(const struct plan_pool *a, const struct plan_pool *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->provider, b->provider) == 0 &&
           a->role == b->role && a->offer_count == b->offer_count &&
           memcmp(a->offer, b->offer, a->offer_count * sizeof a->offer[0]) == 0;
}

/* Returns true if state by pool and by policy means the same for both. */
static bool is_same_kind(const struct plan_service *a, const struct plan_service *b)
{
    bool same = a->pool_count == b->pool_count && a->policy == b->policy && a->mix == b->mix &&
                a->place == b->place && a->role == b->role && a->power == b->power;
    for (uint32_t p = 0; p < a->pool_count && same; p++)
        same = pools_are_equal(&a->pool[p], &b->pool[p]);
    return same;
}

static void keep_overrides(const struct plan_service *before, struct plan_service *s)
{
    s->paused = before->paused;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        uint32_t was = pool_of(before, s->pool[p].name);
        if (was == PLAN_NONE) continue;
        s->pool[p].manual = before->pool[was].manual;
        s->pool[p].drained = before->pool[was].drained;
    }
}

static int keep_memory(const struct control *c, struct control_next *n, uint32_t s)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct plan_service *before = &c->desired.service[n->from[s]];
    int rc = policy_memory_encode(before, &c->desired.memory[n->from[s]], &text);
    /* Of another kind: the service begins without it. */
    if (rc == 0) (void)policy_memory_decode(&n->service[s], buf_view(&text), &n->memory[s]);
    return rc;
}

static int prepare_service(struct control *c, struct control_next *n, uint32_t s, struct err *err)
{
    struct plan_service *to = &n->service[s];
    *to = n->setup.service[s];
    n->from[s] = n->same[s] = index_of(c->desired.service, c->setup.service_count, to->name);
    if (n->from[s] == PLAN_NONE) {
        int rc = control_restore_override(c, to, err);
        return rc < 0 ? rc : control_restore_memory(c, to, &n->memory[s], err);
    }
    const struct plan_service *before = &c->desired.service[n->from[s]];
    if (!is_same_kind(before, to)) n->same[s] = PLAN_NONE;
    keep_overrides(before, to);
    int rc = keep_memory(c, n, s);
    return rc < 0 ? err_set(err, rc, "no memory for the policies' state") : 0;
}

int control_prepare(struct control *c, const struct control_setup *setup, struct control_next **ret,
                    struct err *err)
{
    CLEANUP(control_next_freep) struct control_next *n = calloc(1, sizeof *n);
    struct array array[ARRAYS_MAX];
    size_t largest = 0;
    owner_assert(&c->owner);
    must(setup->service_count <= PLAN_SERVICES_MAX);
    must(c->money.offer_count + setup->offer_count <= PLAN_OFFERS_MAX);
    if (!n) return err_set(err, -ENOMEM, "no memory for the services");
    n->setup = *setup;
    for (uint32_t a = list_arrays(c, n, array); a-- > 0;)
        if (array[a].size > largest) largest = array[a].size;
    n->room = malloc(largest * PLAN_SERVICES_MAX);
    if (!n->room) return err_set(err, -ENOMEM, "no memory for the services");
    for (uint32_t s = 0; s < setup->service_count; s++) {
        int rc = prepare_service(c, n, s, err);
        if (rc < 0) return rc;
    }
    *ret = TAKE(n);
    return 0;
}

void control_next_free(struct control_next *n)
{
    if (n) free(n->room);
    free(n);
}

/* ---- the change ---- */

/* Sets the gauges of what is not configured any more to 0: they would keep their last value. */
static void quiet_gauges(struct control *c, const struct control_next *n)
{
    static const char *const labels[] = { "service", "pool" };
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *was = &c->desired.service[s];
        uint32_t now = index_of(n->service, n->setup.service_count, was->name);
        struct str value[] = { str_from(was->name), { 0 } };
        if (now == PLAN_NONE) metrics_quiet(c->metrics, labels, value, 1);
        for (uint32_t p = 0; p < was->pool_count && now != PLAN_NONE; p++) {
            value[1] = str_from(was->pool[p].name);
            if (pool_of(&n->service[now], was->pool[p].name) == PLAN_NONE)
                metrics_quiet(c->metrics, labels, value, 2);
        }
    }
}

static void move_arrays(struct control *c, const struct control_next *n)
{
    struct array array[ARRAYS_MAX];
    for (uint32_t a = list_arrays(c, n, array); a-- > 0;) {
        char *to = array[a].base;
        size_t size = array[a].size;
        memcpy(n->room, to, size * PLAN_SERVICES_MAX);
        memset(to, 0, size * PLAN_SERVICES_MAX);
        for (uint32_t s = 0; s < n->setup.service_count; s++)
            if (array[a].from[s] != PLAN_NONE)
                memcpy(to + s * size, n->room + array[a].from[s] * size, size);
    }
}

/* Finds the instance's service and pool again. A pool of another role gives it that role. */
static void place_again(struct control *c, const struct control_next *n, uint32_t at)
{
    const struct intent *i = &c->money.intent[at];
    struct detail *d = &c->observed.detail[at];
    enum role was = ROLE_BOTH;
    bool known = d->service != PLAN_NONE && d->pool != PLAN_NONE;
    if (known) was = c->desired.service[d->service].pool[d->pool].role;
    d->service = index_of(n->service, n->setup.service_count, i->service);
    d->pool = d->service == PLAN_NONE ? PLAN_NONE : pool_of(&n->service[d->service], i->pool);
    if (d->pool == PLAN_NONE) return;
    enum role now = n->service[d->service].pool[d->pool].role;
    if (!known || now != was) d->role = now;
}

const struct offer *control_offers(const struct control *c, uint32_t *ret_count)
{
    *ret_count = c->money.offer_count;
    return c->money.offer;
}

/* Adds the offers that are new, and has all prices asked for at once: their rows may have changed. */
static void take_offers(struct control *c, const struct control_setup *s)
{
    for (uint32_t i = 0; i < s->offer_count; i++)
        c->money.offer[c->money.offer_count++] = s->offer[i];
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        c->observed.provider[k].price_sent_us = 0;
}

static void take_setup(struct control *c, const struct control_setup *s)
{
    take_offers(c, s);
    c->setup.service = s->service;
    c->setup.service_count = s->service_count;
    c->setup.launch = s->launch;
    c->setup.merge = s->merge;
    c->setup.tick_us = s->tick_us;
    c->setup.lease_ms = s->lease_ms;
    c->setup.grace_ms = s->grace_ms;
    c->setup.age_ms = s->age_ms;
    c->setup.drain_ms = s->drain_ms;
    c->setup.decisions_max = s->decisions_max;
    c->setup.keys_required = s->keys_required;
    c->desired.decision_log.count_max = s->decisions_max;
}

void control_commit(struct control *c, struct control_next *next_owned)
{
    struct control_next *n = next_owned;
    owner_assert(&c->owner);
    quiet_gauges(c, n);
    for (uint32_t at = 0; at < c->money.count; at++)
        place_again(c, n, at);
    move_arrays(c, n);
    memcpy(c->desired.service, n->service, sizeof c->desired.service);
    memcpy(c->desired.memory, n->memory, sizeof c->desired.memory);
    take_setup(c, &n->setup);
    c->desired.plan.decision_count = 0; /* views show no target until the next plan */
    c->urgent = true;
    log_event(LOG_INFO, "reconfigured", "services=%u", c->setup.service_count);
    control_next_free(n);
}
