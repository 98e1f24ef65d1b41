/* sim_fleet.c - a fleet as people write it: counts, hardware, devices an instance, prices. */
#include "cli/sim_fleet.h"

#include "base/core/bits.h"
#include "policies/prices.h"

#define TP_MAX 64
#define STEP_PART_S_MAX 1000.0 /* of a measured step's coefficients */
#define PRICE_H_MAX 1e6

/* The two that are no rows of the table are said where it names no near one. */
static int no_hardware(struct str name, struct err *err)
{
    static const char *const more[] = { "ref8000", "measured" };
    const char *near = str_nearest(name, more, COUNT_OF(more));
    if (near) {
        return err_set(err, -EINVAL, "--fleet: no hardware '" STR_FMT "', did you mean '%s'?",
                       STR_ARG(name), near);
    }
    hardware_unknown(name, err);
    return err_prefix(err, -EINVAL, "--fleet");
}

static bool read_numbered(struct str text, struct str prefix, uint32_t max, uint32_t *ret)
{
    uint64_t v;
    if (!str_starts(text, prefix)) return false;
    struct str digits = str_of(text.data + prefix.len, text.len - prefix.len);
    if (str_to_u64(digits, &v) < 0 || v > max) return false;
    *ret = (uint32_t)v;
    return true;
}

/* "b=56e-6": a coefficient of a step that was measured, in seconds. -EINVAL: something else. */
static int read_step(struct str text, struct sim_pool *pool, struct err *err)
{
    double *const coef[] = { &pool->step.a, &pool->step.b, &pool->step.c, &pool->step.d,
                             &pool->step.e };
    double v;
    if (!pool->has_step || text.len < 3 || text.data[1] != '=') return -EINVAL;
    uint32_t i = (uint32_t)(text.data[0] - 'a');
    if (i >= COUNT_OF(coef) || str_to_f64(str_of(text.data + 2, text.len - 2), &v) < 0)
        return -EINVAL;
    if (v < 0 || v > STEP_PART_S_MAX) {
        return err_set(err, -ERANGE, "--fleet: ':" STR_FMT "' is out of range 0..%g seconds",
                       STR_ARG(text), STEP_PART_S_MAX);
    }
    *coef[i] = v;
    return 0;
}

/* What a suffix says; of a pool each once. A step's coefficients follow PART_STEP. */
enum part {
    PART_TP,
    PART_ZONE,
    PART_SPOT,
    PART_ROLE,
    PART_PRIORITY,
    PART_SERVICE,
    PART_MODEL,
    PART_STEP
};

static int read_suffix(struct str text, struct sim_pool *pool, struct sim_control_pool *control,
                       uint32_t *ret_part, struct err *err)
{
    *ret_part = PART_TP;
    if (read_numbered(text, STR("tp"), TP_MAX, &pool->tp) && pool->tp > 0) return 0;
    *ret_part = PART_ZONE;
    if (read_numbered(text, STR("zone"), SIM_ZONES_MAX - 1, &control->zone)) return 0;
    *ret_part = PART_STEP + (text.len > 0 ? (uint32_t)(text.data[0] - 'a') : 0);
    int rc = read_step(text, pool, err);
    if (rc != -EINVAL) return rc == 0 ? 0 : -EINVAL;
    *ret_part = PART_SPOT;
    control->spot |= str_eq(text, STR("spot"));
    if (str_eq(text, STR("spot"))) return 0;
    *ret_part = PART_ROLE;
    for (uint32_t r = 0; r < ROLE_COUNT; r++) {
        if (!str_eq(text, str_from(role_names[r]))) continue;
        pool->role = (enum role)r;
        pool->has_role = true;
        return 0;
    }
    *ret_part = PART_PRIORITY;
    for (uint32_t p = 0; p < PRIORITY_COUNT; p++) {
        if (!str_eq(text, str_from(priority_names[p]))) continue;
        pool->priority = (enum priority)p;
        pool->has_priority = true;
        return 0;
    }
    *ret_part = PART_SERVICE;
    if (read_numbered(text, STR("service"), SIM_SERVICES_MAX - 1, &pool->service)) return 0;
    *ret_part = PART_MODEL;
    if (model_spec_find(text, &pool->model, NULL) == 0) return pool->has_model = true, 0;
    return err_set(
        err, -EINVAL,
        "--fleet: ':" STR_FMT "' is not tp1 to tp%d, %s, %s, high, low, spot, zone0 to zone%d, "
        "service0 to service%d, a shipped model, or (of measured) a=SECONDS to e=SECONDS",
        STR_ARG(text), TP_MAX, role_names[ROLE_PREFILL], role_names[ROLE_DECODE], SIM_ZONES_MAX - 1,
        SIM_SERVICES_MAX - 1);
}

