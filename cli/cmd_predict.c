/* cmd_predict.c - `muster predict`: measure length predictors on a trace, and merge their saved states. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "router/predict_file.h"
#include "simulator/predict_trial.h"

#include <stdlib.h>

struct predict_options {
    struct str act, trace, names, save;
    struct config_texts files;
    int64_t delay_us, requests;
    int output;
};

#define AT(member) .offset = offsetof(struct predict_options, member)
static const char *const actions[] = { "eval", "merge", NULL };
// clang-format off
static const struct config_field rows[] = {
    { .name = "trace", .letter = 't', .type = CONFIG_TEXT, AT(trace),
      .about = "eval: trace to predict_length: Mooncake or text JSONL, or Azure CSV." },
    { .name = "predict", .letter = 'p', .type = CONFIG_TEXT, AT(names),
      .about = "Policies, with commas between; eval takes all without it, merge wants one." },
    { .name = "requests", .letter = 'n', .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = TRACE_REQUESTS_MAX, .unit = "requests", AT(requests),
      .about = "eval: requests to take; 0 for all." },
    { .name = "delay", .type = CONFIG_DURATION, .default_text = "10s", .min = 0, .max = 864e8,
      AT(delay_us), .about = "eval: from a request's coming until its end is learned." },
    { .name = "save", .type = CONFIG_TEXT, AT(save),
      .about = "File for what one policy learned (eval) or what the files know together (merge)." },
    REMOTE_OUTPUT_ROW(struct predict_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "eval or merge." },
    { .name = "STATE", .many = true, AT(files),
      .about = "Saved states: where eval begins, what merge brings together." },
};
static const struct table_column columns[] = {
    { "PREDICTOR", "name", TABLE_TEXT },
    { "CONCORDANCE", "concordance", TABLE_SHARE },
    { "FOLLOW-UPS", "follow_concordance", TABLE_SHARE },
    { "MAE", "mae_tokens", TABLE_DECIMAL },
    { "BELOW P90", "p90_coverage", TABLE_SHARE },
    { "US", "decide_us", TABLE_DECIMAL },
    { "LEARN US", "observe_us", TABLE_DECIMAL },
    { "COSTLY", "costly_share", TABLE_SHARE },
    { "NOT APPLICABLE", "not_applicable", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct predict_options, rows);
static const struct opt_command usage = {
    .name = "muster predict",
    .about = "Judge length predictors on a trace, or bring together what several routers learned.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "CONCORDANCE is the share of pairs of requests whose order of length was predicted (50% "
        "is chance);\nFOLLOW-UPS the same among later turns of conversations; MAE the mean "
        "error of P50 in tokens;\nUS microseconds for one prediction. Every request is "
        "foretold from those that ended before it came.\n",
};

struct judging {
    const struct predict_options *o;
    struct trace_features *features;
    struct json_writer w;
};

static int find_policy(struct str name, const struct predict_policy **ret, struct err *err)
{
    const char *names[64];
    *ret = predict_find(name);
    if (*ret) return 0;
    for (uint32_t i = 0; i < predict_count; i++)
        names[i] = predict_table[i]->name;
    const char *near = str_nearest(name, names, predict_count);
    return err_set(err, COMMAND_MISUSED,
                   "no predictor '" STR_FMT "'%s%s; see `muster policies predict`", STR_ARG(name),
                   near ? ", did you mean " : "", near ? near : "");
}

/* Makes a new state and merges the files' states into it; the caller frees it. */
static int state_of(const struct predict_policy *policy, const struct config_texts *files,
                    void **ret, struct err *err)
{
    void *state = malloc(policy->state_size);
    if (!state) return err_set(err, -ENOMEM, "no memory for predictor %s", policy->name);
    policy->init(state);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < files->count; i++)
        rc = predict_file_merge(policy, files->items[i].data, state, err);
    if (rc < 0) {
        free(state);
        return rc;
    }
    *ret = state;
    return 0;
}

static void put_trial(struct json_writer *w, const struct predict_trial *t)
{
    json_kv_u64(w, "judged", t->judged);
    if (t->concordance >= 0) json_kv_f64(w, "concordance", t->concordance);
    if (t->follow_concordance >= 0) {
        json_kv_u64(w, "follow_ups", t->follow_ups);
        json_kv_f64(w, "follow_concordance", t->follow_concordance);
    }
    json_kv_f64(w, "mae_tokens", t->mae_tokens);
    json_kv_f64(w, "true_mean_tokens", t->true_mean_tokens);
    json_kv_f64(w, "p90_coverage", t->p90_coverage);
    json_kv_f64(w, "decide_us", t->decide_us);
    json_kv_f64(w, "observe_us", t->observe_us);
    if (t->costly_share > 0) json_kv_f64(w, "costly_share", t->costly_share);
    json_kv_f64(w, "extra_prompt_tokens", t->extra_prompt);
    json_kv_f64(w, "extra_output_tokens", t->extra_output);
}

