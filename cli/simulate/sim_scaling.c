/* sim_scaling.c - how the fleet follows its demand: flags, then the fleet's file, then defaults.
 *
 * Of each of the file's services that the fleet has all is taken that the controller would begin
 * with, its defaults included: the policies, their numbers, the SLO, the budget, and as the
 * leads of the fleet's pools for it, one after the other, those of what the service's pools buy.
 * The file's services are numbered in their order. Which instances there may be is the fleet's
 * word. */
#include "cli/simulate/sim_scaling.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/simulate/sim_file.h"
#include "cli/simulate/sim_options.h"
#include "controller/setup.h"
#include "policies/place/place.h"
#include "policies/scale/forecast.h"
#include "policies/scale/shape/shape.h"

#include <string.h>

static int pick_policies(const struct sim_options *o, struct sim_config *config,
                         struct sim_control_service *s, struct err *err)
{
    config->scaling_clairvoyant = str_eq(o->scale_policy, STR(SCALE_BOUND_NAME));
    if (o->scale_policy.len > 0 && !config->scaling_clairvoyant) {
        s->policy = scale_find(o->scale_policy);
        if (!s->policy) return sim_no_policy("scale-policy", "scale", o->scale_policy, err);
    }
    if (o->shaper.len > 0) {
        s->shaper = scale_shape_find(o->shaper);
        if (!s->shaper) return sim_no_policy("shaper", "shaper", o->shaper, err);
    }
    if (o->forecast.len > 0) {
        s->scale.forecast = scale_forecast_find(o->forecast);
        if (!s->scale.forecast) return sim_no_policy("forecast", "forecast", o->forecast, err);
    }
    if (o->place.len > 0) {
        s->place = place_find(o->place);
        if (!s->place) return sim_no_policy("place", "place", o->place, err);
    }
    return 0;
}

static bool may_change(const struct sim_config *config, const struct sim_control_setup *s)
{
    bool any = false;
    for (uint32_t p = 0; p < config->pool_count; p++)
        any |= s->pool[p].min < s->pool[p].max || s->pool[p].spot;
    return any;
}

/* A pool that may grow needs somebody who lets it grow; the rest needs a fleet that scales. */
static int check_fixed(const struct sim_options *o, const struct sim_config *config,
                       const struct sim_control_setup *s, struct err *err)
{
    if (may_change(config, s)) {
        return err_set(err, -EINVAL,
                       "--fleet " STR_FMT " needs --scale-policy, or a --config with a "
                       "service",
                       STR_ARG(o->fleet));
    }
    static const char *const needing[] = {
        "shaper", "place",     "forecast",    "scale_margin",    "scale_count",
        "budget", "lead_time", "lead_spread", "launch_failures", "life",
        "notice", "zone_up",   "zone_down",
    };
    for (size_t i = 0; i < COUNT_OF(needing); i++) {
        if (!sim_option_is_set(o, needing[i])) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(needing[i], flag);
        return err_set(err, -EINVAL,
                       "--%s needs --scale-policy: without it the fleet stays as it is", flag);
    }
    return 0;
}

static void put_flags(const struct sim_options *o, const struct sim_control_service *s,
                      struct service_section *v)
{
    if (s->policy) v->scale = o->scale_policy;
    if (s->shaper) v->shaper = o->shaper;
    if (s->place) v->place = o->place;
    if (o->forecast.len > 0) v->forecast = o->forecast;
    if (sim_option_is_set(o, "scale_margin")) v->margin = o->scale_margin;
    if (sim_option_is_set(o, "scale_count")) v->count = o->scale_count;
    if (sim_option_is_set(o, "budget")) v->budget_h = o->budget_h;
    if (sim_option_is_set(o, "slo_ttft")) v->slo_ttft_us = o->slo_ttft_us;
    if (sim_option_is_set(o, "slo_tpot")) v->slo_tpot_us = o->slo_tpot_us;
    if (sim_option_is_set(o, "overload")) v->overload = o->overload;
}

static int take_service(const struct sim_options *o, const struct service_section *from,
                        struct sim_control_service *s, struct sim_slo *slo, struct err *err)
{
    struct service_section v = *from;
    struct plan_service plan;
    put_flags(o, s, &v);
    int rc = setup_scaling(&v, &plan, err);
    if (rc < 0) return err_prefix(err, rc, "%s", o->config.data);
    s->policy = plan.policy;
    s->shaper = plan.shaper;
    s->has_shape = true;
    s->shape = plan.shape;
    s->place = plan.place;
    s->scale = plan.scale;
    s->budget_h = plan.budget_h;
    *slo = (struct sim_slo){ plan.ttft_slo_s, plan.tpot_slo_s, plan.refuse_late };
    return 0;
}

static uint32_t pools_of(const struct sim_config *config, uint32_t service)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < config->pool_count; p++)
        count += config->pool[p].service == service;
    return count;
}

static void take_leads(const struct sim_options *o, const struct config *file, uint32_t service,
                       const struct sim_config *config, struct sim_control_setup *s)
{
    const struct service_section *from = sim_file_service(file, service);
    uint32_t at = 0;
    if (sim_option_is_set(o, "lead_time") || from->pools.count != pools_of(config, service)) return;
    for (uint32_t p = 0; p < config->pool_count; p++)
        if (config->pool[p].service == service) sim_file_lead(file, from, at++, &s->pool[p].lead_s);
}