/* "8"; "1-24": the fleet begins with the least; "1-8-24": with 8. */
static int read_count(struct str text, struct sim_pool *pool, struct sim_control_pool *control)
{
    uint64_t least, start, most;
    struct str top = text, low = str_cut(&top, '-'), middle = str_cut(&top, '-');
    struct str begin = top.data ? middle : low, high = top.data ? top : middle.data ? middle : low;
    if (str_to_u64(low, &least) < 0 || str_to_u64(begin, &start) < 0) return -EINVAL;
    if (str_to_u64(high, &most) < 0) return -EINVAL;
    if (least > start || start > most || most > SIM_INSTANCES_MAX) return -EINVAL;
    pool->count = control->start = (uint32_t)start;
    control->min = (uint32_t)least;
    control->max = (uint32_t)most;
    return 0;
}

static int read_suffixes(struct str rest, struct sim_pool *pool, struct sim_control_pool *control,
                         struct err *err)
{
    uint32_t said = 0;
    while (rest.data) { /* what stands behind a last colon too: nothing, which is refused */
        struct str text = str_cut(&rest, ':');
        uint32_t part = 0;
        int rc = read_suffix(text, pool, control, &part, err);
        if (rc < 0) return rc;
        if (said & (1u << part))
            return err_set(err, -EINVAL,
                           "--fleet: ':" STR_FMT "' says again what stands before it; a pool has "
                           "one tp, role, priority, zone, service and model",
                           STR_ARG(text));
        said |= 1u << part;
    }
    return 0;
}

static int read_kind(struct str text, struct sim_pool *pool, struct sim_control_pool *control,
                     struct err *err)
{
    struct str rest = text, count = str_cut(&rest, 'x'), name = str_cut(&rest, ':');
    *pool = (struct sim_pool){ .tp = 1 };
    if (read_count(count, pool, control) < 0 || name.len == 0) {
        return err_set(err, -EINVAL,
                       "--fleet: '" STR_FMT "' is not COUNTxHARDWARE, as 8xa100 or, of a pool that "
                       "scales, 1-24xa100 (1-8-24xa100 begins with 8); at most %d",
                       STR_ARG(text), SIM_INSTANCES_MAX);
    }
    pool->has_step = str_eq(name, STR("measured"));
    if (!pool->has_step && !str_eq(name, STR("ref8000"))) {
        pool->hardware = hardware_find(name);
        if (!pool->hardware) return no_hardware(name, err);
    }
    return read_suffixes(rest, pool, control, err);
}

/* "@list" is the cheapest offer of the compiled-in list, "@aws" the cheapest of one provider. */
static int list_price(struct str provider, bool spot, struct sim_pool *pool, struct err *err)
{
    struct prices list;
    double best = 0;
    int rc = prices_parse(prices_text(), &list, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; pool->hardware && i < list.count; i++) {
        const struct price *p = &list.row[i];
        bool asked = str_eq(provider, STR("list")) || str_eq(provider, str_from(p->provider));
        if (!asked || p->spot != spot || strcmp(p->hardware, pool->hardware->name) != 0) continue;
        if (best == 0 || p->price_h < best) best = p->price_h;
    }
    if (best == 0) {
        return err_set(err, -EINVAL,
                       "--fleet: '@" STR_FMT "' is neither dollars an instance-hour nor a provider "
                       "with %s %s in the price list (`muster offers`)",
                       STR_ARG(provider), spot ? "spot" : "on-demand",
                       pool->hardware ? pool->hardware->name : "ref8000");
    }
    pool->price_h = best * pool->tp;
    return 0;
}

static int read_pool(struct str text, struct sim_pool *ret, struct sim_control_pool *control,
                     struct err *err)
{
    struct str price = text, kind = str_cut(&price, '@');
    int rc = read_kind(kind, ret, control, err);
    if (rc < 0 || !price.data) return rc;
    if (str_to_f64(price, &ret->price_h) == 0) {
        if (ret->price_h >= 0 && ret->price_h <= PRICE_H_MAX) return 0;
        return err_set(err, -EINVAL,
                       "--fleet: '@" STR_FMT "' is out of range 0..%g dollars an hour",
                       STR_ARG(price), PRICE_H_MAX);
    }
    return list_price(price, control->spot, ret, err);
}

static struct str cut_pool(struct str *rest)
{
    size_t comma = str_find(*rest, STR(",")), plus = str_find(*rest, STR("+"));
    return str_cut(rest, plus < comma ? '+' : ',');
}

int sim_fleet_parse(struct str text, struct sim_config *ret, struct sim_control_setup *control,
                    struct err *err)
{
    struct str rest = text;
    uint32_t count = 0;
    do {
        if (count == SIM_POOLS_MAX) {
            return err_set(err, -EINVAL, "--fleet: at most %d kinds of instances", SIM_POOLS_MAX);
        }
        struct str pool = str_trim(cut_pool(&rest));
        if (pool.len == 0) {
            return err_set(err, -EINVAL,
                           "--fleet '" STR_FMT "': a kind of instances is missing; write "
                           "COUNTxHARDWARE, as in 8xa100,2xl4",
                           STR_ARG(text));
        }
        int rc = read_pool(pool, &ret->pool[count], &control->pool[count], err);
        if (rc < 0) return rc;
        count++;
    } while (rest.data);
    ret->pool_count = count;
    return 0;
}
