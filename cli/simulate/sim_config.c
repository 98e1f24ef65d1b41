/* sim_config.c - turn options into a simulation.
 *
 * A flag beats --config, and a policy that either names beats the preset's; --preset beats the file's preset.
 *
 * A fleet is written COUNTxHARDWARE[:SUFFIX...][@DOLLARS_AN_INSTANCE_HOUR], joined by commas or plus
 * signs. COUNT may be MIN-MAX or MIN-START-MAX where the fleet scales; suffixes are tpN, a role, spot,
 * zoneN. Policies are found by the names that users type.
 */

#include "cli/simulate/sim_config.h"

#include "base/core/bits.h"
#include "base/perf/prices.h"
#include "base/wire/sync.h"
#include "cli/input_file.h"
#include "cli/simulate/sim_file.h"
#include "fleet/defaults.h"
#include "policies/catalog.h"
#include "policies/route/overload.h"
#include "simulator/sim.h"
#include "simulator/trace.h"

#include <stdio.h>

static const char *const output_names[] = { "table", "json", NULL };

#define AT(member) .offset = offsetof(struct sim_options, member)
#define ROW_OPTION(kind)                                                        \
    {                                                                           \
        .name = #kind, .type = CONFIG_TEXT, AT(kind),                           \
        .about = "Policy of this kind; `muster policies " #kind "` lists them." \
    }

