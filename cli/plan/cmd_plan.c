/* cmd_plan.c - `muster plan`: choose the accelerators that a workload needs, and show their cost.
 *
 * The problem consists of the buckets of a trace and the types of a price list. */

#include "cli/plan/cmd_plan.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/cmd_offers.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/remote.h"
#include "policies/catalog.h"

#include <math.h>
#include <stdio.h>

#define STEPS 6         /* of each axis of buckets */
#define STEP_FIRST 64.0 /* tokens: the first bucket ends here, each ends at four times the last */
#define STEP_FACTOR 4.0
#define TP_MAX 8
#define SPOT_LEAD_S 120.0       /* launch to ready where nothing was measured yet */
#define SPOT_HAZARD_H (1 / 8.0) /* as HAZARD_PRIOR_H of policies/place/place.h */

static uint32_t step_of(double tokens)
{
    uint32_t i = 0;
    for (double end = STEP_FIRST; i + 1 < STEPS && tokens > end; end *= STEP_FACTOR)
        i++;
    return i;
}

void planner_trace(struct planner *p, const struct trace *trace, double rate_s)
{
    struct mix_bucket cell[STEPS * STEPS] = { { 0 } };
    struct trace_stats stats;
    trace_stats_get(trace, &stats);
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct trace_request *r = &trace->request[i];
        struct mix_bucket *c = &cell[step_of(r->prompt_tokens) * STEPS + step_of(r->output_tokens)];
        c->prompt_tokens += r->prompt_tokens;
        c->output_tokens += r->output_tokens;
        c->rate_s += 1;
    }
    double total = rate_s > 0 ? rate_s : stats.rate_s;
    p->mix.bucket_count = 0;
    for (uint32_t i = 0; i < COUNT_OF(cell); i++) {
        if (cell[i].rate_s <= 0) continue;
        p->mix.bucket[p->mix.bucket_count++] =
            (struct mix_bucket){ .prompt_tokens = cell[i].prompt_tokens / cell[i].rate_s,
                                 .output_tokens = cell[i].output_tokens / cell[i].rate_s,
                                 .rate_s = total * cell[i].rate_s / trace->count };
    }
    p->mean = (struct mix_bucket){ stats.prompt_mean, stats.output_mean, total };
}

_Static_assert(STEPS *STEPS <= MIX_BUCKETS_MAX, "buckets of a trace");

void planner_lengths(struct planner *p, double prompt_tokens, double output_tokens, double rate_s)
{
    p->mean = (struct mix_bucket){ prompt_tokens, output_tokens, rate_s };
    p->mix.bucket[0] = p->mean;
    p->mix.bucket_count = 1;
}

/* Chooses the parallelism with the most requests for its price; false when the model fits in none. */
static bool best_split(struct planner *p, uint32_t at, const struct price *price,
                       const struct model_spec *model)
{
    double best = 0;
    bool any = false;
    struct roofline kept;
    for (uint32_t tp = 1; tp <= TP_MAX; tp *= 2) {
        struct roofline *r = &p->fleet.type[at];
        if (!roofline_init(r, hardware_find(str_from(price->hardware)), model, tp)) continue;
        if (roofline_kv_tokens(r) == 0) continue;
        struct mix_score score;
        eval_score(&p->fleet, at, &p->mean, &score);
        if (any && score.rate_s / tp <= best) continue;
        any = true;
        best = score.rate_s / tp;
        kept = *r;
        p->type[at] = (struct planner_type){ price, tp, !r->validated, score.rate_s };
    }
    if (any) p->fleet.type[at] = kept;
    return any;
}

static bool is_wanted(const struct price *price, const struct str *only, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct hardware *h = hardware_find(only[i]);
        if (h && str_eq(str_from(h->name), str_from(price->hardware))) return true;
    }
    return count == 0;
}

static bool is_cheapest(const struct prices *prices, uint32_t at)
{
    const struct price *p = &prices->row[at];
    for (uint32_t i = 0; i < prices->count; i++) {
        const struct price *q = &prices->row[i];
        if (q->spot != p->spot || !str_eq(str_from(q->hardware), str_from(p->hardware))) continue;
        if (q->price_h < p->price_h || (i < at && q->price_h <= p->price_h)) return false;
    }
    return true;
}

