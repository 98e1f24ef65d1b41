/* tick.c - one controller's life: restored, then tick after tick. */
#include "base/core/bits.h"
#include "base/io/clock.h"
#include "base/io/log.h"
#include "controller/control.h"
#include "controller/control_state.h"

#include <stdlib.h>
#include <string.h>

#define DATE_STEP_US 1000000 /* between two ticks; below it the date is merely being corrected */
#define LATE_US 5000000      /* of a tick; below it nobody's silence reaches a limit */

static int load_offers(struct control *c, struct err *err)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        uint32_t count = 0;
        struct cloud *cl = &c->cloud[k];
        int rc = cl->driver->offers(cl->ctx, c->offer + c->offer_count,
                                    PLAN_OFFERS_MAX - c->offer_count, &count, err);
        if (rc < 0) return err_prefix(err, rc, "offers of %s", cl->driver->name);
        c->offer_count += count;
    }
    return 0;
}

/* Start-up allocations: sized by our own bounds, so that being out of memory ends the start. */
static void *must_alloc(size_t count, size_t size)
{
    void *p = calloc(count, size);
    must(p);
    return p;
}

static void allocate(struct control *c)
{
    c->intent = must_alloc(SLOTS_MAX, sizeof *c->intent);
    c->seen = must_alloc(SLOTS_MAX, sizeof *c->seen);
    c->detail = must_alloc(SLOTS_MAX, sizeof *c->detail);
    c->claimed = must_alloc(CLOUD_LIST_MAX, sizeof *c->claimed);
    c->view_instance = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->view_instance);
    c->view_slot = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->view_slot);
    c->role_instance = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->role_instance);
    c->role_slot = must_alloc(CONTROL_INSTANCES_MAX, sizeof *c->role_slot);
    c->power_room = power_room_new();
    c->tenant = must_alloc(CONTROL_TENANTS_MAX, sizeof *c->tenant);
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        c->listed[k] = must_alloc(CLOUD_LIST_MAX, sizeof *c->listed[k]);
        c->listing[k] = (struct listing){ .provider = c->cloud[k].driver->name,
                                          .item = c->listed[k],
                                          .lag_us = c->cloud[k].lag_us };
    }
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        c->router[r].endpoint = must_alloc(SYNC_ENDPOINTS_MAX, sizeof *c->router[r].endpoint);
        c->router[r].usage = must_alloc(CONTROL_TENANTS_MAX, sizeof *c->router[r].usage);
    }
}

int control_new(const struct control_setup *setup, int64_t now_us, struct control **ret,
                struct err *err)
{
    must(setup->service_count <= PLAN_SERVICES_MAX && setup->cloud_count <= CONTROL_CLOUDS_MAX);
    CLEANUP(control_freep) struct control *c = must_alloc(1, sizeof *c);
    c->setup = *setup;
    memcpy(c->service, setup->service, setup->service_count * sizeof *setup->service);
    memcpy(c->cloud, setup->cloud, setup->cloud_count * sizeof *setup->cloud);
    c->started_us = c->listening_us = c->memory_us = c->usage_us = c->ticked_us = now_us;
    c->decision_log = (struct store_log){ "decisions", setup->decisions_max };
    rng_seed(&c->rng, setup->seed);
    allocate(c);
    int rc = metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &c->metrics, err);
    if (rc == 0) rc = load_offers(c, err);
    if (rc == 0) rc = control_restore(c, now_us, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void control_free(struct control *c)
{
    if (!c) return;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        free(c->router[r].endpoint);
        free(c->router[r].usage);
    }
    for (uint32_t k = 0; k < CONTROL_CLOUDS_MAX; k++)
        free(c->listed[k]);
    free(c->tenant);
    free(c->role_slot);
    free(c->role_instance);
    power_room_free(c->power_room);
    free(c->view_slot);
    free(c->view_instance);
    free(c->claimed);
    free(c->detail);
    free(c->seen);
    free(c->intent);
    metrics_free(c->metrics);
    free(c);
}

static void refresh_prices(struct control *c, int64_t now_us)
{
    for (uint32_t o = 0; o < c->offer_count; o++) {
        uint32_t k = control_find_cloud(c, c->offer[o].provider);
        double price;
        int64_t age_us;
        if (k == PLAN_NONE) continue;
        struct cloud *cl = &c->cloud[k];
        int rc = cl->driver->price(cl->ctx, c->offer[o].name, now_us, &price, &age_us, NULL);
        c->offer[o].price_known = rc == 0;
        if (rc == 0) c->offer[o].price_h = price;
    }
}

