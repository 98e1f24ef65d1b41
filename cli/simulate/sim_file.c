/* sim_file.c - what `muster simulate --config` takes of a fleet's file, and what it leaves.
 *
 * Taken: the router's policies and bounds; the engines' policies, limits and bound, of the section `engine` and, where the file
 * has one service, of that service's `engine`, which is stronger (all engines of a run have the same);
 * of that service its power policy with its limit, its role policy, its link and, where the fleet has as
 * many pools, their priorities and roles; the router's migrate policy where the fleet serves one service
 * and has engines; where the fleet scales, each service's scaling, with promise and budget
 * (sim_scaling.c). The fleet is the command's own word, because a simulation asks what another fleet
 * would do. */
#include "cli/simulate/sim_file.h"

#include "base/core/own.h"
#include "cli/schema.h"
#include "cli/simulate/sim_options.h"
#include "controller/setup.h"
#include "engine/config.h"
#include "policies/catalog.h"
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

/* Of the service, where the fleet scales (sim_scaling.c). */
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

/* A limit that the file does not say is the simulator's, not that of an engine on a small machine. */
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

/* Whose engines are taken. */
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

/* The stronger of two names, where the first is. */
static struct str or_else(struct str strong, struct str weak)
{
    return strong.len > 0 ? strong : weak;
}

#define TAKE_ROW(rows, kind, text)                         \
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

/* What its pools say holds for the fleet's, in their order. */
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
    TAKE_ROW(c, route, router->route)
    TAKE_ROW(c, predict, router->predict)
    TAKE_ROW(&c->step, fair, or_else(own->fair, all->fair))
    TAKE_ROW(&c->step, order, or_else(own->order, all->order))
    TAKE_ROW(&c->step, admit, or_else(own->admit, all->admit))
    TAKE_ROW(&c->step, preempt, or_else(own->preempt, all->preempt))
    TAKE_ROW(&c->step, chunk, or_else(own->chunk, all->chunk))
    TAKE_ROW(&c->step, evict, or_else(own->evict, all->evict))
    TAKE_ROW(c, perf, or_else(own->perf, all->perf))
    if (!service) return rc;
    TAKE_ROW(c, power, service->power)
    c->row_watts_max = service->row_watts;
    const struct pool_section *pools = service->pools.items;
    for (uint32_t p = 0; p < c->pool_count && has_its_pools(c, service); p++)
        if (!c->pool[p].has_priority) c->pool[p].priority = (enum priority)pools[p].priority;
    return rc;
}

/* Roles and migration are simulated for one service, which has engines. */
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

/* Where roles or migration are, its link is taken also where it says none: the fleet reckons with the
 * default. */
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
    TAKE_ROW(c, migrate, router->migrate)
    if (rc < 0 || !service) return rc;
    const struct pool_section *pools = service->pools.items;
    TAKE_ROW(c, role, service->role)
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

/* ---- what of it counts ---- */

struct note {
    struct buf *used, *left;
    struct sim_file_uses uses;
    bool moves; /* K and V may: as moves_kv */
};

static void add(struct buf *list, const char *path)
{
    buf_printf(list, "%s%s", list->len > 0 ? ", " : "", path);
}

/* Whether anybody said anything of a section; its keys are told apart where some are taken. */
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

/* What the pools of a service say is taken in their order, where the fleet has as many. */
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
    static const char *const keys[] = { "power", "row_watts" };
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
