/* sim_options.c - rows of `muster simulate`; a flag beats the preset, the preset beats --config. */
#include "cli/sim_options.h"

#include "base/io/config_value.h"
#include "cli/model_file.h"
#include "policies/catalog.h"

#define ROWS_MAX 64

static const char *const output_names[] = { "table", "json", NULL };
static const char *const format_names[] = { "auto", "azure", "mooncake", "text", NULL };
_Static_assert(COUNT_OF(format_names) == TRACE_FORMAT_COUNT + 1, "as trace_format_names");

#define AT(member) .offset = offsetof(struct sim_options, member)
#define ROW_OPTION(kind)                                                     \
    {                                                                        \
        .name = #kind, .type = CONFIG_TEXT, AT(kind),                        \
        .about = "Row of this kind; `muster policies " #kind "` lists them." \
    }

// clang-format off
static const struct config_field rows[] = {
    { .name = "trace", .letter = 't', .type = CONFIG_TEXT, .required = true, AT(trace),
      .about = "Trace to replay: Azure CSV, Mooncake or text JSONL, or gen:... (below)." },
    { .name = "format", .type = CONFIG_ENUM, .default_text = "auto", .names = format_names,
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
      .about = "Instances, at most 256: COUNTxHARDWARE[:SUFFIX...][@DOLLARS_AN_HOUR|@list|@PROVIDER], "
               "joined by commas; hardware is listed below, suffixes are tpN, prefill, decode, spot, "
               "zoneN, serviceN and a model's name; ref8000 is the serial reference, "
               "measured:a=S:b=S:c=S:d=S:e=S a machine by its step: seconds fixed, of a prompt token, "
               "a sequence, a token read, a token attended to." },
    { .name = "config", .letter = 'c', .type = CONFIG_TEXT, AT(config),
      .about = "muster.yaml whose rows of router and engines, and limits of engines that it says, are "
               "taken where no flag says another. The rest is left, and named." },
    { .name = "preset", .type = CONFIG_TEXT, AT(preset),
      .about = "A row of each kind of the engine's step; `muster policies preset` lists them, `ref` "
               "is the setting of published routing comparisons." },
    ROW_OPTION(route), ROW_OPTION(predict), ROW_OPTION(fair), ROW_OPTION(order),
    ROW_OPTION(admit), ROW_OPTION(preempt), ROW_OPTION(chunk), ROW_OPTION(evict),
    ROW_OPTION(migrate),
    { .name = "role", .type = CONFIG_TEXT, AT(role),
      .about = "Row that gives instances their roles as demand is seen; without it they keep those "
               "of --fleet. `muster policies role` lists them." },
    ROW_OPTION(perf), ROW_OPTION(power),
    { .name = "row_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "W", AT(row_watts),
      .about = "What the breaker before all instances allows, for the power row polca; 0: no limit." },
    { .name = "scale_policy", .type = CONFIG_TEXT, AT(scale_policy),
      .about = "The fleet follows its demand by this row, or by `clairvoyant`, a bound; pools that "
               "scale are written 1-24xl4, or 1-8-24xl4 to begin with 8." },
    { .name = "forecast", .type = CONFIG_TEXT, AT(forecast),
      .about = "What the scaling rows dynamo_throughput and sageserve forecast with; `muster policies "
               "forecast` lists them." },
    { .name = "shaper", .type = CONFIG_TEXT, AT(shaper),
      .about = "Shaper behind the scaling row; without it the one it is published with." },
    { .name = "scale_margin", .type = CONFIG_FLOAT, .default_text = "1", .min = 0.01, .max = 100,
      AT(scale_margin), .about = "The scaling row's measured load is multiplied by this." },
    { .name = "scale_count", .type = CONFIG_INT, .default_text = "1", .min = 0,
      .max = SIM_INSTANCES_MAX, .unit = "instances", AT(scale_count),
      .about = "What the scaling row `static` keeps." },
    { .name = "place", .type = CONFIG_TEXT, AT(place),
      .about = "Row that chooses among pools; `muster policies place` lists them." },
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
    { .name = "routers", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = SIM_ROUTERS_MAX,
      AT(routers), .about = "Routers that share the requests, each with its own view." },
    { .name = "report_delay", .type = CONFIG_DURATION, .default_text = "1s", .min = 1000, .max = 1e10,
      AT(report_delay_us), .about = "Age of an engine's report when a router uses it." },
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

_Static_assert(SIM_INSTANCES_MAX == 256, "as --fleet says");

void sim_option_flag(const char *name, char ret[SIM_FLAG_BYTES])
{
    size_t len = strlen(name);
    must(len < SIM_FLAG_BYTES);
    for (size_t i = 0; i <= len; i++)
        ret[i] = name[i] == '_' ? '-' : name[i];
}

static const struct config_field *field_of(const char *name)
{
    const struct config_field *f = rows;
    while (strcmp(f->name, name) != 0)
        must(++f < rows + COUNT_OF(rows));
    return f;
}

static const void *at(const struct sim_options *o, const struct config_field *f)
{
    return (const char *)o + f->offset;
}

bool sim_option_is_set(const struct sim_options *o, const char *name)
{
    const struct config_field *f = field_of(name);
    const void *value = at(o, f);
    if (f->type == CONFIG_TEXT) return ((const struct str *)value)->len > 0;
    must(f->type == CONFIG_INT || f->type == CONFIG_FLOAT || f->type == CONFIG_DURATION ||
         f->type == CONFIG_BYTES);
    int64_t usual; /* or a double: of the same size */
    config_value_default(f, NULL, &usual);
    return memcmp(value, &usual, sizeof usual) != 0;
}

/* An option that is given says something: without a word it would be its default, silently. */
static int check_said(const struct sim_options *o, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const void *value = at(o, &rows[i]);
        const struct str *text = value;
        const struct config_texts *list = value;
        bool empty = rows[i].type == CONFIG_TEXT    ? text->data && text->len == 0
                     : rows[i].type == CONFIG_TEXTS ? list->items && list->count == 0
                                                    : false;
        if (!empty) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(rows[i].name, flag);
        return err_set(err, -EINVAL, "--%s is empty: give it a value or leave it out", flag);
    }
    return 0;
}