int planner_types(struct planner *p, const struct prices *prices, const struct model_spec *model,
                  const struct str *only, size_t only_count, const struct planner_slo *slo,
                  struct err *err)
{
    struct mix_problem *m = &p->mix;
    p->fleet.slo_ttft_s = slo->slo_ttft_s;
    p->fleet.slo_tpot_s = slo->slo_tpot_s;
    m->budget_h = slo->budget_h;
    m->eval = eval_score;
    m->ctx = &p->fleet;
    m->type_count = 0;
    bool any = false;
    for (uint32_t i = 0; i < prices->count && m->type_count < MIX_TYPES_MAX; i++) {
        const struct price *price = &prices->row[i];
        if ((price->spot && !slo->spot) || !is_wanted(price, only, only_count)) continue;
        any = true;
        if (!is_cheapest(prices, i) || !best_split(p, m->type_count, price, model)) continue;
        m->type[m->type_count] =
            (struct mix_type){ .price_h = price->price_h * p->type[m->type_count].tp,
                               .max = SOLVER_COUNT_MAX,
                               .spot = price->spot,
                               .hazard_h = price->spot ? SPOT_HAZARD_H : 0,
                               .lead_s = SPOT_LEAD_S };
        m->type_count++;
    }
    if (!any)
        return err_set(err, -ENOENT, "the price list has no offer of what is asked for, %s",
                       slo->spot ? "spot or on demand" : "on demand");
    if (m->type_count == 0)
        return err_set(err, -ENOENT, "no accelerator of the price list holds %s", model->name);
    return 0;
}

void planner_ask(struct planner *p, const struct mix_policy *policy, struct mix_verdict *ret,
                 struct mix_verdict *ret_runner_up)
{
    policy->choose(&p->mix, &p->memory, ret);
    *ret_runner_up = (struct mix_verdict){ .why = "there is no answer to vary" };
    if (!ret->found) return;
    uint32_t most = 0;
    for (uint32_t t = 1; t < p->mix.type_count; t++)
        if (ret->count[t] * p->mix.type[t].price_h > ret->count[most] * p->mix.type[most].price_h)
            most = t;
    uint32_t max = p->mix.type[most].max;
    p->mix.type[most].max = 0;
    policy->choose(&p->mix, &p->memory, ret_runner_up);
    p->mix.type[most].max = max;
}

#define ROWS_MAX 8
#define PROMPT_TOKENS 1024 /* of a workload that is not described further */
#define OUTPUT_TOKENS 256

struct plan_options {
    struct str model, trace, mix, place, prices, clouds;
    double rate_s, prompt_tokens, output_tokens, budget_h;
    int64_t slo_ttft_us, slo_tpot_us;
    struct config_texts compare, hardware;
    bool spot, buy;
    int output;
};

