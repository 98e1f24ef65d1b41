/* sim_file.c - take the settings of `muster simulate --config` from a fleet's file, scaling included.
 *
 * A simulation takes from the file
 *
 *     the router's policies and bounds;
 *     the engines' policies, limits and bound, from the section `engine` and, where the file has one
 *         service, from that service's `engine`, which is stronger (all engines of a run have the same);
 *     that service's power policy with its limit, its role policy, its link and, where the fleet has as
 *         many pools, their priorities and roles;
 *     the router's migrate policy, where the fleet serves one service and has engines;
 *     each service's scaling with SLO and budget, where the fleet scales.
 *
 * The fleet itself comes from the command line, because a simulation asks what another fleet would do.
 *
 * Scaling follows flags, then the file, then defaults. For each of the file's services that the fleet has,
 * a run takes everything that the controller would begin with, its defaults included: the policies,
 * their numbers, the SLO and the budget. The leads of the fleet's pools for the service are, in order,
 * those of the offers that the service's pools buy. Services are numbered in the order of the file. */

#include "cli/simulate/sim_file.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/schema.h"
#include "cli/simulate/sim_config.h"
#include "controller/setup.h"
#include "engine/config.h"
#include "policies/catalog.h"
#include "policies/place/place.h"
#include "policies/scale/forecast.h"
#include "policies/scale/shape/shape.h"
#include "router/config.h"

#include <stdio.h>
#include <string.h>

static const char *const taken[] = {
    "router.route",        "router.predict",
    "router.migrate",      "engine.preset",
    "engine.fair",         "engine.order",
    "engine.admit",        "engine.preempt",
    "engine.chunk",        "engine.evict",
    "engine.perf",         "engine.swap_space",
    "engine.max_num_seqs", "engine.max_num_batched_tokens",
    "engine.max_waiting",  "router.requests_max",
    "router.held_max",     "router.hold_max",
    "router.index_bytes",
};

/* Keys of a service that are taken where the fleet scales. */
static const char *const scaling[] = {
    "slo_ttft",   "slo_tpot",     "overload",        "budget_per_hour", "scale",      "shaper",
    "margin",     "place",        "utilisation_max", "attainment",      "clear",      "life",
    "zero_after", "queue_target", "concurrency",     "ongoing_target",  "qps_target", "kv_target",
    "forecast",   "count",        "stabilisation",   "down_step",       "up_step",
};

int sim_file_load(const char *path, struct config **ret, struct err *err)
{
    struct config_sources sources = { .path = path };
    return config_load(&schema, &sources, ret, NULL, err);
}

/* Returns true if the file sets the value. A limit that it does not set stays the simulator's default,
 * because the engine's default is for small machines. */
static bool is_said(const struct config *file, const char *path)
{
    CLEANUP(buf_fini) struct buf origin = { 0 };
    must(config_lookup(file, path, NULL, &origin, NULL) == 0);
    return !str_starts(buf_view(&origin), STR("default"));
}

const struct service_section *sim_file_service(const struct config *file, uint32_t service)
{
    if (!file) return NULL;
    const struct config_records *services = config_section_get(file, services_section.name);
    const struct service_section *items = services->items;
    return service < services->count ? &items[service] : NULL;
}

/* Returns the file's service if it has only one: then its engine settings are taken. */
static const struct service_section *only_service(const struct config *file)
{
    return sim_file_service(file, 1) ? NULL : sim_file_service(file, 0);
}

bool sim_file_lead(const struct config *file, const struct service_section *service, uint32_t pool,
                   double *ret_s)
{
    const struct local_section *local = config_section_get(file, local_section.name);
    const struct pool_section *p = (const struct pool_section *)service->pools.items + pool;
    const struct offer_section *offers = local->offers.items;
    for (size_t i = 0; i < local->offers.count; i++) {
        if (!str_eq(p->provider, STR("local")) || !str_eq(offers[i].name, p->offers.items[0]))
            continue;
        *ret_s = (double)(offers[i].launch_us + offers[i].lead_us) / 1e6;
        return true;
    }
    return false;
}

