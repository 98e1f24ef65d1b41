/* tick.c - makes a controller, runs its ticks, and looks up and counts its state. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/charges.h"
#include "controller/control.h"
#include "controller/control_state.h"
#include "controller/stocks.h"

#include <stdlib.h>
#include <string.h>

#define TROUBLE_EVERY_US 10000000 /* a full disk is not logged every second */

uint32_t control_find(const struct control *c, const char *id)
{
    for (uint32_t i = 0; i < c->money.count; i++)
        if (strcmp(c->money.intent[i].id, id) == 0) return i;
    return UINT32_MAX;
}

uint32_t control_find_offer(const struct control *c, const char *provider, const char *name)
{
    for (uint32_t i = 0; i < c->money.offer_count; i++)
        if (strcmp(c->money.offer[i].name, name) == 0 &&
            strcmp(c->money.offer[i].provider, provider) == 0)
            return i;
    return PLAN_NONE;
}

uint32_t control_find_cloud(const struct control *c, const char *provider)
{
    for (uint32_t i = 0; i < c->setup.cloud_count; i++)
        if (strcmp(c->observed.provider[i].cloud.driver->name, provider) == 0) return i;
    return PLAN_NONE;
}

void control_count(struct control *c, enum control_metric m, const char *label)
{
    struct str value = str_from(label);
    metric_inc(label ? metric_series(c->metrics, m, &value) : metric_of(c->metrics, m));
}

void control_bound_reached(struct control *c, const char *bound)
{
    control_count(c, CONTROL_M_BOUNDS, bound);
}

void control_store_failed(struct control *c, const char *event, const char *what, const char *error)
{
    uint64_t skipped;
    control_count(c, CONTROL_M_STORE_FAILURES, NULL);
    if (log_pass(&c->store_trouble, clock_mono_us(), TROUBLE_EVERY_US, &skipped))
        log_event(LOG_ERROR, event, "of=%s error=%s skipped=%llu", what, error,
                  (unsigned long long)skipped);
}

bool control_router_is_fresh(const struct router *r, int64_t now_us)
{
    return demand_is_fresh(r->heard_us, now_us);
}

bool control_has_observed(const struct control *c)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        if (!c->observed.provider[k].observed) return false;
    return true;
}

bool control_is_degraded(const struct control *c)
{
    return control_aside_count(c) > 0;
}

bool control_is_urgent(struct control *c)
{
    bool urgent = c->urgent;
    c->urgent = false;
    return urgent;
}

struct metrics *control_metrics(struct control *c)
{
    return c->metrics;
}

uint64_t control_epoch_seen(const struct control *c)
{
    return c->money.epoch_seen;
}

uint64_t control_decision_last(const struct control *c)
{
    return c->desired.decision_last;
}

#define DATE_STEP_US 1000000 /* between two ticks; below it the date is merely being corrected */
#define LATE_US 5000000      /* of a tick; below it no silence reaches a limit */

static int load_offers(struct control *c, struct err *err)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        uint32_t count = 0;
        struct cloud *cl = &c->observed.provider[k].cloud;
        int rc = cl->driver->offers(cl->ctx, c->money.offer + c->money.offer_count,
                                    PLAN_OFFERS_MAX - c->money.offer_count, &count, err);
        if (rc < 0) return err_prefix(err, rc, "offers of %s", cl->driver->name);
        for (uint32_t o = c->money.offer_count; o < c->money.offer_count + count; o++)
            c->money.offer[o].price_h += c->money.offer[o].disk_h;
        c->money.offer_count += count;
    }
    return 0;
}

/* Allocates at start-up. Sizes are our own bounds, so that being out of memory ends the start. */
static void *must_alloc(size_t count, size_t size)
{
    void *p = calloc(count, size);
    must(p);
    return p;
}

static void allocate(struct control *c)
{
    c->money.intent = must_alloc(SLOTS_MAX, sizeof *c->money.intent);
    c->observed.seen = must_alloc(SLOTS_MAX, sizeof *c->observed.seen);
    c->observed.detail = must_alloc(SLOTS_MAX, sizeof *c->observed.detail);
    c->observed.claimed = must_alloc(CLOUD_LIST_MAX, sizeof *c->observed.claimed);
    c->desired.view_instance = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->desired.view_instance);
    c->desired.view_slot = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->desired.view_slot);
    c->observed.role_instance =
        must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->observed.role_instance);
    c->observed.role_slot = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->observed.role_slot);
    c->observed.power_room = power_room_new();
    c->desired.mix_room = must_alloc(1, sizeof *c->desired.mix_room);
    c->people.tenant = must_alloc(CONTROL_TENANTS_MAX, sizeof *c->people.tenant);
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        struct provider *p = &c->observed.provider[k];
        p->cloud = c->setup.cloud[k];
        p->listed = must_alloc(CLOUD_LIST_MAX, sizeof *p->listed);
        p->listing = (struct listing){ .provider = p->cloud.driver->name,
                                       .item = p->listed,
                                       .lag_us = p->cloud.lag_us };
    }
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        c->observed.router[r].endpoint =
            must_alloc(SYNC_ENDPOINTS_MAX, sizeof *c->observed.router[r].endpoint);
        c->observed.router[r].usage =
            must_alloc(CONTROL_TENANTS_MAX, sizeof *c->observed.router[r].usage);
    }
}

