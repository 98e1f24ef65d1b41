/* sim_fleet.c - a fleet as people write it: counts, hardware, devices an instance, prices. */
#include "base/core/bits.h"
#include "cli/sim_options.h"

#define TP_MAX 64
#define HARDWARE_NAMES_MAX 64

static int no_hardware(struct str name, struct err *err)
{
    const char *names[HARDWARE_NAMES_MAX] = { "ref8000" };
    size_t count = 1;
    for (uint32_t i = 0; i < hardware_count && count < COUNT_OF(names); i++)
        names[count++] = hardware_table[i].name;
    const char *near = str_nearest(name, names, count);
    return err_set(err, -EINVAL, "--fleet: no hardware '" STR_FMT "'%s%s%s", STR_ARG(name),
                   near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int read_suffix(struct str text, struct sim_pool *pool, struct err *err)
{
    uint64_t tp;
    if (str_starts(text, STR("tp")) && str_to_u64(str_of(text.data + 2, text.len - 2), &tp) == 0 &&
        tp >= 1 && tp <= TP_MAX) {
        pool->tp = (uint32_t)tp;
        return 0;
    }
    for (uint32_t r = 0; r < ROLE_COUNT; r++) {
        if (!str_eq(text, str_from(role_names[r]))) continue;
        pool->role = (enum role)r;
        return 0;
    }
    return err_set(err, -EINVAL, "--fleet: ':" STR_FMT "' is not :tp1 to :tp%d or a role",
                   STR_ARG(text), TP_MAX);
}

/* COUNTxNAME[:SUFFIX...] */
static int read_kind(struct str text, struct sim_pool *pool, struct err *err)
{
    struct str rest = text, count = str_cut(&rest, 'x'), name = str_cut(&rest, ':');
    uint64_t instances;
    if (str_to_u64(count, &instances) < 0 || instances > SIM_INSTANCES_MAX || name.len == 0) {
        return err_set(err, -EINVAL, "--fleet: '" STR_FMT "' is not COUNTxHARDWARE, at most %d",
                       STR_ARG(text), SIM_INSTANCES_MAX);
    }
    *pool = (struct sim_pool){ .count = (uint32_t)instances, .tp = 1 };
    if (!str_eq(name, STR("ref8000"))) {
        pool->hardware = hardware_find(name);
        if (!pool->hardware) return no_hardware(name, err);
    }
    int rc = 0;
    while (rc == 0 && rest.len > 0)
        rc = read_suffix(str_cut(&rest, ':'), pool, err);
    return rc;
}

static int read_pool(struct str text, struct sim_pool *ret, struct err *err)
{
    struct str price = text, kind = str_cut(&price, '@');
    int rc = read_kind(kind, ret, err);
    if (rc < 0 || !price.data) return rc;
    if (str_to_f64(price, &ret->price_h) < 0 || ret->price_h < 0) {
        return err_set(err, -EINVAL, "--fleet: '@" STR_FMT "' is not dollars an instance-hour",
                       STR_ARG(price));
    }
    return 0;
}

static struct str cut_pool(struct str *rest)
{
    size_t comma = str_find(*rest, STR(",")), plus = str_find(*rest, STR("+"));
    return str_cut(rest, plus < comma ? '+' : ',');
}

int sim_fleet_parse(struct str text, struct sim_config *ret, struct err *err)
{
    struct str rest = text;
    uint32_t count = 0;
    while (rest.len > 0) {
        if (count == SIM_POOLS_MAX) {
            return err_set(err, -EINVAL, "--fleet: at most %d kinds of instances", SIM_POOLS_MAX);
        }
        int rc = read_pool(str_trim(cut_pool(&rest)), &ret->pool[count], err);
        if (rc < 0) return rc;
        count++;
    }
    ret->pool_count = count;
    return 0;
}
