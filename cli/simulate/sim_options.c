/* sim_options.c - the options of `muster simulate`, and policies by the names that people type. */
#include "cli/simulate/sim_options.h"

#include "fleet/defaults.h"
#include "policies/catalog.h"
#include "policies/route/overload.h"
#include "simulator/sim.h"
#include "simulator/trace.h"

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
    { .name = "row_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "W", AT(row_watts),
      .about = "What the breaker before all instances allows, for the power policy polca; 0: no limit." },
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
      .unit = "tokens", AT(output_max), .about = "An engine's limit on an answer; 0 for 8,192." },
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

static int collect(void *ctx, const struct policy_info *row)
{
    struct names *n = ctx;
    if (strcmp(row->kind, n->kind) == 0 && n->count < ROWS_MAX) n->name[n->count++] = row->name;
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