#define AT(member) .offset = offsetof(struct plan_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .default_text = "llama-3-8b", AT(model),
      .about = "Shipped model, or a file with a model's shape, as ./my.spec (models/README.md)." },
    { .name = "trace", .letter = 't', .type = CONFIG_TEXT, AT(trace),
      .about = "Trace whose lengths and rate are planned for: Azure CSV, Mooncake or text JSONL." },
    { .name = "rate", .letter = 'r', .type = CONFIG_FLOAT, .default_text = "0", .min = 0,
      .max = 1e6, .unit = "requests a second", AT(rate_s),
      .about = "Rate to plan for; 0 for the trace's mean." },
    { .name = "prompt", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "tokens", AT(prompt_tokens),
      .about = "Mean prompt, without a trace; 0 for 1,024." },
    { .name = "answer", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "tokens", AT(output_tokens),
      .about = "Mean output, without a trace; 0 for 256." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .default_text = "1s", .min = 1000, .max = 36e8,
      AT(slo_ttft_us), .about = "SLO of the time to the first token." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .default_text = "50ms", .min = 100, .max = 36e8,
      AT(slo_tpot_us), .about = "SLO of the time for each further token." },
    { .name = "budget", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "dollars an hour", AT(budget_h), .about = "Ceiling; 0 for none. `joint` heeds it." },
    { .name = "mix", .type = CONFIG_TEXT, .default_text = MIX_DEFAULT, AT(mix),
      .about = "Policy that chooses; `muster policies mix` lists them." },
    { .name = "place", .letter = 'p', .type = CONFIG_TEXT, AT(place),
      .about = "Former name of --mix, read in this release for the last time." },
    { .name = "compare", .type = CONFIG_TEXTS, AT(compare), .max = ROWS_MAX,
      .about = "Policies to compare with it." },
    { .name = "hardware", .type = CONFIG_TEXTS, AT(hardware), .max = 32,
      .about = "Only these accelerators." },
    { .name = "spot", .type = CONFIG_BOOL, .default_text = "false", AT(spot),
      .about = "Offers that the provider may take away are asked too." },
    { .name = "prices", .type = CONFIG_TEXT, AT(prices),
      .about = "File of prices in place of the list that is compiled in." },
    { .name = "clouds", .type = CONFIG_TEXT, AT(clouds),
      .about = "Configuration whose clouds are asked for their prices now, in place of a list: what to buy where. Their "
               "offers need `hardware`." },
    { .name = "buy", .type = CONFIG_BOOL, .default_text = "false", AT(buy),
      .about = "With --clouds: what each of the providers would serve the work for alone, beside the choice among all." },
    REMOTE_OUTPUT_ROW(struct plan_options, output),
};

// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct plan_options, rows);

static const struct opt_command usage = {
    .name = "muster plan",
    .about = "Choose accelerators for a model and a workload at least cost within its SLO.",
    .options = &record,
    .notes =
        "Rates come from the performance model in closed form (policies/mix/eval.h) for nine\n"
        "requests in ten, prices from a dated list (`muster offers`). A plan is for a steady\n"
        "rate: `muster simulate` replays bursts over the fleet that it names.\n"
        "`muster plan layers` lays one model's layers on devices of several kinds; `muster plan "
        "move`\n"
        "maps the devices that a loss leaves to a new layout; `muster plan load` chooses the "
        "machine\n"
        "at which a model's weights are loaded.\n",
};

static int find_policy(const char *option, struct str name, const struct mix_policy **ret,
                       struct err *err)
{
    if (policy_check("mix", name, option, err) < 0) return COMMAND_MISUSED;
    *ret = mix_find(name);
    return 0;
}

static int check_hardware(const struct config_texts *names, struct err *err)
{
    for (size_t i = 0; i < names->count; i++) {
        if (hardware_find(names->items[i])) continue;
        hardware_unknown(names->items[i], err);
        return err_prefix(err, COMMAND_MISUSED, "--hardware");
    }
    return 0;
}

static int read_workload(const struct plan_options *o, struct planner *p, struct err *err)
{
    if (o->trace.len == 0) {
        if (o->rate_s <= 0) return err_set(err, COMMAND_MISUSED, "--trace or --rate is needed");
        planner_lengths(p, o->prompt_tokens > 0 ? fmax(1, o->prompt_tokens) : PROMPT_TOKENS,
                        o->output_tokens > 0 ? fmax(1, o->output_tokens) : OUTPUT_TOKENS,
                        o->rate_s);
        return 0;
    }
    if (o->prompt_tokens > 0 || o->output_tokens > 0)
        return err_set(err, COMMAND_MISUSED,
                       "--trace has its own lengths: leave out --prompt and "
                       "--answer");
    CLEANUP(trace_freep) struct trace *trace = NULL;
    int rc = trace_file_load(o->trace.data, TRACE_AUTO, &trace, err);
    if (rc < 0) return rc;
    if (o->rate_s <= 0 && trace->request[trace->count - 1].at_us == 0) {
        return err_set(err, COMMAND_MISUSED,
                       "--trace: all its requests come at once, which is "
                       "no rate to plan for: give one with --rate");
    }
    planner_trace(p, trace, o->rate_s);
    return 0;
}

/* ---- output ---- */

/* Returns what a million tokens of output cost, when the work comes at its mean rate. */
static double per_million(const struct planner *p, const struct mix_verdict *v)
{
    return v->cost_h / (p->mean.rate_s * v->served * p->mean.output_tokens * 3600) * 1e6;
}