/* `flags`: what they alone say of every service. */
static int set_service(const struct sim_options *o, const struct config *file, uint32_t service,
                       const struct sim_control_service *flags, struct sim_config *config,
                       struct sim_control_setup *s, struct err *err)
{
    const struct service_section *from = sim_file_service(file, service);
    struct sim_control_service *to = &s->service[service];
    *to = *flags;
    if (from) {
        take_leads(o, file, service, config, s);
        return take_service(o, from, to, &config->slo[service], err);
    }
    if (o->scale_policy.len > 0) return 0;
    return err_set(err, -EINVAL, "--fleet has service%u, of which %s says nothing", service,
                   o->config.data);
}

static void set_world(const struct sim_options *o, const struct sim_config *config,
                      struct sim_control_setup *s)
{
    for (uint32_t p = 0; p < config->pool_count; p++) {
        s->pool[p].lead_s = (double)o->lead_us / 1e6;
        s->pool[p].fail_share = o->launch_failures;
        s->pool[p].life_s = (double)o->life_us / 1e6;
    }
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++) {
        s->zone[z] =
            (struct sim_zone){ (double)o->zone_up_us / 1e6, (double)o->zone_down_us / 1e6 };
    }
    s->notice_s = (double)o->notice_us / 1e6;
    s->lead_sigma = o->lead_spread;
}

int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *s, struct err *err)
{
    CLEANUP(config_freep) struct config *file = NULL;
    int rc = o->config.len > 0 ? sim_file_load(o->config.data, &file, err) : 0;
    if (rc < 0) return rc;
    bool named = o->scale_policy.len > 0;
    if (!named && !(sim_file_service(file, 0) && may_change(config, s)))
        return check_fixed(o, config, s, err);
    struct sim_control_service flags = { .scale = SCALE_CONFIG_DEFAULT, .budget_h = o->budget_h };
    flags.scale.margin = o->scale_margin;
    flags.scale.count = (uint32_t)o->scale_count;
    set_world(o, config, s);
    rc = pick_policies(o, config, &flags, err);
    for (uint32_t k = 0; k < SIM_SERVICES_MAX && rc == 0; k++)
        if (pools_of(config, k) > 0) rc = set_service(o, file, k, &flags, config, s, err);
    config->scaling = s;
    return rc;
}

/* ---- what has nothing to do ------------------------------------------------------------------ */

static bool has_policy(const struct sim_config *c, const char *name)
{
    for (uint32_t k = 0; k < SIM_SERVICES_MAX && !c->scaling_clairvoyant; k++) {
        const struct scale_policy *row = c->scaling->service[k].policy;
        if (row && strcmp(row->name, name) == 0) return true;
    }
    return false;
}

static bool has_static(const struct sim_config *c)
{
    return has_policy(c, "static");
}

static bool has_forecast(const struct sim_config *c)
{
    return has_policy(c, "dynamo_throughput") || has_policy(c, "sageserve");
}

static bool has_rule(const struct sim_config *c)
{
    return !c->scaling_clairvoyant;
}

static bool has_price(const struct sim_config *c)
{
    bool any = false;
    for (uint32_t p = 0; p < c->pool_count; p++)
        any |= c->pool[p].price_h > 0;
    return any && has_rule(c);
}

static bool has_spot(const struct sim_config *c)
{
    bool any = false;
    for (uint32_t p = 0; p < c->pool_count; p++)
        any |= c->scaling->pool[p].spot;
    return any;
}

#define SPOT "spot pools, as 1-24xl4:spot:zone1"
#define RULE "policies that decide: " SCALE_BOUND_NAME " knows"

static const struct {
    const char *option;
    bool (*used)(const struct sim_config *c);
    const char *who;
} uses[] = {
    { "scale_count", has_static, "the scaling policy static" },
    { "forecast", has_forecast, "the scaling policies dynamo_throughput and sageserve" },
    { "shaper", has_rule, RULE },
    { "place", has_rule, RULE },
    { "budget", has_price, "pools with a price, as 1-24xl4@0.8, and " RULE },
    { "zone_up", has_spot, SPOT },
    { "zone_down", has_spot, SPOT },
    { "notice", has_spot, SPOT },
};

uint32_t sim_scaling_idle(const struct sim_options *o, const struct sim_config *config)
{
    uint32_t idle = 0;
    for (uint32_t i = 0; config->scaling && i < COUNT_OF(uses); i++)
        if (sim_option_is_set(o, uses[i].option) && !uses[i].used(config)) idle |= 1u << i;
    return idle;
}

int sim_scaling_idle_say(uint32_t idle, struct err *err)
{
    uint32_t i = (uint32_t)__builtin_ctz(idle);
    char flag[SIM_FLAG_BYTES];
    sim_option_flag(uses[i].option, flag);
    return err_set(err, -EINVAL, "--%s has nothing to do here: it is for %s", flag, uses[i].who);
}
