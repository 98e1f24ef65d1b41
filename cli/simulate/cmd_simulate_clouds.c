/* cmd_simulate_clouds.c - `muster simulate clouds`: what a service costs on three providers' spot markets, and how
 * often it has what it needs, by strategy.
 *
 * Each strategy is a run of the controller over the same markets (clouds_world.h): all that is sold, each provider
 * alone, each type of GPU alone, on demand alone. Costs are held against a clairvoyant that may buy everything. */
#include "cli/simulate/cmd_simulate_clouds.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/simulate/clouds_world.h"
#include "cli/table.h"
#include "policies/catalog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STRATEGIES_MAX (2 + MARKET_PROVIDERS + MARKET_POOLS)
#define SCALE_AWAKE "static" /* the mix policy counts; this one says that anything runs at all */

struct clouds_options {
    int64_t seed, seeds, days;
    double peak_s, margin, budget_h;
    struct str place, mix;
    bool brief;
    int output;
};

// clang-format off
#define AT(member) .offset = offsetof(struct clouds_options, member)
static const struct config_field rows[] = {
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e9, AT(seed),
      .about = "Seed of the first market." },
    { .name = "seeds", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 10000, AT(seeds),
      .about = "Markets, one after the other; figures are of all of them together." },
    { .name = "days", .letter = 'd', .type = CONFIG_INT, .default_text = "7", .min = 1, .max = MARKET_DAYS_MAX,
      AT(days), .about = "Days of each." },
    { .name = "peak", .type = CONFIG_FLOAT, .default_text = "200", .min = 1, .max = 600, .unit = "requests/s",
      AT(peak_s), .about = "Requests a second at the usual peak; llama-3-8b, Azure's mean lengths." },
    { .name = "margin", .type = CONFIG_FLOAT, .default_text = "1.03", .min = 1, .max = 3, AT(margin),
      .about = "The measured load is multiplied by it, as services[].margin." },
    { .name = "budget", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e6, .unit = "dollars/h",
      AT(budget_h), .about = "Ceiling of the service; 0: none." },
    { .name = "place", .type = CONFIG_TEXT, .default_text = PLACE_DEFAULT, AT(place),
      .about = "Policy that chooses among zones; `muster policies place` lists them." },
    { .name = "mix", .type = CONFIG_TEXT, .default_text = MIX_DEFAULT, AT(mix),
      .about = "Policy that chooses among types and providers; `muster policies mix` lists them." },
    { .name = "brief", .type = CONFIG_BOOL, .default_text = "false", AT(brief),
      .about = "Only the first strategy: everything that is sold." },
    REMOTE_OUTPUT_ROW(struct clouds_options, output),
};

static const struct table_column columns[] = {
    { "STRATEGY", "strategy", TABLE_TEXT },   { "AVAILABLE", "available", TABLE_FACTOR },
    { "SERVED", "served", TABLE_FACTOR },     { "$/H", "cost_per_h", TABLE_MONEY },
    { "RATIO", "ratio", TABLE_FACTOR },       { "OWN RATIO", "own_ratio", TABLE_FACTOR },
    { "LAUNCHES", "launches", TABLE_COUNT },  { "LOST", "lost", TABLE_COUNT },
    { "REFUSED", "refused", TABLE_COUNT },    { "RULES", "rules_broken", TABLE_COUNT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct clouds_options, rows);

static const struct opt_command usage = {
    .name = "muster simulate clouds",
    .about = "Run the controller over generated spot markets of three providers and five types of "
             "GPU, and compare strategies.",
    .options = &record,
    .notes =
        "AVAILABLE is the share of time with as much ready capacity as is needed, SERVED the "
        "share\n"
        "of requests. RATIO is the cost over that of a clairvoyant that may buy everything and "
        "pays\n"
        "start-up; OWN RATIO, over one that may buy what the strategy may. docs/simulator.md says\n"
        "what is modelled, and from which sources.\n",
};

struct strategy {
    char name[NAME_BYTES];
    bool pool[MARKET_POOLS];
    bool no_spot;
    struct clouds_result sum;
    double least, least_own; /* dollars of the two clairvoyants */
};

static uint32_t fill_strategies(const struct clouds_options *o, struct strategy *ret)
{
    uint32_t count = 0;
    struct strategy *s = &ret[count++];
    snprintf(s->name, sizeof s->name, "everything");
    for (uint32_t k = 0; k < MARKET_POOLS; k++)
        s->pool[k] = true;
    if (o->brief) return count;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        s = &ret[count++];
        snprintf(s->name, sizeof s->name, "%s alone", market_provider[p].name);
        for (uint32_t k = 0; k < MARKET_POOLS; k++)
            s->pool[k] = market_pool[k].provider == p;
    }
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        bool known = false;
        for (uint32_t j = 0; j < k; j++)
            known |= strcmp(market_pool[j].hardware, market_pool[k].hardware) == 0;
        if (known) continue;
        s = &ret[count++];
        snprintf(s->name, sizeof s->name, "%s alone", market_pool[k].hardware);
        for (uint32_t j = 0; j < MARKET_POOLS; j++)
            s->pool[j] = strcmp(market_pool[j].hardware, market_pool[k].hardware) == 0;
    }
    s = &ret[count++];
    *s = ret[0];
    snprintf(s->name, sizeof s->name, "on demand alone");
    s->no_spot = true;
    return count;
}

