/* cmd_explain.c - `muster explain`: why the controller did what it did. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "cli/cmd_run.h"
#include "cli/command.h"
#include "cli/explain.h"
#include "cli/pick.h"
#include "cli/remote.h"

struct explain_options {
    struct remote_place place;
    struct str id;
    int64_t last;
    int output;
};

// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct explain_options, place),
    { .name = "last", .letter = 'n', .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 500,
      .unit = "decisions", .offset = offsetof(struct explain_options, last),
      .about = "Explain so many of the newest." },
    REMOTE_OUTPUT_ROW(struct explain_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "DECISION", .offset = offsetof(struct explain_options, id),
      .about = "Number of a decision (`muster get decisions`); without it, the newest." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct explain_options, rows);
static const struct opt_command usage = {
    .name = "muster explain",
    .about = "Tell in words why the controller decided so: inputs, reason, runner-up, cost.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

struct telling {
    struct buf *out;
    int64_t now_us;
    uint32_t count;
};

static int tell(void *ctx, struct str decision)
{
    struct telling *t = ctx;
    if (t->count++ > 0) buf_byte(t->out, '\n');
    return explain_decision(decision, t->now_us, t->out);
}

static int read_path(const struct explain_options *o, struct buf *path, struct err *err)
{
    uint64_t id;
    if (o->id.len == 0) return buf_printf(path, "/api/v1/decisions?limit=%lld", (long long)o->last);
    if (str_to_u64(o->id, &id) < 0)
        return err_set(err, COMMAND_MISUSED,
                       "'" STR_FMT "': a decision is named by its number; `muster "
                       "get decisions` lists them",
                       STR_ARG(o->id));
    return buf_printf(path, "/api/v1/decisions/%llu", (unsigned long long)id);
}

static int explain(const void *options, struct err *err)
{
    const struct explain_options *o = options;
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct remote api;
    int rc = read_path(o, &path, err);
    if (rc == 0) rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = remote_get(&api, path.data, &reply, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON) {
        buf_byte(&reply, '\n');
        return command_print(&reply, err);
    }
    struct telling t = { &out, clock_wall_us(), 0 };
    rc = o->id.len > 0 ? tell(&t, buf_view(&reply))
                       : pick_each(buf_view(&reply), "decisions", tell, &t);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's decision is not understood");
    if (t.count == 0) buf_text(&out, "Nothing was decided yet: the fleet is as it was started.\n");
    return command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct explain_options options;
    return command_run(&usage, argc, argv, &options, explain);
}

const struct command command_explain = {
    .name = "explain",
    .group = "Look",
    .about = "why the controller decided so",
    .run = run,
};
