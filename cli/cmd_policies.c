/* cmd_policies.c - `muster policies`: the techniques this binary holds, and where they come from. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/cmd_run.h"
#include "cli/command.h"
#include "cli/policies.h"
#include "cli/remote.h"
#include "cli/table.h"

struct policies_options {
    struct str kind;
    int output;
};

// clang-format off
static const struct config_field rows[] = { REMOTE_OUTPUT_ROW(struct policies_options, output) };
static const struct opt_positional positionals[] = {
    { .name = "KIND", .offset = offsetof(struct policies_options, kind),
      .about = "Only this kind: route, predict, scale, shaper, place, migrate, role, preset, fair, "
               "order, admit, preempt, chunk, evict, perf or power." },
};
static const struct table_column columns[] = {
    { "KIND", "kind", TABLE_TEXT },       { "NAME", "name", TABLE_TEXT },
    { "DEFAULT", "default", TABLE_YES },  { "WHAT IT DOES", "about", TABLE_TEXT },
    { "SOURCE", "source", TABLE_TEXT },
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

struct listing {
    struct json_writer w;
    struct str kind;
    bool sourced; /* some row names its source */
};

static int put_row(void *ctx, const struct policy_row *row)
{
    struct listing *l = ctx;
    if (l->kind.len > 0 && !str_eq(l->kind, str_from(row->kind))) return 0;
    l->sourced |= row->source != NULL;
    json_object(&l->w);
    json_kv_text(&l->w, "kind", row->kind);
    json_kv_text(&l->w, "name", row->name);
    json_kv_bool(&l->w, "default", row->is_default);
    json_kv_text(&l->w, "about", row->about);
    json_kv_text(&l->w, "source", row->source);
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