static void add(struct clouds_result *sum, const struct clouds_result *r)
{
    sum->hours += r->hours;
    sum->short_h += r->short_h;
    sum->requests += r->requests;
    sum->unserved += r->unserved;
    sum->could_serve += r->could_serve;
    sum->cost += r->cost;
    sum->cost_h_most = fmax(sum->cost_h_most, r->cost_h_most);
    sum->launches += r->launches;
    sum->lost += r->lost;
    sum->refused += r->refused;
    sum->spot_h += r->spot_h;
    sum->on_demand_h += r->on_demand_h;
    sum->ticks += r->ticks;
    sum->doubled += r->doubled;
    sum->orphans += r->orphans;
    sum->over_budget += r->over_budget;
    sum->too_soon += r->too_soon;
    if (!sum->broken[0]) memcpy(sum->broken, r->broken, sizeof sum->broken);
}

static int run_one(const struct clouds_options *o, const struct market *m,
                   const struct market_need *need, uint64_t seed, struct strategy *s,
                   struct err *err)
{
    struct clouds_seller sellers[MARKET_PROVIDERS];
    struct clouds_shops *shops;
    int rc = clouds_shops_new(m, &shops, sellers, err);
    if (rc < 0) return rc;
    struct clouds_setup setup = { .seed = seed,
                                  .days = (uint32_t)o->days,
                                  .market = m,
                                  .need = need,
                                  .seller = sellers,
                                  .no_spot = s->no_spot,
                                  .budget_h = o->budget_h,
                                  .place = place_find(o->place),
                                  .mix = mix_find(o->mix),
                                  .scale = scale_find(STR(SCALE_AWAKE)),
                                  .margin = o->margin };
    struct market_choice own = { .no_spot = s->no_spot }, all = { 0 };
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        setup.pool[k] = s->pool[k];
        all.rate_s[k] = clouds_rate_s(k);
        own.rate_s[k] = s->pool[k] ? all.rate_s[k] : 0;
    }
    struct clouds_result r;
    rc = clouds_run(&setup, &r, err);
    r.refused = clouds_shops_refused(shops);
    clouds_shops_free(shops);
    if (rc < 0) return rc;
    add(&s->sum, &r);
    s->least += market_clairvoyant(m, need, &all);
    s->least_own += market_clairvoyant(m, need, &own);
    return 0;
}

static int run_seed(const struct clouds_options *o, uint64_t seed, struct strategy *s,
                    uint32_t count, struct err *err)
{
    struct market *m = market_new(seed, (uint32_t)o->days);
    struct market_need need = { 0 };
    int rc = m && market_need_init(&need, seed, (uint32_t)o->days, o->peak_s)
                 ? 0
                 : err_set(err, -ENOMEM, "no memory for a market");
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = run_one(o, m, &need, seed, &s[i], err);
    market_need_fini(&need);
    market_free(m);
    return rc;
}

static void put_strategy(struct json_writer *w, const struct strategy *s)
{
    const struct clouds_result *r = &s->sum;
    json_object(w);
    json_kv_text(w, "strategy", s->name);
    json_kv_f64(w, "available", 100 * (1 - r->short_h / r->hours));
    json_kv_f64(w, "served", 100 * (1 - r->unserved / r->requests));
    json_kv_f64(w, "cost_per_h", r->cost / r->hours);
    json_kv_f64(w, "cost_per_h_max", r->cost_h_most);
    json_kv_f64(w, "ratio", r->cost / s->least);
    json_kv_f64(w, "own_ratio", r->cost / s->least_own);
    json_kv_f64(w, "capacity_over_need", r->could_serve / r->requests);
    json_kv_f64(w, "instances_mean", (r->spot_h + r->on_demand_h) / r->hours);
    json_kv_f64(w, "spot_share", r->spot_h / fmax(r->spot_h + r->on_demand_h, 1e-9));
    json_kv_u64(w, "launches", r->launches);
    json_kv_u64(w, "lost", r->lost);
    json_kv_u64(w, "refused", r->refused);
    json_kv_u64(w, "ticks", r->ticks);
    json_kv_u64(w, "rules_broken", r->doubled + r->orphans + r->over_budget + r->too_soon);
    json_kv_text(w, "rule", r->broken);
    json_object_end(w);
}

static int print(const struct clouds_options *o, const struct strategy *s, uint32_t count,
                 struct err *err)
{
    CLEANUP(buf_fini) struct buf list = { 0 }, out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &list);
    json_array(&w);
    for (uint32_t i = 0; i < count; i++)
        put_strategy(&w, &s[i]);
    json_array_end(&w);
    int rc = list.rc;
    if (rc == 0 && o->output == REMOTE_JSON) {
        buf_printf(&out, "{\"seed\":%lld,\"seeds\":%lld,\"days\":%lld,\"strategies\":",
                   (long long)o->seed, (long long)o->seeds, (long long)o->days);
        buf_str(&out, buf_view(&list));
        buf_text(&out, "}\n");
        rc = out.rc;
    } else if (rc == 0) {
        const struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
        rc = table_print(&t, buf_view(&list), &out);
    }
    return rc < 0 ? err_set(err, rc, "no memory for the report") : command_print(&out, err);
}

static int simulate(const void *options, struct err *err)
{
    const struct clouds_options *o = options;
    struct strategy s[STRATEGIES_MAX];
    if (policy_check("place", o->place, "--place", err) < 0 ||
        policy_check("mix", o->mix, "--mix", err) < 0)
        return COMMAND_MISUSED;
    memset(s, 0, sizeof s);
    log_set_level(LOG_ERROR); /* what providers refuse is counted below */
    uint32_t count = fill_strategies(o, s);
    for (int64_t k = 0; k < o->seeds; k++) {
        int rc = run_seed(o, (uint64_t)(o->seed + k), s, count, err);
        if (rc < 0) return rc;
    }
    return print(o, s, count, err);
}

int simulate_clouds_run(int argc, char *const *argv)
{
    struct clouds_options options;
    return command_run(&usage, argc, argv, &options, simulate);
}