static void put_mix(struct json_writer *w, const struct planner *p, const struct mix_verdict *v)
{
    json_object(w);
    json_kv_bool(w, "found", v->found);
    json_kv_bool(w, "proven", v->found && v->optimal);
    json_kv_text(w, "why", v->why);
    json_key(w, "cost_per_h");
    if (v->found)
        json_put_f64(w, v->cost_h);
    else
        json_put_null(w);
    json_kv_f64(w, "served", v->served);
    if (v->found && v->served > 0) json_kv_f64(w, "dollars_per_million_tokens", per_million(p, v));
    json_key(w, "types");
    json_array(w);
    for (uint32_t t = 0; v->found && t < p->mix.type_count; t++) {
        if (v->count[t] == 0) continue;
        const struct planner_type *type = &p->type[t];
        json_object(w);
        json_kv_u64(w, "count", v->count[t]);
        json_kv_text(w, "hardware", type->price->hardware);
        json_kv_u64(w, "tp", type->tp);
        json_kv_text(w, "provider", type->price->provider);
        json_kv_text(w, "source", type->price->source);
        json_kv_text(w, "purchase", type->price->spot ? "spot" : "on_demand");
        json_kv_f64(w, "price_per_h", p->mix.type[t].price_h);
        json_kv_f64(w, "rate_alone_rps", type->rate_alone);
        json_kv_bool(w, "extrapolated", type->extrapolated);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

static void say_mix(struct buf *out, const struct planner *p, const char *what,
                    const struct mix_verdict *v)
{
    buf_printf(out, "%-14s", what);
    if (!v->found) {
        buf_printf(out, "none: %s\n", v->why);
        return;
    }
    buf_printf(out, "$%.2f an hour", v->cost_h);
    if (v->served > 0) buf_printf(out, ", $%.2f a million tokens of output", per_million(p, v));
    if (v->served < 1) buf_printf(out, " for %.0f %% of the work", 100 * v->served);
    buf_printf(out, " (%s)\n", v->why);
    for (uint32_t t = 0; t < p->mix.type_count; t++) {
        if (v->count[t] == 0) continue;
        const struct planner_type *type = &p->type[t];
        buf_printf(out, "%14s%u x %s", "", v->count[t], type->price->hardware);
        if (type->tp > 1) buf_printf(out, ":tp%u", type->tp);
        buf_printf(out, " %s (%s) %s, $%.2f each, %.2f requests/s alone%s\n", type->price->provider,
                   type->price->source, type->price->spot ? "spot" : "on demand",
                   p->mix.type[t].price_h, type->rate_alone,
                   type->extrapolated ? ", extrapolated" : "");
    }
}

struct answers {
    const struct mix_policy *policy[ROWS_MAX + 1];
    struct mix_verdict verdict[ROWS_MAX + 1], runner_up, single;
    uint32_t count;
};

/* Without the end of the object. */
static void begin_json(const struct plan_options *o, const struct planner *p,
                       const struct answers *a, struct json_writer *out)
{
    struct json_writer w = *out;
    json_object(&w);
    json_kv_str(&w, "model", o->model);
    json_kv_f64(&w, "rate_rps", p->mean.rate_s);
    json_kv_f64(&w, "prompt_tokens_mean", p->mean.prompt_tokens);
    json_kv_f64(&w, "output_tokens_mean", p->mean.output_tokens);
    json_kv_u64(&w, "buckets", p->mix.bucket_count);
    json_kv_text(&w, "mix", a->policy[0]->name);
    json_kv_text(&w, "place", a->policy[0]->name); /* its former name, as --place */
    json_key(&w, "choice");
    put_mix(&w, p, &a->verdict[0]);
    json_key(&w, "runner_up");
    put_mix(&w, p, &a->runner_up);
    json_key(&w, "single_type");
    put_mix(&w, p, &a->single);
    json_key(&w, "compare");
    json_object(&w);
    for (uint32_t i = 1; i < a->count; i++) {
        json_key(&w, a->policy[i]->name);
        put_mix(&w, p, &a->verdict[i]);
    }
    json_object_end(&w);
    *out = w;
}

static void write_text(const struct plan_options *o, const struct planner *p,
                       const struct answers *a, struct buf *out)
{
    buf_printf(out, STR_FMT ": %.2f requests/s, mean prompt %.0f, mean output %.0f, %u buckets\n",
               STR_ARG(o->model), p->mean.rate_s, p->mean.prompt_tokens, p->mean.output_tokens,
               p->mix.bucket_count);
    for (uint32_t i = 0; i < a->count; i++)
        say_mix(out, p, a->policy[i]->name, &a->verdict[i]);
    say_mix(out, p, "runner-up", &a->runner_up);
    say_mix(out, p, "single type", &a->single);
}

static int ask(const struct plan_options *o, struct planner *p, struct answers *a, struct err *err)
{
    bool old = o->place.len > 0;
    if (old) fputs("muster plan: --place is now --mix; it is read in this release only\n", stderr);
    int rc = find_policy(old ? "--place" : "--mix", old ? o->place : o->mix, &a->policy[a->count++],
                         err);
    for (size_t i = 0; i < o->compare.count && rc == 0; i++)
        rc = find_policy("--compare", o->compare.items[i], &a->policy[a->count++], err);
    if (rc < 0) return rc;
    struct mix_verdict unused;
    for (uint32_t i = 0; i < a->count; i++)
        planner_ask(p, a->policy[i], &a->verdict[i], i == 0 ? &a->runner_up : &unused);
    mix_single_type.choose(&p->mix, &p->memory, &a->single);
    return 0;
}

static bool is_first_of_provider(const struct prices *prices, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(prices->row[i].provider, prices->row[at].provider) == 0) return false;
    return true;
}

/* Asks the policy for each provider as if there were no other, writes what it says, and leaves the planner with the
 * types of the last one. */
static void say_each_provider(const struct plan_options *o, struct planner *p,
                              const struct prices *prices, const struct model_spec *model,
                              const struct planner_slo *slo, const struct mix_policy *policy,
                              struct json_writer *json, struct buf *text)
{
    static struct prices own; /* large: one a process */
    if (json) {
        json_key(json, "providers");
        json_object(json);
    }
    for (uint32_t i = 0; i < prices->count; i++) {
        struct mix_verdict v = { 0 }, unused;
        struct err err = { 0 };
        char label[PRICE_NAME_MAX + 16];
        if (!is_first_of_provider(prices, i)) continue;
        own.count = 0;
        for (uint32_t k = i; k < prices->count; k++)
            if (strcmp(prices->row[k].provider, prices->row[i].provider) == 0)
                own.row[own.count++] = prices->row[k];
        int rc = planner_types(p, &own, model, o->hardware.items, o->hardware.count, slo, &err);
        if (rc == 0) planner_ask(p, policy, &v, &unused);
        if (rc < 0) v.why = err.text;
        snprintf(label, sizeof label, "%s alone", prices->row[i].provider);
        if (json) {
            json_key(json, prices->row[i].provider);
            put_mix(json, p, &v);
        } else {
            say_mix(text, p, label, &v);
        }
    }
    if (json) json_object_end(json);
}

static int plan_fleet(const void *options, struct err *err)
{
    const struct plan_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static struct planner planner; /* large: one a process */
    static struct prices prices;
    struct answers answers = { 0 };
    struct model_spec model;
    int rc = model_file_find(o->model, &model, err);
    if (rc < 0) return err_prefix(err, rc == -EINVAL ? COMMAND_MISUSED : rc, "--model");
    rc = check_hardware(&o->hardware, err);
    if (rc == 0 && o->clouds.len > 0 && o->prices.len > 0)
        rc = err_set(err, COMMAND_MISUSED, "--clouds: not with --prices");
    if (rc == 0 && o->buy && o->clouds.len == 0)
        rc = err_set(err, COMMAND_MISUSED, "--buy: needs --clouds FILE, whose providers are asked");
    if (rc == 0)
        rc = o->clouds.len > 0 ? offers_ask_prices(o->clouds, &prices, err)
                               : offers_load(o->prices, &prices, err);
    if (rc == 0) rc = read_workload(o, &planner, err);
    if (rc < 0) return rc;
    struct planner_slo slo = { (double)o->slo_ttft_us / 1e6, (double)o->slo_tpot_us / 1e6,
                               o->budget_h, o->spot };
    rc = planner_types(&planner, &prices, &model, o->hardware.items, o->hardware.count, &slo, err);
    if (rc == 0) rc = ask(o, &planner, &answers, err);
    if (rc < 0) return rc;
    struct json_writer json;
    bool as_json = o->output == REMOTE_JSON;
    json_writer_init(&json, &out);
    if (as_json)
        begin_json(o, &planner, &answers, &json);
    else
        write_text(o, &planner, &answers, &out);
    if (o->buy)
        say_each_provider(o, &planner, &prices, &model, &slo, answers.policy[0],
                          as_json ? &json : NULL, &out);
    if (as_json) {
        json_object_end(&json);
        buf_byte(&out, '\n');
    }
    rc = command_print(&out, err);
    if (rc < 0) return rc;
    const struct mix_verdict *chosen = &answers.verdict[0];
    return chosen->found && chosen->served > 0 ? 0 : EXIT_FAILED;
}

static const char *const below[] = { "layers", "move", "load", NULL };
static int (*const below_run[])(int argc, char *const *argv) = { plan_layers_run, plan_move_run,
                                                                 plan_load_run };

static int run(int argc, char *const *argv)
{
    struct plan_options options;
    for (size_t i = 0; argc > 0 && i < COUNT_OF(below_run); i++)
        if (str_eq(str_from(argv[0]), str_from(below[i]))) return below_run[i](argc - 1, argv + 1);
    return command_run(&usage, argc, argv, &options, plan_fleet);
}

const struct command command_plan = {
    .name = "plan",
    .group = "Measure",
    .about = "which accelerators a workload needs, and what they cost",
    .below = below,
    .run = run,
};

/* The policies that a command compares, by the names that users type, and their results as JSON. */

static void put(const char *const *name, uint32_t at, struct plan_policies *policies)
{
    policies->name[policies->count] = name[at];
    policies->at[policies->count++] = at;
}

static int add(const char *kind, struct str name, const char *option,
               struct plan_policies *policies, struct err *err)
{
    const char *names[POLICY_NAMES_MAX];
    uint32_t count = policy_names(kind, names);
    if (policy_check(kind, name, option, err) < 0) return COMMAND_MISUSED;
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(name, str_from(names[i]))) put(names, i, policies);
    return 0;
}

