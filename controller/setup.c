/* setup.c - checks that rows alone cannot express, and the arguments of engines. */
#include "controller/setup.h"

#include "base/core/bits.h"
#include "policies/scale_forecast.h"

#include <string.h>
#include <unistd.h>

#define POLICIES_MAX 32 /* rows of one kind, for suggestions */

int setup_local(const struct local_section *local, struct arena *arena,
                const struct local_offer **ret, uint32_t *ret_count, double *ret_cores,
                struct err *err)
{
    const struct offer_section *from = local->offers.items;
    uint32_t count = (uint32_t)local->offers.count;
    struct local_offer *to = arena_array(arena, count, sizeof *to);
    if (!to) return err_set(err, -ENOMEM, "no memory for offers");
    for (uint32_t i = 0; i < count; i++)
        to[i] = (struct local_offer){ .name = from[i].name,
                                      .share = from[i].share,
                                      .price_h = from[i].price_h,
                                      .launch_us = from[i].launch_us,
                                      .lead_us = from[i].lead_us,
                                      .seqs_max = from[i].max_num_seqs,
                                      .perf_a = from[i].perf_a,
                                      .perf_b = from[i].perf_b,
                                      .perf_c = from[i].perf_c,
                                      .perf_d = from[i].perf_d };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = to;
    *ret_count = count;
    *ret_cores = local->cores > 0 ? local->cores : (double)max_i64(cores, 1);
    return 0;
}

