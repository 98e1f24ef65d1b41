/* catalog.c - reads the name, source and default of each policy from the table of its kind. */
#include "policies/catalog.h"

#include "base/core/bits.h"
#include "policies/layers/layers.h"
#include "policies/load/load.h"
#include "policies/migrate/migrate.h"
#include "policies/mix/mix.h"
#include "policies/move/move.h"
#include "policies/perf/perf_model.h"
#include "policies/place/place.h"
#include "policies/power/power.h"
#include "policies/predict/predict.h"
#include "policies/preset.h"
#include "policies/role/role.h"
#include "policies/route/route.h"
#include "policies/scale/bound.h"
#include "policies/scale/forecast.h"
#include "policies/scale/scale.h"
#include "policies/scale/shape/shape.h"

const char *const policy_kinds[] = { "route",  "predict", "scale", "forecast", "shaper",  "place",
                                     "mix",    "layers",  "move",  "load",     "migrate", "role",
                                     "preset", "fair",    "order", "admit",    "preempt", "chunk",
                                     "evict",  "draft",   "perf",  "power",    NULL };

static int tell(const char *kind, const char *name, const char *about, const char *source,
                const char *default_name, int (*fn)(void *ctx, const struct policy_info *policy),
                void *ctx)
{
    struct policy_info r = {
        kind, name, about, source, str_eq(str_from(name), str_from(default_name)), false
    };
    return fn(ctx, &r);
}

#define EACH(table, count, kind, source, default_name) \
    for (uint32_t i = 0; rc == 0 && i < (count); i++)  \
    rc = tell(kind, (table)[i]->name, (table)[i]->about, source, default_name, fn, ctx)

int policies_each(int (*fn)(void *ctx, const struct policy_info *policy), void *ctx)
{
    int rc = 0;
    EACH(route_table, route_count, "route", route_table[i]->source, ROUTE_DEFAULT);
    EACH(predict_table, predict_count, "predict", predict_table[i]->source, PREDICT_DEFAULT);
    EACH(scale_table, scale_count, "scale", scale_table[i]->source, SCALE_DEFAULT);
    const struct policy_info bound = {
        "scale", SCALE_BOUND_NAME, SCALE_BOUND_ABOUT, SCALE_BOUND_SOURCE, false, true
    };
    if (rc == 0) rc = fn(ctx, &bound);
    EACH(scale_forecast_table, scale_forecast_count, "forecast", scale_forecast_table[i]->source,
         FORECAST_DEFAULT);
    EACH(scale_shape_table, scale_shape_count, "shaper", scale_shape_table[i]->source,
         SCALE_SHAPER_DEFAULT);
    EACH(place_table, place_count, "place", place_table[i]->source, PLACE_DEFAULT);
    EACH(mix_table, mix_count, "mix", mix_table[i]->source, MIX_DEFAULT);
    EACH(layers_table, layers_count, "layers", layers_table[i]->source, LAYERS_DEFAULT);
    EACH(move_table, move_count, "move", move_table[i]->source, MOVE_DEFAULT);
    EACH(load_table, load_count, "load", load_table[i]->source, LOAD_DEFAULT);
    EACH(role_table, role_count, "role", role_table[i]->source, ROLE_DEFAULT);
    EACH(migrate_table, migrate_count, "migrate", migrate_table[i]->source, MIGRATE_DEFAULT);
    EACH(preset_table, preset_count, "preset", preset_table[i]->source, PRESET_DEFAULT);
    EACH(fair_table, fair_count, "fair", fair_table[i]->source, FAIR_DEFAULT);
    EACH(order_table, order_count, "order", order_table[i]->source, ORDER_DEFAULT);
    EACH(admit_table, admit_count, "admit", admit_table[i]->source, ADMIT_DEFAULT);
    EACH(preempt_table, preempt_count, "preempt", preempt_table[i]->source, PREEMPT_DEFAULT);
    EACH(chunk_table, chunk_count, "chunk", chunk_table[i]->source, CHUNK_DEFAULT);
    EACH(evict_table, evict_count, "evict", evict_table[i]->source, EVICT_DEFAULT);
    EACH(draft_table, draft_count, "draft", draft_table[i]->source, DRAFT_DEFAULT);
    EACH(perf_table, perf_count, "perf", perf_table[i]->source, PERF_DEFAULT);
    EACH(power_table, power_count, "power", power_table[i]->source, POWER_DEFAULT);
    return rc;
}

struct names {
    const char *kind;
    const char **name;
    uint32_t count;
};

static int collect(void *ctx, const struct policy_info *r)
{
    struct names *n = ctx;
    if (r->is_bound || !str_eq(str_from(r->kind), str_from(n->kind))) return 0;
    must(n->count < POLICY_NAMES_MAX);
    n->name[n->count++] = r->name;
    return 0;
}

uint32_t policy_names(const char *kind, const char *ret[POLICY_NAMES_MAX])
{
    struct names n = { kind, ret, 0 };
    policies_each(collect, &n);
    return n.count;
}

int policy_check(const char *kind, struct str name, const char *where, struct err *err)
{
    const char *names[POLICY_NAMES_MAX];
    char list[ERR_TEXT_MAX];
    uint32_t count = policy_names(kind, names);
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(name, str_from(names[i]))) return 0;
    const char *near = str_nearest(name, names, count);
    str_list(names, count, list, sizeof list);
    return err_set(err, -EINVAL, "%s: '" STR_FMT "' is no %s policy%s%s%s; there are %s", where,
                   STR_ARG(name), kind, near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : "", list);
}