// clang-format off
static const struct config_field rows[] = {
    { .name = "trace", .letter = 't', .type = CONFIG_TEXT, .required = true, AT(trace),
      .about = "Trace to replay: Azure CSV, Mooncake or text JSONL, or gen:... (below)." },
    { .name = "format", .type = CONFIG_ENUM, .default_text = "auto", .names = trace_format_names,
      AT(format), .about = "Format of the trace's file." },
    { .name = "speed", .letter = 's', .type = CONFIG_FLOAT, .default_text = "1", .min = 1e-4,
      .max = 1e6, AT(speed), .about = "Arrivals come this many times as fast." },
    { .name = "scale", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = TRACE_SCALE_MAX,
      AT(scale), .about = "Superpose so many copies of the trace, each shifted and its own." },
    { .name = "requests", .letter = 'n', .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = TRACE_REQUESTS_MAX, AT(requests),
      .about = "Requests to take from the trace, before copies; 0 for all." },
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .default_text = "llama-3-8b",
      AT(model), .about = "Shipped model, or a file with a model's shape, as ./my.spec (below)." },
    { .name = "fleet", .letter = 'f', .type = CONFIG_TEXT, .default_text = "8xa100", AT(fleet),
      .about = "Instances, at most 4096: COUNTxHARDWARE[:SUFFIX...][@DOLLARS_AN_HOUR|@list|@PROVIDER], "
               "joined by commas; hardware is listed below, suffixes are tpN, prefill, decode, spot, "
               "zoneN, serviceN, low (polca caps it first) and a model's name; ref8000 is the serial "
               "reference, "
               "measured:a=S:b=S:c=S:d=S:e=S a machine by its step: seconds fixed, of a prompt token, "
               "a sequence, a token read, a token attended to." },
    { .name = "config", .letter = 'c', .type = CONFIG_TEXT, AT(config),
      .about = "muster.yaml whose policies of router and engines, limits of engines that it says and, where "
               "the fleet scales, scaling of its services are taken where no flag says another. The "
               "rest is left, and named." },
    { .name = "preset", .type = CONFIG_TEXT, AT(preset),
      .about = "A policy of each kind of the engine's step; `muster policies preset` lists them, `ref` "
               "is the setting of published routing comparisons." },
    ROW_OPTION(route), ROW_OPTION(predict), ROW_OPTION(fair), ROW_OPTION(order),
    ROW_OPTION(admit), ROW_OPTION(preempt), ROW_OPTION(chunk), ROW_OPTION(evict),
    ROW_OPTION(migrate),
    { .name = "role", .type = CONFIG_TEXT, AT(role),
      .about = "Policy that gives instances their roles as demand is seen; without it they keep those "
               "of --fleet. `muster policies role` lists them." },
    ROW_OPTION(perf), ROW_OPTION(power),
    { .name = "power_limit_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "W", AT(power_limit_watts),
      .about = "What the breaker before all instances allows, for the power policy polca; 0: no limit." },
    { .name = "row_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "W", AT(row_watts),
      .about = "Former name of --power-limit-watts, read in this release for the last time." },
    { .name = "tenant_weights", .type = CONFIG_TEXT, AT(tenant_weights),
      .about = "Shares of the trace's tenants 1, 2, ... for the fair policy, as 3,1; tenants beyond "
               "the list weigh 1." },
    { .name = "scale_policy", .type = CONFIG_TEXT, AT(scale_policy),
      .about = "The fleet follows its demand by this policy, or by `clairvoyant`, a bound; pools that "
               "scale are written 1-24xl4, or 1-8-24xl4 to begin with 8." },
    { .name = "forecast", .type = CONFIG_TEXT, AT(forecast),
      .about = "What the scaling policies dynamo_throughput and sageserve forecast with; `muster policies "
               "forecast` lists them." },
    { .name = "shaper", .type = CONFIG_TEXT, AT(shaper),
      .about = "Shaper behind the scaling policy; without it the one it is published with." },
    { .name = "scale_margin", .type = CONFIG_FLOAT, .default_text = "1", .min = 0.01, .max = 100,
      AT(scale_margin), .about = "The scaling policy's measured load is multiplied by this." },
    { .name = "scale_count", .type = CONFIG_INT, .default_text = "1", .min = 0,
      .max = SIM_INSTANCES_MAX, .unit = "instances", AT(scale_count),
      .about = "What the scaling policy `static` keeps." },
    { .name = "place", .type = CONFIG_TEXT, AT(place),
      .about = "Policy that chooses among pools; `muster policies place` lists them." },
    { .name = "budget", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      AT(budget_h), .about = "Most dollars an hour that the fleet may cost; 0 for no limit." },
    { .name = "lead_time", .type = CONFIG_DURATION, .default_text = "100s", .min = 0, .max = 1e11,
      AT(lead_us), .about = "Mean time from an instance's order to its being ready." },
    { .name = "lead_spread", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 2,
      AT(lead_spread), .about = "Sigma of the logarithm of each phase of a start." },
    { .name = "launch_failures", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1,
      AT(launch_failures), .about = "Share of launches that end in an error half-way." },
    { .name = "life", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 1e13,
      AT(life_us), .about = "Mean time to an instance's failure without notice; 0 for never." },
    { .name = "notice", .type = CONFIG_DURATION, .default_text = "30s", .min = 0, .max = 1e10,
      AT(notice_us), .about = "Time between a spot instance's notice and its end." },
    { .name = "zone_up", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 1e13,
      AT(zone_up_us), .about = "Mean time that a zone has spot capacity; 0 for always." },
    { .name = "zone_down", .type = CONFIG_DURATION, .default_text = "10m", .min = 1, .max = 1e13,
      AT(zone_down_us), .about = "Mean time that it then has none." },
    { .name = "swap_space", .type = CONFIG_BYTES, .default_text = "0", .min = 0, .max = 1e14,
      AT(swap_space),
      .about = "Host memory of an instance for pages of preempted sessions; 0 for what the preset "
               "asks for." },
    { .name = "swap_rate", .type = CONFIG_BYTES, .default_text = "25GB", .min = 1e6, .max = 1e13,
      AT(swap_rate), .about = "Bytes a second between host and device." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .min = 1, .max = 1e12, AT(slo_ttft_us),
      .default_text = "1s", .about = "TTFT within which a request is good." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .min = 1, .max = 1e12, AT(slo_tpot_us),
      .default_text = "50ms", .about = "TPOT within which a request is good." },
    { .name = "overload", .type = CONFIG_ENUM, .default_text = "serve", AT(overload),
      .names = route_overload_names,
      .about = "While the fleet is overloaded, requests that no instance is expected to begin within "
               "--slo-ttft are served late or refused." },
    { .name = "routers", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = SIM_ROUTERS_MAX,
      AT(routers), .about = "Routers that share the requests, each with its own view." },
    { .name = "report_delay", .type = CONFIG_DURATION, .default_text = REPORT_PERIOD_TEXT,
      .min = 1000, .max = 1e10, AT(report_delay_us), .about = "Age of an engine's report when a router uses it." },
    { .name = "event_lag", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 1e10,
      AT(event_lag_us), .about = "Time that a block event takes to a router." },
    { .name = "link", .type = CONFIG_BYTES, .default_text = "25GB", .min = 1e6, .max = 1e13,
      AT(link_bytes_s), .about = "K and V that an instance's port carries in a second, each way." },
    { .name = "link_latency", .type = CONFIG_DURATION, .default_text = "500us", .min = 1,
      .max = 1e9, AT(link_us), .about = "Time before the first byte of a copy." },
    { .name = "seqs_max", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6,
      AT(seqs_max), .about = "Sequences an engine runs at once; 0 for its default." },
    { .name = "batch_tokens", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "tokens", AT(batch_tokens), .about = "Budget of a step; 0 for its default." },
    { .name = "kv_tokens", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e12,
      .unit = "tokens", AT(kv_tokens),
      .about = "KV that an instance holds; 0 for what its memory leaves." },
    { .name = "output_max", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "tokens", AT(output_max), .about = "An engine's limit on an output; 0 for 8,192." },
    { .name = "requests_max", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ROUTER_REQUESTS_MAX),
      .min = 1, .max = 1e8, .unit = "requests", AT(requests_max),
      .about = "Requests in a router at once; 429 beyond." },
    { .name = "held_max", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ROUTER_HELD_MAX),
      .min = 0, .max = 1e8, .unit = "requests", AT(held_max),
      .about = "Of them those that wait for an instance; 503 beyond." },
    { .name = "hold_max", .type = CONFIG_DURATION, .default_text = ROUTER_HOLD_TEXT, .min = 0,
      .max = 1e12, AT(hold_us_max), .about = "The longest a request waits for an instance." },
    { .name = "index_bytes", .type = CONFIG_BYTES, .default_text = ROUTER_INDEX_TEXT, .min = 65536,
      .max = 64e9, AT(index_bytes), .about = "Memory of a router's prefix index." },
    { .name = "max_waiting", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ENGINE_WAITING_MAX),
      .min = 1, .max = 1e8, .unit = "requests", AT(max_waiting),
      .about = "Requests that may wait in an engine; 429 beyond." },
    { .name = "bias", .type = CONFIG_FLOAT, .default_text = "0.05", .min = 0, .max = 2, AT(bias),
      .about = "Hidden speed of each instance about the model's: sigma of its logarithm." },
    { .name = "residual", .type = CONFIG_FLOAT, .default_text = "0.05", .min = 0, .max = 2,
      AT(residual), .about = "The same of each step." },
    { .name = "drain", .type = CONFIG_DURATION, .default_text = "1h", .min = 1, .max = 1e13,
      AT(drain_us), .about = "Time behind the last arrival; what is not done is unfinished." },
    { .name = "exact", .type = CONFIG_BOOL, .default_text = "false", AT(exact),
      .about = "Ask the queue of events before every step instead of skipping ahead; the digest is "
               "the same." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e15, AT(seed),
      .about = "Seed of the world, of chance in policies, and of a generated trace." },
    { .name = "seeds", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 1000, AT(seeds),
      .about = "Runs with so many seeds from --seed on: means with 95 % intervals." },
    { .name = "compare", .type = CONFIG_TEXTS, AT(compare),
      .about = "OPTION=A,B,C: an arm for each value, and their differences to the first on the "
               "same seeds. Given again for another option: every combination." },
    { .name = "jobs", .letter = 'j', .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 256,
      AT(jobs), .about = "Runs at once; 0 for one a core. Changes no result." },
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "table",
      .names = output_names, AT(output), .about = "Form of the report." },
};

