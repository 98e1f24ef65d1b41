/* control_state.c - looks up what the controller knows, and counts. */
#include "controller/control_state.h"

#include "base/io/loop/clock.h"

#include <string.h>

#define TROUBLE_EVERY_US 10000000 /* a full disk is said, not repeated every second */

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

uint64_t control_decision_last(const struct control *c)
{
    return c->desired.decision_last;
}