/* ---- rows by name ---------------------------------------------------------------------------- */

struct names {
    const char *kind;
    const char *name[ROWS_MAX];
    size_t count;
};

static int collect(void *ctx, const struct policy_row *row)
{
    struct names *n = ctx;
    if (strcmp(row->kind, n->kind) == 0 && n->count < ROWS_MAX) n->name[n->count++] = row->name;
    return 0;
}

int sim_no_row(const char *option, const char *kind, struct str name, struct err *err)
{
    struct names n = { .kind = kind };
    policies_each(collect, &n);
    const char *near = str_nearest(name, n.name, n.count);
    if (near) {
        return err_set(err, -EINVAL, "--%s: no row '" STR_FMT "', did you mean '%s'?", option,
                       STR_ARG(name), near);
    }
    return err_set(err, -EINVAL, "--%s: no row '" STR_FMT "'; see `muster policies %s`", option,
                   STR_ARG(name), kind);
}

#define PICK(kind, text)                                        \
    if (rc == 0 && (text).len > 0) {                            \
        c->kind = kind##_find(text);                            \
        if (!c->kind) rc = sim_no_row(#kind, #kind, text, err); \
    }

struct row_names {
    struct str route, predict, fair, order, admit, preempt, chunk, evict;
};

static int pick_rows(const struct row_names *n, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(route, n->route)
    PICK(predict, n->predict)
    PICK(fair, n->fair)
    PICK(order, n->order)
    PICK(admit, n->admit)
    PICK(preempt, n->preempt)
    PICK(chunk, n->chunk)
    PICK(evict, n->evict)
    return rc;
}

static int pick_fleet_rows(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(migrate, o->migrate)
    PICK(role, o->role)
    PICK(perf, o->perf)
    PICK(power, o->power)
    return rc;
}

/* A limit that nobody keeps, and a keeper without a limit, would do nothing. Where rows are compared
 * the limit is for the arm that keeps it. */
static int check_power(const struct sim_options *o, const struct sim_config *c, struct err *err)
{
    bool keeps = c->power && strcmp(c->power->name, "polca") == 0;
    bool limited = o->row_watts > 0;
    if (keeps == limited || (limited && o->compare.count > 0)) return 0;
    return err_set(err, -EINVAL,
                   keeps ? "--power polca needs --row-watts" : "--row-watts needs --power polca");
}

/* ref8000 has no engine's step, no memory to share and no chance: what decides of them is refused,
 * except where it says what the preset of its published setting says. */
static int check_reference(const struct sim_options *o, const struct sim_config *c, struct err *err)
{
    static const struct {
        const char *option, *allowed, *what;
    } none[] = {
        { "fair", "none", "decide" },   { "order", "fcfs", "decide" },
        { "admit", "all", "decide" },   { "preempt", "newest", "decide" },
        { "chunk", "whole", "decide" }, { "evict", "lru", "decide" },
        { "preset", "ref", "decide" },  { "perf", "", "foretell" },
        { "power", "max", "decide" },   { "migrate", "none", "move" },
        { "swap_space", NULL, "hold" }, { "swap_rate", NULL, "copy" },
        { "seqs_max", NULL, "limit" },  { "batch_tokens", NULL, "limit" },
        { "kv_tokens", NULL, "limit" }, { "output_max", NULL, "limit" },
        { "link", NULL, "copy" },       { "link_latency", NULL, "copy" },
        { "bias", NULL, "change" },     { "residual", NULL, "change" },
    };
    if (!sim_pool_is_serial(&c->pool[0])) return 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        if (c->pool[p].tp == 1 && c->pool[p].role == ROLE_BOTH && !c->pool[p].has_model) continue;
        return err_set(err, -EINVAL, "--fleet: ref8000 takes no tpN, no role and no model");
    }
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        if (!sim_option_is_set(o, none[i].option)) continue;
        const struct config_field *f = field_of(none[i].option);
        if (f->type == CONFIG_TEXT &&
            str_eq(*(const struct str *)at(o, f), str_from(none[i].allowed)))
            continue;
        if (f->type == CONFIG_FLOAT && *(const double *)at(o, f) <= 0) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(none[i].option, flag);
        return err_set(err, -EINVAL,
                       "ref8000 computes one prompt after another: --%s has nothing to %s there",
                       flag, none[i].what);
    }
    return 0;
}

