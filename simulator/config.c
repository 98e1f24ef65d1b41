/* config.c - checks whether a configuration can be simulated, and fills in its defaults. */
#include "simulator/config.h"

#include "base/core/bits.h"
#include "base/perf/roofline.h"
#include "fleet/defaults.h"

#define LINK_BYTES_S 25e9 /* a 200 Gb/s port */
#define LINK_US 500
#define DAY_S 86400.0
#define DRAIN_S 3600  /* after the last arrival */
#define SWAP_BPS 25e9 /* PCIe 4.0 x16; its wire has 31.5e9 */
#define SEQS_MAX 256
#define BATCH_TOKENS_MAX 2048
#define OUTPUT_MAX 8192
#define PAGE_TOKENS 16
#define PAGE_TOKENS_SHARED 64

const struct sim_bounds sim_bounds_default = { .requests_max = ROUTER_REQUESTS_MAX,
                                               .held_max = ROUTER_HELD_MAX,
                                               .hold_us_max = ROUTER_HOLD_US_MAX,
                                               .index_bytes = ROUTER_INDEX_BYTES,
                                               .waiting_max = ENGINE_WAITING_MAX };

static int pool_check(const struct sim_config *c, const struct sim_pool *p, struct err *err)
{
    if (p->has_step && !perf_coef_valid(&p->step)) {
        return err_set(err, -EINVAL,
                       "measured step seconds must be finite, not negative and not all zero");
    }
    if (p->has_step && c->kv_tokens == 0) {
        return err_set(err, -EINVAL,
                       "measured step seconds need --kv-tokens: nothing else says how "
                       "much an instance holds");
    }
    if (!p->hardware) return 0;
    const struct model_spec *model = sim_pool_model(c, p);
    struct roofline r;
    if (!roofline_init(&r, p->hardware, model, p->tp)) {
        return err_set(err, -EINVAL, "%s cannot be split over %u of %s: %s (it has %u heads)",
                       model->name, p->tp, p->hardware->name,
                       model->heads % p->tp ? "tp must divide its heads" : "no link joins them",
                       model->heads);
    }
    if (c->kv_tokens == 0 && roofline_kv_tokens(&r) == 0) {
        return err_set(err, -EINVAL,
                       "%s does not fit into %u x %s: use more of them (tp) or "
                       "another type",
                       model->name, p->tp, p->hardware->name);
    }
    return 0;
}

/* Checks that each service has pools that prefill and pools that decode; a role policy sees to both. */
static int roles_check(const struct sim_config *c, struct err *err)
{
    uint64_t prefills = 0, decodes = 0;
    if (c->role) return 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        uint64_t service = 1ULL << c->pool[p].service;
        if (c->pool[p].role != ROLE_DECODE) prefills |= service;
        if (c->pool[p].role != ROLE_PREFILL) decodes |= service;
    }
    if (prefills == decodes) return 0;
    return err_set(
        err, -EINVAL, "a fleet with %s instances alone serves nobody: add %s ones, or --role",
        decodes & ~prefills ? "decode" : "prefill", decodes & ~prefills ? "prefill" : "decode");
}

/* Checks that every service of the trace has a pool, and that migration and roles get one service only. */
static int services_check(const struct sim_config *c, const struct trace *trace, struct err *err)
{
    uint64_t served = 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        if (c->pool[p].service >= SIM_SERVICES_MAX) {
            return err_set(err, -EINVAL, "services are numbered 0 to %d", SIM_SERVICES_MAX - 1);
        }
        served |= 1ULL << c->pool[p].service;
    }
    for (uint32_t i = 0; i < trace->count; i++) {
        uint32_t service = trace->request[i].service;
        if (service < SIM_SERVICES_MAX && served >> service & 1) continue;
        return err_set(err, -EINVAL,
                       "request %u asks for service %u, which no pool serves; a pool of "
                       "--fleet that does ends in :service%u",
                       i, service, service);
    }
    bool moves = c->migrate && c->migrate != migrate_find(STR(MIGRATE_DEFAULT));
    if (served != 1 && (moves || c->role)) {
        return err_set(err, -EINVAL, "migration and roles are simulated for one service, number 0");
    }
    return 0;
}

int sim_config_check(const struct sim_config *c, const struct trace *trace, struct err *err)
{
    uint32_t serial = 0, instances = 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        const struct sim_pool *pool = &c->pool[p];
        serial += sim_pool_is_serial(pool);
        instances += c->scaling ? c->scaling->pool[p].max : pool->count;
        int rc = pool_check(c, pool, err);
        if (rc < 0) return rc;
    }
    if (trace->count == 0) return err_set(err, -EINVAL, "the trace has no requests");
    if (instances == 0) return err_set(err, -EINVAL, "a fleet needs at least one instance");
    if (instances > SIM_INSTANCES_MAX) {
        return err_set(err, -EINVAL, "a fleet has at most %d instances, not %u", SIM_INSTANCES_MAX,
                       instances);
    }
    if (serial > 0 && serial < c->pool_count) {
        return err_set(err, -EINVAL,
                       "ref8000 cannot be mixed with other hardware: its cache has "
                       "blocks of another size");
    }
    if (serial > 0 && c->role) return err_set(err, -EINVAL, "ref8000 has no roles to give");
    if (c->routers == 0 || c->routers > SIM_ROUTERS_MAX) {
        return err_set(err, -EINVAL, "routers: 1 to %d, not %u", SIM_ROUTERS_MAX, c->routers);
    }
    double span_s =
        (double)(trace->request[trace->count - 1].at_us - trace->request[0].at_us) * 1e-6;
    if (span_s > TRACE_SPAN_S_MAX) {
        return err_set(err, -EINVAL, "the trace's arrivals span %.0f days, at most %.0f",
                       span_s / DAY_S, TRACE_SPAN_S_MAX / DAY_S);
    }
    int rc = services_check(c, trace, err);
    return rc == 0 ? roles_check(c, err) : rc;
}

/* Where prompts share blocks, pages have 64 tokens: they find as much in a quarter of the time. */
struct sim_config sim_config_resolved(const struct sim_config *config, const struct trace *trace)
{
    struct sim_config c = *config;
    if (!c.route) c.route = route_find(STR(ROUTE_DEFAULT));
    if (!c.predict) c.predict = predict_find(STR(PREDICT_DEFAULT));
    preset_fill(c.preset, &c.step);
    if (c.swap_bps <= 0) c.swap_bps = SWAP_BPS;
    if (!c.perf) c.perf = perf_find(STR(PERF_DEFAULT));
    if (!c.power) c.power = power_find(STR(POWER_DEFAULT));
    if (!c.migrate) c.migrate = migrate_find(STR(MIGRATE_DEFAULT));
    if (c.link_bytes_s <= 0) c.link_bytes_s = LINK_BYTES_S;
    if (c.link_us == 0) c.link_us = LINK_US;
    if (c.seqs_max == 0) c.seqs_max = SEQS_MAX;
    if (c.batch_tokens_max == 0) c.batch_tokens_max = BATCH_TOKENS_MAX;
    if (c.output_max == 0) c.output_max = OUTPUT_MAX;
    if (c.page_tokens == 0) c.page_tokens = trace->block_tokens ? PAGE_TOKENS_SHARED : PAGE_TOKENS;
    if (c.report_delay_us == 0) c.report_delay_us = REPORT_PERIOD_US;
    if (!c.has_bounds) c.bounds = sim_bounds_default;
    if (c.drain_s <= 0) c.drain_s = DRAIN_S;
    if (c.misses_max == 0) c.misses_max = UINT32_MAX;
    return c;
}
