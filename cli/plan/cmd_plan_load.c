/* cmd_plan_load.c - `muster plan load`: choose the machine at which a model's weights are loaded.
 *
 * Each machine has a queue of loads, and keeps the models used last in memory and on disk. Its loads run
 * one after the other, so the end of each is known when it is queued. The queue holds the loads that have
 * not ended; the running one counts without the bytes that it has read. */

#include "cli/plan/cmd_plan_load.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/plan/cmd_plan.h"
#include "cli/remote.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PURPOSE_REQUESTS 1 /* the random stream of arrivals and models */

struct one_load {
    enum load_tier tier;
    double end_s;
    uint32_t next; /* on the same machine; LOAD_NONE: the last */
};

struct machine {
    uint32_t model[WEIGHT_LOADS_MODELS_MAX]; /* on its disk, the latest used first */
    uint32_t models;
    uint32_t first, last;             /* loads that have not ended; LOAD_NONE: none */
    uint32_t queued[LOAD_TIER_COUNT]; /* their number, by tier */
    double free_s;
};

struct site {
    const struct weight_loads_work *w;
    struct machine machine[LOAD_SERVERS_MAX];
    struct load_problem question;
    struct one_load *load;
    double *start_s;
};

static enum load_tier tier_of(const struct weight_loads_work *w, const struct machine *m,
                              uint32_t model)
{
    for (uint32_t i = 0; i < m->models; i++)
        if (m->model[i] == model) return i < w->in_memory ? LOAD_MEMORY : LOAD_DISK;
    return LOAD_STORE;
}

/* Moves the model to the front; the one used longest ago leaves a full disk. */
static void keep(const struct weight_loads_work *w, struct machine *m, uint32_t model)
{
    uint32_t at = 0;
    if (w->on_disk == 0) return;
    while (at < m->models && m->model[at] != model)
        at++;
    if (at == m->models) at = m->models < w->on_disk ? m->models++ : w->on_disk - 1;
    memmove(&m->model[1], &m->model[0], at * sizeof m->model[0]);
    m->model[0] = model;
}

static void end_loads(struct site *s, struct machine *m, double now_s)
{
    for (; m->first != LOAD_NONE && s->load[m->first].end_s <= now_s;
         m->first = s->load[m->first].next)
        m->queued[s->load[m->first].tier]--;
    if (m->first == LOAD_NONE) m->last = LOAD_NONE;
}

/* Fills the policy's view of one machine. */
static void look(struct site *s, uint32_t at, uint32_t model, double now_s)
{
    struct machine *m = &s->machine[at];
    struct load_server *ret = &s->question.server[at];
    end_loads(s, m, now_s);
    *ret = (struct load_server){ .usable = true, .tier = tier_of(s->w, m, model) };
    for (uint32_t t = 0; t < LOAD_TIER_COUNT; t++)
        ret->queued_bytes[t] = m->queued[t] * s->w->model_bytes;
    if (m->first == LOAD_NONE) return;
    const struct one_load *now = &s->load[m->first];
    double left = fmin(s->w->model_bytes, (now->end_s - now_s) * s->w->bytes_s[now->tier]);
    ret->queued_bytes[now->tier] -= s->w->model_bytes - left;
}

static enum load_tier give(struct site *s, uint32_t at, uint32_t number, uint32_t model,
                           double now_s)
{
    struct machine *m = &s->machine[at];
    enum load_tier tier = s->question.server[at].tier;
    m->free_s = fmax(m->free_s, now_s) + s->w->model_bytes / s->w->bytes_s[tier];
    s->load[number] = (struct one_load){ .tier = tier, .end_s = m->free_s, .next = LOAD_NONE };
    if (m->last != LOAD_NONE)
        s->load[m->last].next = number;
    else
        m->first = number;
    m->last = number;
    m->queued[tier]++;
    keep(s->w, m, model);
    return tier;
}