int sim_take_preset(struct str name, struct sim_config *c, struct err *err)
{
    c->preset = preset_find(name);
    if (!c->preset) return sim_no_row("preset", "preset", name, err);
    if (str_eq(name, STR("ref"))) c->bias_sigma = c->residual_sigma = 0;
    return 0;
}

int sim_options_config(const struct sim_options *o, struct sim_config *ret,
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
        .drain_s = (double)o->drain_us / 1e6,
        .row_watts_max = o->row_watts,
    };
    struct row_names names = { o->route, o->predict, o->fair,  o->order,
                               o->admit, o->preempt, o->chunk, o->evict };
    int rc = check_said(o, err);
    if (rc < 0) return rc;
    rc = model_file_find(o->model, &c.model, err);
    if (rc < 0) return err_prefix(err, rc, "--model");
    rc = sim_fleet_parse(o->fleet, &c, control, err);
    if (rc == 0 && o->config.len > 0) rc = sim_file_take(o->config.data, &c, err);
    if (rc == 0 && o->preset.len > 0) rc = sim_take_preset(o->preset, &c, err);
    if (rc == 0) rc = pick_rows(&names, &c, err);
    if (rc == 0) rc = pick_fleet_rows(o, &c, err);
    if (rc == 0) rc = check_reference(o, &c, err);
    if (rc == 0) rc = check_power(o, &c, err);
    if (rc == 0) rc = sim_scaling_config(o, &c, control, err);
    if (rc < 0) return rc;
    if (o->swap_space > 0) c.swap_bytes = (uint64_t)o->swap_space;
    c.swap_bps = (double)o->swap_rate;
    if (o->seqs_max > 0) c.seqs_max = (uint32_t)o->seqs_max;
    if (o->batch_tokens > 0) c.batch_tokens_max = (uint32_t)o->batch_tokens;
    *ret = c;
    return 0;
}