/* A loss is the provider's doing, told once for each instance: what hazards are learned from. */
static void count_loss(struct control *c, uint32_t at)
{
    const struct intent *i = &c->intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer != PLAN_NONE && !c->detail[at].doomed) c->health[offer].lost++;
}

/* What a provider is about to take away is drained while there is time. */
static int heed_notices(struct control *c, int64_t now_us)
{
    struct cloud_notice notice[PLAN_ACTIONS_MAX];
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        struct cloud *cl = &c->cloud[k];
        uint32_t count = 0;
        if (!cl->driver->notice) continue;
        if (cl->driver->notice(cl->ctx, now_us, notice, PLAN_ACTIONS_MAX, &count, NULL) < 0)
            continue; /* asked again at the next tick */
        for (uint32_t n = 0; n < count; n++)
            for (uint32_t at = 0; at < c->count; at++) {
                if (strcmp(c->intent[at].handle, notice[n].handle) != 0) continue;
                count_loss(c, at);
                c->detail[at].doomed = true;
                int rc =
                    control_apply(c, at, INTENT_DRAIN, "the provider takes it away", NULL, now_us);
                if (rc == -ECANCELED) return rc;
            }
    }
    return 0;
}

static void publish_metrics(struct control *c, int64_t now_us)
{
    uint32_t count[PLAN_SERVICES_MAX][SCALE_POOLS_MAX][PHASE_COUNT] = { { { 0 } } };
    double cost[PLAN_SERVICES_MAX] = { 0 };
    for (uint32_t at = 0; at < c->count; at++) {
        const struct detail *d = &c->detail[at];
        if (!intent_is_live(&c->intent[at]) || d->service == PLAN_NONE) continue;
        if (intent_is_billed(&c->intent[at])) cost[d->service] += c->intent[at].price_h;
        if (d->pool != PLAN_NONE) count[d->service][d->pool][d->phase]++;
    }
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->service[s];
        struct str label[3] = { str_from(sv->name) };
        metric_set(metric_series(c->metrics, CONTROL_M_COST_PER_HOUR, label), cost[s]);
        for (uint32_t p = 0; p < sv->pool_count; p++) {
            label[1] = str_from(sv->pool[p].name);
            if (s < c->plan.decision_count)
                metric_set(metric_series(c->metrics, CONTROL_M_TARGET, label),
                           c->plan.decision[s].target[p]);
            for (uint32_t ph = 0; ph < PHASE_COUNT; ph++) {
                label[2] = str_from(phase_names[ph]);
                metric_set(metric_series(c->metrics, CONTROL_M_INSTANCES, label), count[s][p][ph]);
            }
        }
    }
    metric_set(metric_of(c->metrics, CONTROL_M_COST_TOTAL), control_cost_total(c, now_us));
    metric_set(metric_of(c->metrics, CONTROL_M_TENANTS), c->tenant_count);
    metric_set(metric_of(c->metrics, CONTROL_M_UNREADABLE), control_aside_count(c));
    metric_set(metric_of(c->metrics, CONTROL_M_LOG_LOST), (double)log_lost());
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

/* A tick that came late finds everybody silent who spoke while nobody listened. */
static void note_lateness(struct control *c, int64_t now_us)
{
    int64_t late_us = now_us - c->ticked_us - c->setup.tick_us;
    c->ticked_us = now_us;
    if (c->setup.tick_us == 0 || late_us <= LATE_US) return;
    c->listening_us = now_us;
    control_count(c, CONTROL_M_LATE, NULL);
    log_event(LOG_WARN, "controller_late", "seconds=%.3f", (double)late_us / 1e6);
}

int control_tick(struct control *c, int64_t now_us)
{
    int64_t began = clock_mono_us();
    note_lateness(c, now_us);
    refresh_prices(c, now_us);
    control_sum_demand(c, now_us); /* first: whoever is silent may still be routed to */
    int rc = control_observe(c, now_us);
    if (rc == 0) rc = heed_notices(c, now_us);
    if (rc == 0 && control_has_observed(c)) rc = control_carry_out(c, now_us);
    if (rc == -ECANCELED) return rc;
    control_give_roles(c, now_us); /* behind the plan: to those that it leaves */
    control_power(c, now_us);

    /* What fails here was logged and counted, and is tried again at the next tick. */
    (void)control_bury(c, now_us);
    (void)control_flush_memory(c, now_us);
    (void)tenants_flush(c, now_us);
    publish_metrics(c, now_us);
    metric_observe(metric_of(c->metrics, CONTROL_M_TICK_SECONDS),
                   (double)(clock_mono_us() - began) / 1e6);
    return 0;
}