int plan_policies_find(const char *kind, struct str policy, struct str row,
                       const struct config_texts *compare, struct plan_policies *ret,
                       struct err *err)
{
    must(compare->count <= PLAN_COMPARE_MAX); /* the options say so */
    struct plan_policies policies = { 0 };
    bool old = row.len > 0;
    if (old) fputs("muster plan: --row is now --policy; it is read in this release only\n", stderr);
    int rc = add(kind, old ? row : policy, old ? "--row" : "--policy", &policies, err);
    for (size_t i = 0; i < compare->count && rc == 0; i++)
        rc = add(kind, compare->items[i], "--compare", &policies, err);
    if (rc == 0) *ret = policies;
    return rc;
}

void plan_policies_others(const char *kind, struct plan_policies *policies)
{
    const char *names[POLICY_NAMES_MAX];
    uint32_t count = policy_names(kind, names), chosen = policies->at[0];
    for (uint32_t i = 0; i < count && policies->count < PLAN_POLICIES_MAX; i++)
        if (i != chosen) put(names, i, policies);
}

void plan_policies_json(struct json_writer *w, const struct plan_policies *policies,
                        void (*put_answer)(struct json_writer *w, const void *ctx, uint32_t i),
                        const void *ctx)
{
    json_kv_text(w, "policy", policies->name[0]);
    json_kv_text(w, "row", policies->name[0]); /* its former name */
    json_key(w, "choice");
    put_answer(w, ctx, 0);
    json_key(w, "compare");
    json_object(w);
    for (uint32_t i = 1; i < policies->count; i++) {
        json_key(w, policies->name[i]);
        put_answer(w, ctx, i);
    }
    json_object_end(w);
}