// clang-format on
const struct config_record sim_options_record = CONFIG_RECORD_OF(struct sim_options, rows);
_Static_assert(SIM_INSTANCES_MAX == 4096, "as --fleet says");

void sim_option_flag(const char *name, char ret[SIM_FLAG_BYTES])
{
    size_t len = strlen(name);
    must(len < SIM_FLAG_BYTES);
    for (size_t i = 0; i <= len; i++)
        ret[i] = name[i] == '_' ? '-' : name[i];
}

const struct config_field *sim_option_field(const char *name)
{
    const struct config_field *f = rows;
    while (strcmp(f->name, name) != 0)
        must(++f < rows + COUNT_OF(rows));
    return f;
}

const void *sim_option_value(const struct sim_options *o, const struct config_field *f)
{
    return (const char *)o + f->offset;
}

bool sim_option_is_set(const struct sim_options *o, const char *name)
{
    return o->said[sim_option_field(name) - rows];
}

#define ROWS_MAX 64

struct names {
    const char *kind;
    const char *name[ROWS_MAX];
    size_t count;
};

static int collect(void *ctx, const struct policy_info *policy)
{
    struct names *n = ctx;
    if (strcmp(policy->kind, n->kind) == 0 && n->count < ROWS_MAX)
        n->name[n->count++] = policy->name;
    return 0;
}