static int judge(struct judging *j, const struct predict_policy *policy, struct err *err)
{
    const char *missing = predict_missing(policy, j->features->have);
    json_object(&j->w);
    json_kv_text(&j->w, "name", policy->name);
    if (missing) {
        char why[64];
        snprintf(why, sizeof why, "no %s", missing);
        json_kv_text(&j->w, "not_applicable", why);
        json_object_end(&j->w);
        return 0;
    }
    void *state;
    struct predict_trial trial;
    int rc = state_of(policy, &j->o->files, &state, err);
    if (rc < 0) return rc;
    rc = predict_trial_run(j->features, policy, j->o->delay_us, clock_mono_us, state, &trial, err);
    if (rc == 0 && j->o->save.len > 0) {
        rc = predict_file_write(policy, j->o->save.data, state, err);
    }
    free(state);
    if (rc < 0) return rc;
    put_trial(&j->w, &trial);
    json_object_end(&j->w);
    return 0;
}

static int judge_policies(struct judging *j, struct err *err)
{
    struct str names = j->o->names;
    int rc = 0;
    json_array(&j->w);
    for (uint32_t i = 0; names.len == 0 && rc == 0 && i < predict_count; i++)
        rc = judge(j, predict_table[i], err);
    while (rc == 0 && names.len > 0) {
        const struct predict_policy *policy;
        rc = find_policy(str_cut(&names, ','), &policy, err);
        if (rc == 0) rc = judge(j, policy, err);
    }
    json_array_end(&j->w);
    return rc;
}

/* Checks that one policy is named where states are read or saved: a state belongs to one policy. */
static int check_one(const struct predict_options *o, struct err *err)
{
    bool one = o->names.len > 0 && str_find(o->names, STR(",")) == SIZE_MAX;
    if (one || (o->files.count == 0 && o->save.len == 0)) return 0;
    return err_set(err, COMMAND_MISUSED, "saved states want one policy: --predict NAME");
}

static int eval(const struct predict_options *o, struct err *err)
{
    CLEANUP(trace_freep) struct trace *trace = NULL;
    CLEANUP(trace_features_freep) struct trace_features *features = NULL;
    CLEANUP(buf_fini) struct buf json = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    if (o->trace.len == 0) return err_set(err, COMMAND_MISUSED, "predict eval wants --trace FILE");
    int rc = check_one(o, err);
    if (rc == 0) rc = trace_file_load(o->trace.data, TRACE_AUTO, &trace, err);
    if (rc == 0) rc = trace_shape(trace, (uint32_t)o->requests, 1, 1, err);
    if (rc == 0) rc = trace_features_new(trace, &features, err);
    if (rc < 0) return rc;
    struct judging j = { .o = o, .features = features };
    json_writer_init(&j.w, &json);
    rc = judge_policies(&j, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON) {
        buf_byte(&json, '\n');
        return command_print(&json, err);
    }
    struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
    rc = table_print(&t, buf_view(&json), &out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int merge(const struct predict_options *o, struct err *err)
{
    const struct predict_policy *policy;
    void *state;
    if (o->trace.len > 0)
        return err_set(err, COMMAND_MISUSED, "predict merge replays nothing: --trace is eval's");
    if (o->save.len == 0 || o->files.count == 0) {
        return err_set(err, COMMAND_MISUSED, "predict merge wants --predict, --save and STATE...");
    }
    int rc = check_one(o, err);
    if (rc == 0) rc = find_policy(o->names, &policy, err);
    if (rc == 0) rc = state_of(policy, &o->files, &state, err);
    if (rc < 0) return rc;
    rc = predict_file_write(policy, o->save.data, state, err);
    free(state);
    return rc;
}

static int predict(const void *options, struct err *err)
{
    const struct predict_options *o = options;
    if (str_eq(o->act, STR("eval"))) return eval(o, err);
    if (str_eq(o->act, STR("merge"))) return merge(o, err);
    return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want eval or merge",
                   STR_ARG(o->act));
}

static int run(int argc, char *const *argv)
{
    struct predict_options options;
    return command_run(&usage, argc, argv, &options, predict);
}

const struct command command_predict = {
    .name = "predict",
    .group = "Measure",
    .about = "judge length predictors on a trace, merge what they learned",
    .run = run,
};