static void replay(struct site *s, const struct load_policy *policy, uint64_t seed,
                   struct weight_loads_result *ret)
{
    const struct weight_loads_work *w = s->w;
    struct rng rng;
    double now_s = 0;
    rng_stream(&rng, seed, 0, PURPOSE_REQUESTS);
    for (uint32_t i = 0; i < w->loads; i++) {
        struct load_verdict v;
        now_s += rng_exp(&rng, 1 / w->rate_s);
        uint32_t model = (uint32_t)(w->models * pow(rng_f64(&rng), w->skew));
        for (uint32_t k = 0; k < w->machines; k++)
            look(s, k, model, now_s);
        policy->choose(&s->question, &v);
        must(v.server < w->machines);
        ret->share[give(s, v.server, i, model, now_s)] += 1.0 / w->loads;
        s->start_s[i] = s->machine[v.server].free_s + w->start_s - now_s;
    }
    ret->start_s = stats_quantiles(s->start_s, w->loads);
}

int weight_loads_run(const struct weight_loads_work *w, const struct load_policy *policy,
                     uint64_t seed, struct weight_loads_result *ret, struct err *err)
{
    static struct site site; /* large: one a process */
    site = (struct site){ .w = w,
                          .load = calloc(w->loads, sizeof *site.load),
                          .start_s = calloc(w->loads, sizeof *site.start_s) };
    site.question = (struct load_problem){ .server_count = w->machines,
                                           .model_bytes = w->model_bytes,
                                           .start_s = w->start_s };
    memcpy(site.question.bytes_s, w->bytes_s, sizeof w->bytes_s);
    for (uint32_t k = 0; k < w->machines; k++)
        site.machine[k].first = site.machine[k].last = LOAD_NONE;
    *ret = (struct weight_loads_result){ 0 };
    int rc =
        site.load && site.start_s ? 0 : err_set(err, -ENOMEM, "no memory for %u loads", w->loads);
    if (rc == 0) replay(&site, policy, seed, ret);
    free(site.load);
    free(site.start_s);
    return rc;
}

#define SEEDS_MAX 100

struct load_options {
    struct str model, policy, row;
    struct config_texts compare;
    int64_t models, machines, in_memory, on_disk, loads, seeds, seed;
    int64_t memory_bytes_s, disk_bytes_s, store_bytes_s, start_us;
    double rate_s, skew;
    int output;
};

#define AT(member) .offset = offsetof(struct load_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .default_text = "llama-3-8b", AT(model),
      .about = "Shipped model, or a file with a model's shape, as ./my.spec: all are of its size." },
    { .name = "models", .type = CONFIG_INT, .default_text = "40", .min = 1, .max = WEIGHT_LOADS_MODELS_MAX,
      AT(models), .about = "Models that are asked for." },
    { .name = "machines", .type = CONFIG_INT, .default_text = "8", .min = 1,
      .max = LOAD_SERVERS_MAX, AT(machines), .about = "Machines that may load them." },
    { .name = "memory", .type = CONFIG_INT, .default_text = "3", .min = 0, .max = WEIGHT_LOADS_MODELS_MAX,
      .unit = "models", AT(in_memory), .about = "Of those on its disk, kept in a machine's memory." },
    { .name = "disk", .type = CONFIG_INT, .default_text = "12", .min = 0, .max = WEIGHT_LOADS_MODELS_MAX,
      .unit = "models", AT(on_disk), .about = "Kept on a machine's disk." },
    { .name = "memory_rate", .type = CONFIG_BYTES, .default_text = "20GB", .min = 1e3, .max = 1e13,
      AT(memory_bytes_s), .about = "Bytes a second from memory to the accelerator." },
    { .name = "disk_rate", .type = CONFIG_BYTES, .default_text = "5GB", .min = 1e3, .max = 1e13,
      AT(disk_bytes_s), .about = "The same from disk." },
    { .name = "store_rate", .type = CONFIG_BYTES, .default_text = "1GB", .min = 1e3, .max = 1e13,
      AT(store_bytes_s), .about = "The same from the store that has every model." },
    { .name = "start", .type = CONFIG_DURATION, .default_text = "1s", .min = 0, .max = 36e8,
      AT(start_us), .about = "Start of an engine, weights apart." },
    { .name = "rate", .letter = 'r', .type = CONFIG_FLOAT, .default_text = "0.5", .min = 1e-6,
      .max = 1e6, .unit = "loads a second", AT(rate_s), .about = "How often a model is asked for." },
    { .name = "skew", .type = CONFIG_FLOAT, .default_text = "2.5", .min = 1, .max = 100, AT(skew),
      .about = "Some models are asked for more often; 1 for all alike." },
    { .name = "loads", .letter = 'n', .type = CONFIG_INT, .default_text = "4000", .min = 1,
      .max = WEIGHT_LOADS_MAX, AT(loads), .about = "Loads of one run." },
    { .name = "policy", .type = CONFIG_TEXT, .default_text = LOAD_DEFAULT, AT(policy),
      .about = "Policy that chooses; `muster policies load` lists them." },
    { .name = "row", .type = CONFIG_TEXT, AT(row),
      .about = "Former name of --policy, read in this release for the last time." },
    { .name = "compare", .type = CONFIG_TEXTS, AT(compare), .max = PLAN_COMPARE_MAX,
      .about = "Policies to ask beside it; without it all others." },
    { .name = "seeds", .type = CONFIG_INT, .default_text = "5", .min = 1, .max = SEEDS_MAX, AT(seeds),
      .about = "Runs with seeds of their own, the same for all policies." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e15, AT(seed),
      .about = "The first of them." },
    REMOTE_OUTPUT_ROW(struct load_options, output),
};

// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct load_options, rows);

static const struct opt_command usage = {
    .name = "muster plan load",
    .about =
        "Choose the machine at which a model's weights are loaded so that it is ready soonest.",
    .options = &record,
    .notes = "A planner only: no driver loads weights by machine yet. Models are asked for at "
             "Poisson times;\n"
             "a machine loads one after the other and keeps those that it loaded last in memory "
             "and on its\n"
             "disk. Start-ups are counted from the request to the engine's being ready; "
             "accelerators are\n"
             "taken to be there. Means are over --seeds, `\u00b1` is their 95 % interval.\n",
};

/* The figures of a run that are compared. */
enum figure { MEAN, P50, P99, FROM_MEMORY, FROM_DISK, FROM_STORE, FIGURE_COUNT };

static const char *const figure_names[FIGURE_COUNT] = { "mean_s",      "p50_s",     "p99_s",
                                                        "from_memory", "from_disk", "from_store" };

#define KIND "load"

struct answers {
    struct plan_policies policies;
    double figure[PLAN_POLICIES_MAX][FIGURE_COUNT][SEEDS_MAX];
    uint32_t seeds;
};

/* ---- output ----------------------------------------------------------------------------------- */

static struct stats_mean mean_of(const struct answers *a, uint32_t row, enum figure f)
{
    return stats_mean(a->figure[row][f], a->seeds);
}

static struct stats_mean difference(const struct answers *a, uint32_t row, enum figure f)
{
    return stats_paired(a->figure[row][f], a->figure[0][f], a->seeds);
}

static void put_answer(struct json_writer *w, const void *ctx, uint32_t row)
{
    const struct answers *a = ctx;
    json_object(w);
    for (uint32_t f = 0; f < FIGURE_COUNT; f++)
        stats_mean_json(w, figure_names[f], mean_of(a, row, (enum figure)f));
    if (row > 0) stats_mean_json(w, "mean_s_difference", difference(a, row, MEAN));
    if (row > 0) stats_mean_json(w, "p99_s_difference", difference(a, row, P99));
    json_object_end(w);
}

static void write_json(const struct load_options *o, const struct weight_loads_work *work,
                       const struct answers *a, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "model", o->model);
    json_kv_f64(&w, "model_bytes", work->model_bytes);
    json_kv_u64(&w, "models", work->models);
    json_kv_u64(&w, "machines", work->machines);
    json_kv_f64(&w, "weight_loads_per_s", work->rate_s);
    json_kv_u64(&w, "seeds", a->seeds);
    plan_policies_json(&w, &a->policies, put_answer, a);
    json_object_end(&w);
    buf_byte(out, '\n');
}