int sim_no_policy(const char *option, const char *kind, struct str name, struct err *err)
{
    struct names n = { .kind = kind };
    policies_each(collect, &n);
    const char *near = str_nearest(name, n.name, n.count);
    if (near) {
        return err_set(err, -EINVAL, "--%s: no policy '" STR_FMT "', did you mean '%s'?", option,
                       STR_ARG(name), near);
    }
    return err_set(err, -EINVAL, "--%s: no policy '" STR_FMT "'; see `muster policies %s`", option,
                   STR_ARG(name), kind);
}

int sim_take_preset(struct str name, struct sim_config *c, struct err *err)
{
    c->preset = preset_find(name);
    if (!c->preset) return sim_no_policy("preset", "preset", name, err);
    if (str_eq(name, STR("ref"))) c->bias_sigma = c->residual_sigma = 0;
    return 0;
}

#define TP_MAX 64
#define STEP_PART_S_MAX 1000.0 /* of a measured step's coefficients */
#define PRICE_H_MAX 1e6

/* Reports unknown hardware and suggests the nearest name: one of the two that are not in the hardware table,
 * else one of the table. */
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

/* Reads "b=56e-6", a measured coefficient of a step in seconds. -EINVAL for other text. */
static int read_step(struct str text, struct sim_pool *pool, struct err *err)
{
    double *const coef[] = { &pool->step.step_s, &pool->step.prefill_token_s,
                             &pool->step.decode_seq_s, &pool->step.kv_read_s,
                             &pool->step.attend_s };
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

/* The kinds of suffixes; a pool has each at most once. A step's coefficients follow PART_STEP. */
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

/* Reads "8", "1-24" (the fleet begins with the least) or "1-8-24" (with 8). */
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
    while (rest.data) { /* an empty suffix after a last colon is read and refused */
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

/* Takes a price of the compiled-in list: "@list" is the cheapest offer, "@aws" the cheapest of a provider. */
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

static int sim_fleet_parse(struct str text, struct sim_config *ret,
                           struct sim_control_setup *control, struct err *err)
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

#define PICK(rows, kind, text)                                          \
    if (rc == 0 && (text).len > 0) {                                    \
        (rows)->kind = kind##_find(text);                               \
        if (!(rows)->kind) rc = sim_no_policy(#kind, #kind, text, err); \
    }

struct named_policies {
    struct str route, predict, fair, order, admit, preempt, chunk, evict;
};

static int pick_policies(const struct named_policies *n, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(c, route, n->route)
    PICK(c, predict, n->predict)
    PICK(&c->step, fair, n->fair)
    PICK(&c->step, order, n->order)
    PICK(&c->step, admit, n->admit)
    PICK(&c->step, preempt, n->preempt)
    PICK(&c->step, chunk, n->chunk)
    PICK(&c->step, evict, n->evict)
    return rc;
}

static int pick_fleet_rows(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(c, migrate, o->migrate)
    PICK(c, role, o->role)
    PICK(c, perf, o->perf)
    PICK(c, power, o->power)
    return rc;
}

/* Refuses a power limit without the policy that keeps it, and that policy without a limit: neither would
 * do anything. In a comparison the limit is for the arm that keeps it; a file's limit goes with the file's
 * own policy. */
static int check_power(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    bool keeps = c->power && strcmp(c->power->name, "polca") == 0;
    double said = o->power_limit_watts > 0 ? o->power_limit_watts : o->row_watts;
    if (o->row_watts > 0 && o->power_limit_watts > 0)
        return err_set(err, -EINVAL,
                       "--row-watts is the former name of --power-limit-watts: keep one");
    if (o->row_watts > 0)
        fputs("muster simulate: --row-watts is now --power-limit-watts; it is read in this release "
              "only\n",
              stderr);
    if (said > 0) c->power_limit_watts = said;
    if (!keeps && said <= 0 && o->compare.count == 0) c->power_limit_watts = 0;
    bool limited = c->power_limit_watts > 0;
    for (uint32_t p = 0; p < c->pool_count && !keeps && o->compare.count == 0; p++)
        if (c->pool[p].has_priority && c->pool[p].priority == PRIORITY_LOW)
            return err_set(err, -EINVAL,
                           "--fleet: ':low' needs --power polca, which alone tells it apart");
    if (keeps == limited || (limited && o->compare.count > 0)) return 0;
    return err_set(err, -EINVAL,
                   keeps ? "--power polca needs --power-limit-watts"
                         : "--power-limit-watts needs --power polca");
}

static int take_weights(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    struct str rest = o->tenant_weights;
    struct step_policies policies = c->step;
    preset_fill(c->preset, &policies);
    bool compared = o->compare.count > 0, shares = policies.fair->observe != NULL;
    if (rest.len > 0 && !shares && !compared)
        return err_set(err, -EINVAL,
                       "--tenant-weights needs --fair vtc or dlpm, which share by them");
    while (rest.len > 0) {
        struct str word = str_cut(&rest, ',');
        double weight;
        if (c->tenant_weight_count == SIM_TENANT_WEIGHTS_MAX)
            return err_set(err, -EINVAL, "--tenant-weights: at most %d", SIM_TENANT_WEIGHTS_MAX);
        if (str_to_f64(word, &weight) < 0 || weight < TENANT_WEIGHT_MIN ||
            weight > TENANT_WEIGHT_MAX)
            return err_set(err, -EINVAL,
                           "--tenant-weights: '" STR_FMT "' is not a number from %g to %g",
                           STR_ARG(word), TENANT_WEIGHT_MIN, TENANT_WEIGHT_MAX);
        c->tenant_weight[c->tenant_weight_count++] = weight;
    }
    return 0;
}

/* Returns true if the option's value is zero, which means no limit, size or spread. */
static bool is_nought(const struct sim_options *o, const struct config_field *f)
{
    const void *value = sim_option_value(o, f);
    return f->type == CONFIG_FLOAT ? *(const double *)value <= 0 : *(const int64_t *)value == 0;
}

/* Refuses options that have no effect on ref8000, which has no engine's step, no memory to share and no
 * chance. A text may have the value of the published setting (preset `ref`), and a number may be 0. */
static int check_reference(const struct sim_options *o, const struct sim_config *c, struct err *err)
{
    static const struct {
        const char *option, *allowed, *what;
    } none[] = {
        { "fair", "none", "decide" },      { "order", "fcfs", "decide" },
        { "tenant_weights", "", "share" }, { "admit", "all", "decide" },
        { "preempt", "newest", "decide" }, { "chunk", "whole", "decide" },
        { "evict", "lru", "decide" },      { "preset", "ref", "decide" },
        { "perf", "", "predict_length" },  { "power", "max", "decide" },
        { "migrate", "none", "move" },     { "swap_space", NULL, "hold" },
        { "swap_rate", NULL, "copy" },     { "seqs_max", NULL, "limit" },
        { "batch_tokens", NULL, "limit" }, { "kv_tokens", NULL, "limit" },
        { "output_max", NULL, "limit" },   { "max_waiting", NULL, "bound" },
        { "link", NULL, "copy" },          { "link_latency", NULL, "copy" },
        { "bias", NULL, "change" },        { "residual", NULL, "change" },
    };
    if (!sim_pool_is_serial(&c->pool[0])) return 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        if (c->pool[p].tp == 1 && c->pool[p].role == ROLE_BOTH && !c->pool[p].has_model) continue;
        return err_set(err, -EINVAL, "--fleet: ref8000 takes no tpN, no role and no model");
    }
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        if (!sim_option_is_set(o, none[i].option)) continue;
        const struct config_field *f = sim_option_field(none[i].option);
        if (f->type == CONFIG_TEXT &&
            str_eq(*(const struct str *)sim_option_value(o, f), str_from(none[i].allowed)))
            continue;
        if (f->type != CONFIG_TEXT && is_nought(o, f)) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(none[i].option, flag);
        return err_set(err, -EINVAL,
                       "ref8000 computes one prompt after another: --%s has nothing to %s there",
                       flag, none[i].what);
    }
    return 0;
}

static void take_bounds(const struct sim_options *o, struct sim_bounds *ret)
{
    if (sim_option_is_set(o, "requests_max")) ret->requests_max = (uint32_t)o->requests_max;
    if (sim_option_is_set(o, "held_max")) ret->held_max = (uint32_t)o->held_max;
    if (sim_option_is_set(o, "hold_max")) ret->hold_us_max = o->hold_us_max;
    if (sim_option_is_set(o, "index_bytes")) ret->index_bytes = (uint64_t)o->index_bytes;
    if (sim_option_is_set(o, "max_waiting")) ret->waiting_max = (uint32_t)o->max_waiting;
}

int sim_config_make(const struct sim_options *o, struct sim_config *ret,
                    struct sim_control_setup *control, struct err *err)
{
    struct sim_config c = {
        .seed = (uint64_t)o->seed,
        .exact = o->exact,
        .routers = (uint32_t)o->routers,
        .report_delay_us = o->report_delay_us,
        .event_lag_us = o->event_lag_us,
        .link_bytes_s = (double)o->link_bytes_s,
        .link_us = o->link_us,
        .kv_tokens = (uint64_t)o->kv_tokens,
        .output_max = (uint32_t)o->output_max,
        .bias_sigma = o->bias,
        .residual_sigma = o->residual,
        .slo_ttft_s = (double)o->slo_ttft_us / 1e6,
        .slo_tpot_s = (double)o->slo_tpot_us / 1e6,
        .refuse_late = o->overload == ROUTE_OVERLOAD_REFUSE,
        .drain_s = (double)o->drain_us / 1e6,
        .has_bounds = true,
        .bounds = sim_bounds_default,
    };
    struct named_policies names = { o->route, o->predict, o->fair,  o->order,
                                    o->admit, o->preempt, o->chunk, o->evict };
    int rc = model_file_find(o->model, &c.model, err);
    if (rc < 0) return err_prefix(err, rc, "--model");
    rc = sim_fleet_parse(o->fleet, &c, control, err);
    if (rc == 0 && o->config.len > 0) rc = sim_file_take(o->config.data, &c, err);
    if (sim_option_is_set(o, "link")) c.link_bytes_s = (double)o->link_bytes_s;
    if (rc == 0 && o->preset.len > 0) rc = sim_take_preset(o->preset, &c, err);
    if (rc == 0) rc = pick_policies(&names, &c, err);
    if (rc == 0) rc = pick_fleet_rows(o, &c, err);
    if (rc == 0) rc = check_reference(o, &c, err);
    if (rc == 0) rc = check_power(o, &c, err);
    if (rc == 0) rc = take_weights(o, &c, err);
    if (rc == 0) rc = sim_scaling_config(o, &c, control, err);
    if (rc < 0) return rc;
    take_bounds(o, &c.bounds);
    if (o->swap_space > 0) c.swap_bytes = (uint64_t)o->swap_space;
    c.swap_bps = (double)o->swap_rate;
    if (o->seqs_max > 0) c.seqs_max = (uint32_t)o->seqs_max;
    if (o->batch_tokens > 0) c.batch_tokens_max = (uint32_t)o->batch_tokens;
    *ret = c;
    return 0;
}