int control_new(const struct control_setup *setup, int64_t now_us, struct control **ret,
                struct err *err)
{
    must(setup->service_count <= PLAN_SERVICES_MAX && setup->cloud_count <= CONTROL_CLOUDS_MAX);
    CLEANUP(control_freep) struct control *c = must_alloc(1, sizeof *c);
    c->setup = *setup;
    memcpy(c->desired.service, setup->service, setup->service_count * sizeof *setup->service);
    c->started_us = c->observed.listening_us = c->memory_us = c->usage_us = c->ticked_us = now_us;
    c->desired.decision_log = (struct store_log){ "decisions", setup->decisions_max };
    rng_seed(&c->rng, setup->seed);
    allocate(c);
    events_init(&c->events);
    /* Events of an earlier term's calls may still come: no id is theirs. */
    c->money.call_last = setup->term.epoch << 32;
    c->metrics = setup->metrics;
    c->owns_metrics = !setup->metrics;
    int rc = 0;
    if (c->owns_metrics)
        rc = metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &c->metrics, err);
    if (rc == 0) rc = load_offers(c, err);
    if (rc == 0) measure_zeros(c);
    if (rc == 0) rc = control_restore(c, now_us, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void control_claim(struct control *c)
{
    owner_claim(&c->owner);
}

void control_free(struct control *c)
{
    if (!c) return;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        free(c->observed.router[r].endpoint);
        free(c->observed.router[r].usage);
    }
    for (uint32_t k = 0; k < CONTROL_CLOUDS_MAX; k++)
        free(c->observed.provider[k].listed);
    free(c->people.tenant);
    free(c->observed.role_slot);
    free(c->observed.role_instance);
    free(c->desired.mix_room);
    power_room_free(c->observed.power_room);
    free(c->desired.view_slot);
    free(c->desired.view_instance);
    free(c->observed.claimed);
    for (uint32_t i = 0; c->observed.detail && i < c->money.count; i++) {
        free(c->observed.detail[i].adapters);
        free(c->observed.detail[i].machine.known);
    }
    free(c->observed.detail);
    free(c->observed.seen);
    free(c->money.intent);
    events_fini(&c->events);
    if (c->owns_metrics) metrics_free(c->metrics);
    free(c);
}

void control_date(struct control *c, int64_t ahead_us)
{
    int64_t step_us = c->date_known ? ahead_us - c->date_ahead_us : 0;
    c->date_ahead_us = ahead_us;
    c->date_known = true;
    if (step_us <= DATE_STEP_US && step_us >= -DATE_STEP_US) return;
    control_count(c, CONTROL_M_DATE_STEPS, NULL);
    log_event(LOG_WARN, "date_stepped", "seconds=%.3f", (double)step_us / 1e6);
}

/* Restarts the listening time after a late tick: agents and routers may have spoken while nothing
 * listened. */
static void note_lateness(struct control *c, int64_t now_us)
{
    int64_t late_us = now_us - c->ticked_us - c->setup.tick_us;
    c->ticked_us = now_us;
    if (c->setup.tick_us == 0 || late_us <= LATE_US) return;
    c->observed.listening_us = now_us;
    control_count(c, CONTROL_M_LATE, NULL);
    log_event(LOG_WARN, "controller_late", "seconds=%.3f", (double)late_us / 1e6);
}

/* Sets what each service with a ceiling for a day or a month may cost an hour, from what it has spent. */
static void set_paces(struct control *c)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        struct plan_service *sv = &c->desired.service[s];
        if (sv->budget.day <= 0 && sv->budget.month <= 0) continue;
        struct bill_spent spent = control_spent(c, s, NULL);
        sv->budget_h = bill_pace_h(&sv->budget, &spent, &c->money.period);
    }
}

int control_tick(struct control *c, int64_t now_us)
{
    int64_t began = clock_mono_us();
    owner_assert(&c->owner);
    note_lateness(c, now_us);
    c->money.period = bill_periods_at(now_us, c->date_ahead_us);
    int rc = control_calls(c, now_us);
    if (rc == -ECANCELED) return rc;
    control_sum_demand(c, now_us); /* first: a silent instance may still be routed to */
    control_count_tokens(c, now_us);
    rc = control_observe(c, now_us);
    control_watch_stock(c, now_us);
    control_use_reserved(c, now_us);
    set_paces(c);
    if (rc == 0 && control_has_observed(c)) rc = control_carry_out(c, now_us);
    if (rc == 0) rc = control_calls(c, now_us);
    if (rc == -ECANCELED) return rc;
    control_give_roles(c, now_us); /* after the plan: to the instances that it leaves */
    control_power(c, now_us);

    /* A failure here is logged and counted, and tried again at the next tick. */
    (void)control_bury(c, now_us);
    (void)control_flush_memory(c, now_us);
    (void)tenants_flush(c, now_us);
    (void)control_flush_cost(c, now_us);
    (void)control_flush_stock(c, now_us);
    last_hour_keep(c, now_us);
    control_measure(c, now_us);
    metric_observe(metric_of(c->metrics, CONTROL_M_TICK_SECONDS),
                   (double)(clock_mono_us() - began) / 1e6);
    return 0;
}