/* Returns the stronger of two names, or the weaker where the stronger is empty. */
static struct str or_else(struct str strong, struct str weak)
{
    return strong.len > 0 ? strong : weak;
}

#define TAKE_POLICY(rows, kind, text)                      \
    if (rc == 0 && (text).len > 0) {                       \
        rc = policy_check(#kind, text, #kind, err);        \
        (rows)->kind = rc == 0 ? kind##_find(text) : NULL; \
    }

static bool serves_one(const struct sim_config *c)
{
    bool one = true;
    for (uint32_t p = 0; p < c->pool_count; p++)
        one &= c->pool[p].service == 0;
    return one;
}

/* Returns true if the fleet has one pool for each of the service's, so that their settings can be applied. */
static bool has_its_pools(const struct sim_config *c, const struct service_section *service)
{
    return serves_one(c) && service->pools.count == c->pool_count;
}

static int take_rows(const struct config *file, struct sim_config *c, struct err *err)
{
    static const struct engine_rows_section none;
    const struct router_config *router = config_section_get(file, router_section.name);
    const struct engine_config *all = config_section_get(file, engine_section.name);
    const struct service_section *service = only_service(file);
    const struct engine_rows_section *own = service ? &service->engine : &none;
    struct str preset = or_else(own->preset, all->preset);
    int rc = preset.len > 0 ? sim_take_preset(preset, c, err) : 0;
    TAKE_POLICY(c, route, router->route)
    TAKE_POLICY(c, predict, router->predict)
    TAKE_POLICY(&c->step, fair, or_else(own->fair, all->fair))
    TAKE_POLICY(&c->step, order, or_else(own->order, all->order))
    TAKE_POLICY(&c->step, admit, or_else(own->admit, all->admit))
    TAKE_POLICY(&c->step, preempt, or_else(own->preempt, all->preempt))
    TAKE_POLICY(&c->step, chunk, or_else(own->chunk, all->chunk))
    TAKE_POLICY(&c->step, evict, or_else(own->evict, all->evict))
    TAKE_POLICY(c, perf, or_else(own->perf, all->perf))
    if (!service) return rc;
    TAKE_POLICY(c, power, service->power)
    c->power_limit_watts = setup_power_limit_watts(service);
    const struct pool_section *pools = service->pools.items;
    for (uint32_t p = 0; p < c->pool_count && has_its_pools(c, service); p++)
        if (!c->pool[p].has_priority) c->pool[p].priority = (enum priority)pools[p].priority;
    return rc;
}

/* Returns true if roles and migration are simulated: for one service that has engines. */
static bool moves_kv(const struct sim_config *c)
{
    return serves_one(c) && !sim_pool_is_serial(&c->pool[0]);
}

static bool has_pool_role(const struct service_section *service)
{
    const struct pool_section *pools = service->pools.items;
    bool any = false;
    for (size_t p = 0; p < service->pools.count; p++)
        any |= pools[p].role != ROLE_BOTH;
    return any;
}

/* Returns true if the service's link is taken: with roles or migration even if the file does not set it,
 * because the fleet then uses the default. */
static bool takes_link(const struct config *file, const struct service_section *service)
{
    const struct router_config *router = config_section_get(file, router_section.name);
    bool migrates = !str_eq(router->migrate, STR(MIGRATE_DEFAULT));
    return service->kv_link_bytes_s > 0 && (service->role.len > 0 || has_pool_role(service) ||
                                            migrates || is_said(file, "services[0].kv_link"));
}

static int take_moves(const struct config *file, struct sim_config *c, struct err *err)
{
    int rc = 0;
    const struct router_config *router = config_section_get(file, router_section.name);
    const struct service_section *service = only_service(file);
    if (!moves_kv(c)) return 0;
    TAKE_POLICY(c, migrate, router->migrate)
    if (rc < 0 || !service) return rc;
    const struct pool_section *pools = service->pools.items;
    TAKE_POLICY(c, role, service->role)
    for (uint32_t p = 0; p < c->pool_count && has_its_pools(c, service); p++)
        if (!c->pool[p].has_role) c->pool[p].role = (enum role)pools[p].role;
    if (takes_link(file, service)) c->link_bytes_s = (double)service->kv_link_bytes_s;
    return rc;
}

int sim_file_take(const char *path, struct sim_config *c, struct err *err)
{
    CLEANUP(config_freep) struct config *file = NULL;
    int rc = sim_file_load(path, &file, err);
    if (rc < 0) return rc; /* it begins with the path */
    const struct engine_config *engine = config_section_get(file, engine_section.name);
    if (is_said(file, "engine.max_num_seqs")) c->seqs_max = (uint32_t)engine->max_num_seqs;
    if (is_said(file, "engine.max_num_batched_tokens"))
        c->batch_tokens_max = (uint32_t)engine->max_num_batched_tokens;
    const struct router_config *router = config_section_get(file, router_section.name);
    c->bounds = (struct sim_bounds){ .requests_max = (uint32_t)router->requests_max,
                                     .held_max = (uint32_t)router->held_max,
                                     .hold_us_max = router->hold_us_max,
                                     .index_bytes = (uint64_t)router->index_bytes,
                                     .waiting_max = (uint32_t)engine->max_waiting };
    if (is_said(file, "engine.swap_space")) c->swap_bytes = (uint64_t)engine->swap_space;
    rc = take_rows(file, c, err);
    if (rc == 0) rc = take_moves(file, c, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

/* ---- the note of settings that are taken or left out ---- */

struct note {
    struct buf *used, *left;
    struct sim_file_uses uses;
    bool moves; /* as moves_kv */
};

static void add(struct buf *list, const char *path)
{
    buf_printf(list, "%s%s", list->len > 0 ? ", " : "", path);
}

/* Notes the file's keys of a section one by one if some of its keys are taken; else returns true if the file
 * sets any. */
static bool tell_section(const struct config *file, const struct config_section *s, struct note *n)
{
    bool any = false;
    bool split = s == &router_section || s == &engine_section;
    for (size_t i = 0; i < s->record->field_count; i++) {
        const struct config_field *f = &s->record->fields[i];
        CLEANUP(buf_fini) struct buf path = { 0 };
        buf_printf(&path, "%s.%s", s->name, f->name);
        if (f->type == CONFIG_RECORDS) {
            const char *section = config_section_get(file, s->name);
            any |= ((const struct config_records *)(section + f->offset))->count > 0;
            continue;
        }
        if (path.rc < 0 || !is_said(file, path.data)) continue;
        any = true;
        bool used = false, counts = n->uses.engines || s != &engine_section;
        if (strcmp(path.data, "router.migrate") == 0) counts = n->moves;
        for (size_t k = 0; k < COUNT_OF(taken); k++)
            used |= strcmp(path.data, taken[k]) == 0;
        if (split) add(used && counts ? n->used : n->left, path.data);
    }
    return any && !split;
}

static void tell_scaling(const struct config *file, uint32_t number, struct note *n)
{
    char key[64];
    double lead_s;
    for (size_t i = 0; i < COUNT_OF(scaling); i++) {
        snprintf(key, sizeof key, "services[%u].%s", number, scaling[i]);
        if (is_said(file, key)) add(n->used, key);
    }
    const struct service_section *service = sim_file_service(file, number);
    bool leads = n->uses.leads && service->pools.count == n->uses.pools[number];
    for (uint32_t p = 0; leads && p < service->pools.count; p++) {
        snprintf(key, sizeof key, "lead of services[%u].pools[%u]", number, p);
        if (sim_file_lead(file, service, p, &lead_s)) add(n->used, key);
    }
}

static void tell_engine_policies(const struct config *file, uint32_t number, struct note *n)
{
    const struct service_section *service = sim_file_service(file, number);
    bool taken_here = n->uses.engines && service == only_service(file);
    for (size_t i = 0; i < setup_engine_policy_count; i++) {
        char key[64];
        bool used = taken_here && strcmp(setup_engine_policies[i].kind, "predict") != 0;
        snprintf(key, sizeof key, "services[%u].%s", number, setup_engine_policies[i].key);
        if (setup_policy_name(service, &setup_engine_policies[i]).len > 0)
            add(used ? n->used : n->left, key);
    }
}

/* Notes a setting of a service's pools, which are taken in order if the fleet has as many pools. */
static void tell_pools(const struct config *file, uint32_t number, const char *what, bool used,
                       struct note *n)
{
    const struct service_section *service = sim_file_service(file, number);
    bool taken_too = used && service->pools.count == n->uses.pools[0];
    for (uint32_t p = 0; p < service->pools.count; p++) {
        char key[64];
        snprintf(key, sizeof key, "services[%u].pools[%u].%s", number, p, what);
        if (is_said(file, key)) add(taken_too ? n->used : n->left, key);
    }
}

static void tell_roles(const struct config *file, struct note *n)
{
    const struct service_section *service = only_service(file);
    if (!service) return;
    if (service->role.len > 0) add(n->moves ? n->used : n->left, "services[0].role");
    if (takes_link(file, service)) add(n->moves ? n->used : n->left, "services[0].kv_link");
    tell_pools(file, 0, "role", n->moves, n);
}

static void tell_power(const struct config *file, uint32_t number, struct note *n)
{
    static const char *const keys[] = { "power", "power_limit_watts", "row_watts" };
    bool used = n->uses.engines && sim_file_service(file, number) == only_service(file);
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "services[%u].%s", number, keys[i]);
        if (is_said(file, key)) add(used ? n->used : n->left, key);
    }
    tell_pools(file, number, "priority", used && n->moves, n);
}

int sim_file_note(const char *path, struct sim_file_uses uses, struct buf *out, struct err *err)
{
    CLEANUP(config_freep) struct config *file = NULL;
    CLEANUP(buf_fini) struct buf used = { 0 }, left = { 0 };
    struct note n = { &used, &left, uses, uses.engines };
    for (uint32_t k = 1; k < SIM_SERVICES_MAX; k++)
        n.moves &= uses.pools[k] == 0;
    int rc = sim_file_load(path, &file, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < schema.count; i++) {
        const struct config_section *s = schema.sections[i];
        const struct config_records *list = s->list ? config_section_get(file, s->name) : NULL;
        if (list ? list->count > 0 : tell_section(file, s, &n)) add(&left, s->name);
    }
    for (uint32_t k = 0; k < SIM_SERVICES_MAX && sim_file_service(file, k); k++) {
        tell_engine_policies(file, k, &n);
        tell_power(file, k, &n);
        if (uses.scaling && uses.pools[k] > 0) tell_scaling(file, k, &n);
    }
    tell_roles(file, &n);
    buf_printf(out, "%s: taken: %s; left, where the command's own words count%s: %s\n", path,
               used.len > 0 ? used.data : "nothing but defaults",
               uses.engines ? "" : " and ref8000 has no engine",
               left.len > 0 ? left.data : "nothing");
    if (used.rc < 0 || left.rc < 0 || out->rc < 0)
        return err_set(err, -ENOMEM, "no memory for what %s says", path);
    return 0;
}

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

/* Checks a fleet without scaling: a pool that may grow, and options of scaling, need a scaling policy. */
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

/* Sets up one service's scaling; `flags` are the settings that the command line gives every service. */
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

/* ---- options without effect ------------------------------------------------------------------ */

static bool has_policy(const struct sim_config *c, const char *name)
{
    for (uint32_t k = 0; k < SIM_SERVICES_MAX && !c->scaling_clairvoyant; k++) {
        const struct scale_policy *policy = c->scaling->service[k].policy;
        if (policy && strcmp(policy->name, name) == 0) return true;
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