static void say_answer(struct buf *out, const struct answers *a, uint32_t row)
{
    buf_printf(out, "%-14s ready in ", a->policies.name[row]);
    stats_mean_text(out, mean_of(a, row, MEAN), 1, 2, false);
    buf_text(out, " s, P99 ");
    stats_mean_text(out, mean_of(a, row, P99), 1, 2, false);
    buf_printf(out, " s; from memory %.1f %%, disk %.1f, store %.1f",
               100 * mean_of(a, row, FROM_MEMORY).mean, 100 * mean_of(a, row, FROM_DISK).mean,
               100 * mean_of(a, row, FROM_STORE).mean);
    if (row > 0) {
        buf_text(out, "; later by ");
        stats_mean_text(out, difference(a, row, MEAN), 1, 2, false);
        buf_text(out, " s");
    }
    buf_byte(out, '\n');
}

static void write_text(const struct load_options *o, const struct weight_loads_work *work,
                       const struct answers *a, struct buf *out)
{
    buf_printf(out,
               "%u models as " STR_FMT
               " (%.1f GB) on %u machines with %u in memory and %u on disk, "
               "%.2f loads a second, %u x %u loads\n",
               work->models, STR_ARG(o->model), work->model_bytes / 1e9, work->machines,
               work->in_memory, work->on_disk, work->rate_s, a->seeds, work->loads);
    for (uint32_t i = 0; i < a->policies.count; i++)
        say_answer(out, a, i);
}

/* ---- the command ------------------------------------------------------------------------------ */

static int read_work(const struct load_options *o, struct weight_loads_work *w, struct err *err)
{
    struct model_spec model;
    int rc = model_file_find(o->model, &model, err);
    if (rc < 0) return err_prefix(err, rc == -EINVAL ? COMMAND_MISUSED : rc, "--model");
    *w =
        (struct weight_loads_work){ .model_bytes = model_spec_weights(&model) * model.weight_bytes,
                                    .bytes_s = { (double)o->memory_bytes_s, (double)o->disk_bytes_s,
                                                 (double)o->store_bytes_s },
                                    .start_s = (double)o->start_us / 1e6,
                                    .machines = (uint32_t)o->machines,
                                    .models = (uint32_t)o->models,
                                    .in_memory = (uint32_t)o->in_memory,
                                    .on_disk = (uint32_t)o->on_disk,
                                    .rate_s = o->rate_s,
                                    .skew = o->skew,
                                    .loads = (uint32_t)o->loads };
    return 0;
}

static int ask(const struct weight_loads_work *w, uint64_t seed, struct answers *a, struct err *err)
{
    for (uint32_t i = 0; i < a->policies.count; i++)
        for (uint32_t k = 0; k < a->seeds; k++) {
            struct weight_loads_result r;
            int rc = weight_loads_run(w, load_table[a->policies.at[i]], seed + k, &r, err);
            if (rc < 0) return rc;
            const double figure[FIGURE_COUNT] = { r.start_s.mean,     r.start_s.p50,
                                                  r.start_s.p99,      r.share[LOAD_MEMORY],
                                                  r.share[LOAD_DISK], r.share[LOAD_STORE] };
            for (uint32_t f = 0; f < FIGURE_COUNT; f++)
                a->figure[i][f][k] = figure[f];
        }
    return 0;
}

static int plan_load(const void *options, struct err *err)
{
    const struct load_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static struct answers answers;
    struct weight_loads_work work;
    answers.seeds = (uint32_t)o->seeds;
    int rc = plan_policies_find(KIND, o->policy, o->row, &o->compare, &answers.policies, err);
    if (rc == 0 && o->compare.count == 0) plan_policies_others(KIND, &answers.policies);
    if (rc == 0) rc = read_work(o, &work, err);
    if (rc == 0) rc = ask(&work, (uint64_t)o->seed, &answers, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON)
        write_json(o, &work, &answers, &out);
    else
        write_text(o, &work, &answers, &out);
    return command_print(&out, err);
}

int plan_load_run(int argc, char *const *argv)
{
    struct load_options options;
    return command_run(&usage, argc, argv, &options, plan_load);
}
