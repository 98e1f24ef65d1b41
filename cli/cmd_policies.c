/* cmd_policies.c - `muster policies`: list the policies of this binary and their sources. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "engine/serve/predict_engine.h"
#include "policies/catalog.h"
#include "policies/predict/predict.h"
#include "router/generate.h"

#include <stdio.h>
#include <string.h>

struct policies_options {
    struct str kind;
    int output;
};

// clang-format off
static const struct config_field rows[] = { REMOTE_OUTPUT_ROW(struct policies_options, output) };
static const struct opt_positional positionals[] = {
    { .name = "KIND", .offset = offsetof(struct policies_options, kind), .words = policy_kinds,
      .about = "Only this kind: route, predict, scale, forecast, shaper, place, mix, layers, move, load, migrate, "
               "role, preset, fair, order, admit, preempt, chunk, evict, draft, perf or power." },
};
static const struct table_column columns[] = {
    { "KIND", "kind", TABLE_TEXT },       { "NAME", "name", TABLE_TEXT },
    { "DEFAULT", "default", TABLE_YES },  { "CHOSEN IN", "chosen_in", TABLE_LIST },
    { "WHAT IT DOES", "about", TABLE_TEXT }, { "SOURCE", "source", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct policies_options, rows);
static const struct opt_command usage = {
    .name = "muster policies",
    .about = "List the policies that configurations may name.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

/* Keys of muster.yaml that name a policy of each kind. A kind without keys has no effect on running
 * processes; `instead` then names the command that uses it. */
static const struct {
    const char *kind, *key[2];
} choices[] = {
    { "route", { "router.route" } },
    { "predict", { "router.predict", "services[].engine.predict" } },
    { "scale", { "services[].scale" } },
    { "forecast", { "services[].forecast" } },
    { "shaper", { "services[].shaper" } },
    { "place", { "services[].place" } },
    { "mix", { "services[].mix" } },
    { "layers", { 0 } },
    { "move", { 0 } },
    { "load", { 0 } },
    { "migrate", { "router.migrate" } },
    { "role", { "services[].role" } },
    { "preset", { "services[].engine.preset" } },
    { "fair", { "services[].engine.fair" } },
    { "order", { "services[].engine.order" } },
    { "admit", { "services[].engine.admit" } },
    { "preempt", { "services[].engine.preempt" } },
    { "chunk", { "services[].engine.chunk" } },
    { "evict", { "services[].engine.evict" } },
    { "draft", { "services[].engine.draft" } },
    { "perf", { "services[].engine.perf" } },
    { "power", { "services[].power" } },
};

/* The commands that use a policy that no key can name; for kinds not listed, `muster simulate --KIND`. */
static const struct {
    const char *kind, *text;
} instead[] = {
    { "scale", "muster simulate --scale-policy" },
    { "mix", "muster plan --mix" },
    { "layers", "planner only: muster plan layers --policy" },
    { "move", "planner only: muster plan move --policy" },
    { "load", "planner only: muster plan load --policy" },
};

/* Returns true if the process that reads the kind's k-th key has the inputs that the policy needs. */
static bool may_be_named(const struct policy_info *policy, size_t k)
{
    if (policy->is_bound) return false;
    if (strcmp(policy->kind, "predict") == 0) {
        uint32_t has = k == 0 ? FEATURES_HAVE : PREDICT_ENGINE_HAVE;
        return !predict_missing(predict_find(str_from(policy->name)), has);
    }
    return true;
}

static void put_choices(struct json_writer *w, const struct policy_info *policy)
{
    bool any = false;
    json_key(w, "chosen_in");
    json_array(w);
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (strcmp(choices[i].kind, policy->kind) != 0) continue;
        for (size_t k = 0; k < COUNT_OF(choices[i].key) && choices[i].key[k]; k++) {
            if (!may_be_named(policy, k)) continue;
            json_put_text(w, choices[i].key[k]);
            any = true;
        }
    }
    char flag[64];
    snprintf(flag, sizeof flag, "muster simulate --%s", policy->kind);
    const char *text = flag;
    for (size_t i = 0; i < COUNT_OF(instead); i++)
        if (strcmp(instead[i].kind, policy->kind) == 0) text = instead[i].text;
    if (!any) json_put_text(w, text);
    json_array_end(w);
}

struct listing {
    struct json_writer w;
    struct str kind;
    bool sourced; /* some policy names its source */
};

static int put_row(void *ctx, const struct policy_info *policy)
{
    struct listing *l = ctx;
    if (l->kind.len > 0 && !str_eq(l->kind, str_from(policy->kind))) return 0;
    l->sourced |= policy->source != NULL;
    json_object(&l->w);
    json_kv_text(&l->w, "kind", policy->kind);
    json_kv_text(&l->w, "name", policy->name);
    json_kv_bool(&l->w, "default", policy->is_default);
    json_kv_text(&l->w, "about", policy->about);
    json_kv_text(&l->w, "source", policy->source);
    put_choices(&l->w, policy);
    json_object_end(&l->w);
    return 0;
}

static int check_kind(struct str kind, struct err *err)
{
    size_t count = 0;
    for (; policy_kinds[count]; count++)
        if (str_eq(kind, str_from(policy_kinds[count]))) return 0;
    const char *near = str_nearest(kind, policy_kinds, count);
    return err_set(err, COMMAND_MISUSED, "no kind '" STR_FMT "'%s%s%s; see muster policies --help",
                   STR_ARG(kind), near ? ", did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

static int policies(const void *options, struct err *err)
{
    const struct policies_options *o = options;
    CLEANUP(buf_fini) struct buf json = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct listing l = { .kind = o->kind };
    int rc = o->kind.len > 0 ? check_kind(o->kind, err) : 0;
    if (rc < 0) return rc;
    json_writer_init(&l.w, &json);
    json_array(&l.w);
    policies_each(put_row, &l);
    json_array_end(&l.w);
    if (o->output == REMOTE_JSON) {
        buf_byte(&json, '\n');
        return command_print(&json, err);
    }
    struct table t = { columns, COUNT_OF(columns) - !l.sourced, 0, colour_wanted(stdout) };
    rc = table_print(&t, buf_view(&json), &out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct policies_options options;
    return command_run(&usage, argc, argv, &options, policies);
}

const struct command command_policies = {
    .name = "policies",
    .group = "Look",
    .about = "the techniques that a configuration may name",
    .run = run,
};