static int fill_pool(const struct service_section *s, const struct pool_section *from,
                     const struct offer *offers, uint32_t offer_count, struct plan_pool *ret,
                     struct err *err)
{
    *ret =
        (struct plan_pool){ .min = (uint32_t)from->min, .max = (uint32_t)from->max, .manual = -1 };
    must(name_copy(ret->name, sizeof ret->name, from->name) == 0);
    must(name_copy(ret->provider, sizeof ret->provider, from->provider) == 0);
    if (from->min > from->max)
        return err_set(err, -EINVAL, "pool %s of service %s: min %lld is above max %lld", ret->name,
                       s->name.data, (long long)from->min, (long long)from->max);
    for (size_t k = 0; k < from->offers.count; k++) {
        uint32_t found = PLAN_NONE;
        const char *names[PLAN_OFFERS_MAX];
        uint32_t named = 0;
        for (uint32_t o = 0; o < offer_count; o++) {
            if (!str_eq(str_from(offers[o].provider), from->provider)) continue;
            names[named++] = offers[o].name;
            if (str_eq(str_from(offers[o].name), from->offers.items[k])) found = o;
        }
        if (found == PLAN_NONE) {
            const char *near = str_nearest(from->offers.items[k], names, named);
            return err_set(err, -EINVAL,
                           "pool %s of service %s: provider %s sells no '" STR_FMT "'%s%s%s",
                           ret->name, s->name.data, ret->provider, STR_ARG(from->offers.items[k]),
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
        ret->offer[ret->offer_count++] = found;
    }
    return 0;
}

static int unknown_policy(const struct plan_service *s, const char *what, struct str name,
                          const char *const *names, uint32_t count, struct err *err)
{
    const char *near = str_nearest(name, names, count);
    return err_set(err, -EINVAL, "service %s: there is no %s policy '" STR_FMT "'%s%s%s", s->name,
                   what, STR_ARG(name), near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : "");
}

static int check_policies(const struct service_section *from, const struct plan_service *s,
                          struct err *err)
{
    const char *names[POLICIES_MAX];
    must(scale_count <= POLICIES_MAX && place_count <= POLICIES_MAX);
    if (!s->policy) {
        for (uint32_t i = 0; i < scale_count; i++)
            names[i] = scale_table[i]->name;
        return unknown_policy(s, "scaling", from->scale, names, scale_count, err);
    }
    must(scale_shape_count <= POLICIES_MAX && scale_forecast_count <= POLICIES_MAX);
    if (!s->shaper) {
        for (uint32_t i = 0; i < scale_shape_count; i++)
            names[i] = scale_shape_table[i]->name;
        return unknown_policy(s, "shaping", from->shaper, names, scale_shape_count, err);
    }
    if (!s->scale.forecast) {
        for (uint32_t i = 0; i < scale_forecast_count; i++)
            names[i] = scale_forecast_table[i]->name;
        return unknown_policy(s, "forecasting", from->forecast, names, scale_forecast_count, err);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < place_count; i++)
        if (place_table[i]->choose) names[count++] = place_table[i]->name;
    if (!s->place) return unknown_policy(s, "placement", from->place, names, count, err);
    if (!s->place->choose)
        return err_set(err, -EINVAL,
                       "service %s: placement '%s' chooses no offers (it is a planner's); %s does",
                       s->name, s->place->name, PLACE_DEFAULT);
    return 0;
}

/* The shaper that is named, or the policy's own, with the numbers that it is published with but for
 * those that the section names. */
static void fill_shaper(const struct service_section *from, struct plan_service *ret)
{
    bool own = from->shaper.len == 0;
    struct str name = own && ret->policy ? str_from(ret->policy->shaper) : from->shaper;
    ret->shaper = own && !ret->policy ? &scale_shape_window : scale_shape_find(name);
    if (!ret->shaper) return;
    ret->shape =
        own && ret->policy && ret->policy->shape ? *ret->policy->shape : ret->shaper->published;
    if (from->down_window_us > 0) ret->shape.down_window_s = (double)from->down_window_us / 1e6;
    ret->shape.down_step_max = (uint32_t)from->down_step_max;
    ret->shape.up_step_max = (uint32_t)from->up_step_max;
}

static int fill_service(const struct service_section *from, const struct offer *offers,
                        uint32_t offer_count, struct plan_service *ret, struct err *err)
{
    *ret = (struct plan_service){
        .pool_count = (uint32_t)from->pools.count,
        .min = (uint32_t)from->min,
        .max = (uint32_t)from->max,
        .ttft_slo_s = (double)from->slo_ttft_us / 1e6,
        .tpot_slo_s = (double)from->slo_tpot_us / 1e6,
        .budget_h = from->budget_h,
        .policy = scale_find(from->scale),
        .place = place_find(from->place),
        .scale = { .margin = from->margin,
                   .utilisation_max = from->utilisation_max,
                   .clear_s = (double)from->clear_us / 1e6,
                   .life_s = (double)from->life_us / 1e6,
                   .zero_after_s = (double)from->zero_after_us / 1e6,
                   .queue_target = from->queue_target,
                   .concurrency = from->concurrency,
                   .ongoing_target = from->ongoing_target,
                   .qps_target = from->qps_target,
                   .kv_target = from->kv_target,
                   .forecast = scale_forecast_find(from->forecast),
                   .count = (uint32_t)from->count },
    };
    must(name_copy(ret->name, sizeof ret->name, from->name) == 0);
    fill_shaper(from, ret);
    int rc = check_policies(from, ret, err);
    if (rc < 0) return rc;
    if (from->min > from->max)
        return err_set(err, -EINVAL, "service %s: min %lld is above max %lld", ret->name,
                       (long long)from->min, (long long)from->max);
    const struct pool_section *pools = from->pools.items;
    for (uint32_t p = 0; p < ret->pool_count; p++) {
        rc = fill_pool(from, &pools[p], offers, offer_count, &ret->pool[p], err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* muster engine --model PATH --served-model-name SERVICE, the service's flags, the pool's. */
static int fill_launch(const struct service_section *s, const struct pool_section *p,
                       struct str program, struct arena *arena, struct control_launch *ret,
                       struct err *err)
{
    const struct str fixed[] = { STR("--model"), s->model, STR("--served-model-name"), s->name };
    bool other = s->engine_program.len > 0;
    size_t count =
        (other ? 1 : 2) + COUNT_OF(fixed) + s->engine_flags.count + p->engine_flags.count;
    struct str *args = arena_array(arena, count, sizeof *args);
    if (!args) return err_set(err, -ENOMEM, "no memory for engine flags");
    if (count > LAUNCH_ARGS_MAX)
        return err_set(err, -E2BIG, "service %s: more than %d engine arguments", s->name.data,
                       LAUNCH_ARGS_MAX);
    size_t n = 0;
    args[n++] = other ? s->engine_program : program;
    if (!other) args[n++] = STR("engine");
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        args[n++] = fixed[i];
    for (size_t i = 0; i < s->engine_flags.count; i++)
        args[n++] = s->engine_flags.items[i];
    for (size_t i = 0; i < p->engine_flags.count; i++)
        args[n++] = p->engine_flags.items[i];
    *ret = (struct control_launch){ ENGINE_MUSTER, args, (uint32_t)count };
    return 0;
}

int setup_services(const struct controller_config *config, const struct offer *offers,
                   uint32_t offer_count, struct str program, struct arena *arena,
                   struct control_setup *setup, struct err *err)
{
    if (config->service_count > PLAN_SERVICES_MAX)
        return err_set(err, -E2BIG, "more than %d services", PLAN_SERVICES_MAX);
    size_t count = config->service_count;
    struct plan_service *service = arena_array(arena, count, sizeof *service);
    struct control_launch(*launch)[SCALE_POOLS_MAX] = arena_array(arena, count, sizeof *launch);
    if (!service || !launch) return err_set(err, -ENOMEM, "no memory for services");
    for (size_t s = 0; s < count; s++) {
        const struct service_section *from = &config->service[s];
        const struct pool_section *pools = from->pools.items;
        int rc = fill_service(from, offers, offer_count, &service[s], err);
        for (size_t p = 0; p < from->pools.count && rc == 0; p++)
            rc = fill_launch(from, &pools[p], program, arena, &launch[s][p], err);
        if (rc < 0) return rc;
    }
    setup->service = service;
    setup->service_count = (uint32_t)count;
    setup->launch = (const struct control_launch(*)[SCALE_POOLS_MAX])launch;
    return 0;
}
