/* config.c - read the fleet's shape, and write the configuration with other shares.
 *
 * The numbers of the section `local` are replaced line by line in the user's own file, so that everything
 * else stays as it was written. The result is loaded again and compared: a file in another style of YAML
 * is refused, not half changed. Rejected: printing the loaded configuration, which says every default
 * aloud and so hands engines settings that nobody chose.
 */
#include "cli/demo/config.h"

#include "base/core/own.h"
#include "cli/schema.h"
#include "controller/config.h"

#include <math.h>
#include <stdlib.h>

static const struct service_section *first_service(const struct config *config)
{
    const struct config_records *services = config_section_get(config, "services");
    return services->count > 0 ? services->items : NULL;
}

const char *demo_model_of(const struct config *config)
{
    const struct service_section *s = first_service(config);
    return s ? s->model.data : NULL;
}

/* The share of the pool's first offer; 0 where this machine does not sell it. */
static double share_of(const struct local_section *local, const struct pool_section *pool)
{
    const struct offer_section *offer = local->offers.items;
    if (!str_eq(pool->provider, STR("local")) || pool->offers.count == 0) return 0;
    for (size_t i = 0; i < local->offers.count; i++)
        if (str_eq(offer[i].name, pool->offers.items[0])) return offer[i].share;
    return 0;
}

int demo_shape_of(const struct config *config, struct demo_shape *ret, struct err *err)
{
    const struct service_section *s = first_service(config);
    const struct local_section *local = config_section_get(config, "local");
    if (!s) return err_set(err, -EINVAL, "the demo needs a service; the configuration has none");
    struct demo_shape shape = { .smallest = INFINITY, .slo_ttft_s = (double)s->slo_ttft_us * 1e-6 };
    const struct pool_section *pool = s->pools.items;
    int64_t total = 0;
    for (size_t i = 0; i < s->pools.count; i++) {
        double share = share_of(local, &pool[i]);
        if (share <= 0 || pool[i].max <= 0) {
            return err_set(err, -EINVAL,
                           "pool %s: the demo needs pools of this machine (provider: local) that "
                           "may grow",
                           pool[i].name.data);
        }
        shape.largest += share * (double)pool[i].max;
        shape.smallest = fmin(shape.smallest, share);
        total += pool[i].max;
    }
    if (total < DEMO_FIXED_INSTANCES) {
        return err_set(err, -EINVAL, "the pools allow %lld instances, the comparison needs %d",
                       (long long)total, DEMO_FIXED_INSTANCES);
    }
    /* In turn over the pools, as the comparison's fleet is set. */
    int64_t left = DEMO_FIXED_INSTANCES;
    for (int64_t turn = 0; left > 0; turn++) {
        for (size_t i = 0; i < s->pools.count && left > 0; i++) {
            if (turn >= pool[i].max) continue;
            shape.fixed += share_of(local, &pool[i]);
            left--;
        }
    }
    *ret = shape;
    return 0;
}

/* The key of a line "  - KEY: VALUE" or "    KEY: VALUE"; empty for other lines. */
static struct str key_of(struct str line)
{
    while (line.len > 0 && (*line.data == ' ' || *line.data == '-')) {
        line.data++;
        line.len--;
    }
    size_t end = str_find(line, STR(":"));
    return end == SIZE_MAX ? (struct str){ 0 } : (struct str){ line.data, end };
}

static void put_local(struct buf *out, struct str line, const struct demo_machine *m, double share,
                      double *offer_share)
{
    struct str key = key_of(line);
    double value;
    if (str_eq(key, STR("share"))) {
        *offer_share = value = strtod(key.data + key.len + 1, NULL) * share;
    } else if (str_eq(key, STR("cores"))) {
        value = strtod(key.data + key.len + 1, NULL) * share;
    } else if (str_eq(key, STR("perf_step"))) {
        value = m->step_s / *offer_share;
    } else if (str_eq(key, STR("perf_prefill"))) {
        value = m->prefill_token_s / *offer_share;
    } else if (str_eq(key, STR("perf_decode"))) {
        value = m->decode_seq_s / *offer_share;
    } else {
        buf_str(out, line);
        buf_byte(out, '\n');
        return;
    }
    buf_str(out, (struct str){ line.data, (size_t)(key.data + key.len - line.data) });
    buf_printf(out, ": %.6g\n", value);
}

/* Whether both sell the same but for shares, which are `share` times as large in `scaled`. */
static bool is_scaled(const struct config *config, const struct config *scaled, double share)
{
    const struct local_section *a = config_section_get(config, "local");
    const struct local_section *b = config_section_get(scaled, "local");
    const struct offer_section *x = a->offers.items, *y = b->offers.items;
    if (a->offers.count != b->offers.count) return false;
    if (fabs(b->cores - a->cores * share) > 1e-4 * a->cores) return false;
    for (size_t i = 0; i < a->offers.count; i++)
        if (fabs(y[i].share - x[i].share * share) > 1e-4 * x[i].share) return false;
    return true;
}

int demo_config_scale(struct str text, const struct demo_machine *machine, double share,
                      struct buf *out, struct err *err)
{
    CLEANUP(config_freep) struct config *before = NULL;
    CLEANUP(config_freep) struct config *after = NULL;
    struct str rest = text;
    bool local = false;
    double offer_share = 1;
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        if (line.len > 0 && *line.data != ' ' && *line.data != '#')
            local = str_starts(line, STR("local:"));
        if (local) {
            put_local(out, line, machine, share, &offer_share);
        } else {
            buf_str(out, line);
            buf_byte(out, '\n');
        }
    }
    if (out->rc < 0) return err_set(err, out->rc, "no memory for the demo's configuration");
    struct config_sources from = { .path = "the configuration", .text = text };
    struct config_sources to = { .path = "the demo's configuration", .text = buf_view(out) };
    int rc = config_load(&schema, &from, &before, NULL, err);
    if (rc == 0) rc = config_load(&schema, &to, &after, NULL, err);
    if (rc < 0) return rc;
    if (is_scaled(before, after, share)) return 0;
    return err_set(err, -EINVAL,
                   "the demo cannot set the shares of `local`: write its keys one a line, or give "
                   "--speed and keep the shares as they are");
}
