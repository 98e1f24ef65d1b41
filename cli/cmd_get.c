/* cmd_get.c - `muster get`: list a resource of the controller as a table or as its JSON. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>

#define KIND_NAMES_MAX 16
#define LAST_MAX 500 /* decisions in one reply of the API */

struct get_options {
    struct remote_place place;
    struct str kind, name;
    int64_t last;
    int output;
};

static const char *const kinds[] = { "services", "pools",     "instances", "intents",
                                     "offers",   "decisions", "tenants",   NULL };
// clang-format off
#define AT(member) .offset = offsetof(struct get_options, member)
static const struct config_field rows[] = {
    REMOTE_ROWS(struct get_options, place),
    { .name = "last", .letter = 'n', .type = CONFIG_INT, .default_text = "20", .min = 1,
      .max = LAST_MAX, AT(last), .about = "How many decisions or events to show." },
    REMOTE_FORMS_ROW(struct get_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "KIND", .required = true, AT(kind),
      .words = kinds,
      .about = "services, pools, instances, intents, offers, decisions, events, config, tenants or tokens." },
    { .name = "NAME", AT(name),
      .about = "Only the one of this name; events: those about a service, pool, instance or offer." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct get_options, rows);
static const struct opt_command usage = {
    .name = "muster get",
    .about = "List what the controller knows.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static int refuse_kind(struct str name, struct err *err)
{
    const char *names[KIND_NAMES_MAX];
    uint32_t count = min_u32(kind_count, KIND_NAMES_MAX);
    for (uint32_t i = 0; i < count; i++)
        names[i] = kind_table[i].name;
    const char *near = str_nearest(name, names, count);
    return err_set(err, COMMAND_MISUSED, "no kind '" STR_FMT "'%s%s%s; see muster get --help",
                   STR_ARG(name), near ? ", did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

struct filter {
    struct str name;
    const char *id;
    struct buf *out;
    uint32_t count;
};

static int keep_named(void *ctx, struct str item)
{
    struct filter *f = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    if (f->name.len > 0 && f->id) {
        struct str raw;
        int rc = json_path(item, f->id, &raw);
        if (rc == 0 && json_path_text(item, f->id, &id) < 0) buf_str(&id, raw); /* a number */
        if (!str_eq(buf_view(&id), f->name)) return 0;
    }
    if (f->count++ > 0) buf_byte(f->out, ',');
    return buf_str(f->out, item);
}

/* Appends the path of the newest `last` decisions, or of the one that is asked for. */
static int decisions_path(const struct get_options *o, struct buf *path, struct err *err)
{
    uint64_t id;
    if (o->name.len == 0) return buf_printf(path, "?limit=%lld", (long long)o->last);
    if (str_to_u64(o->name, &id) < 0)
        return err_set(err, COMMAND_MISUSED, "'" STR_FMT "': a decision is named by its number",
                       STR_ARG(o->name));
    return buf_printf(path, "?from=%llu&limit=1", (unsigned long long)id);
}

static int events_path(const struct get_options *o, struct buf *path)
{
    buf_printf(path, "?limit=%lld&about=", (long long)o->last);
    remote_segment(path, o->name);
    return path->rc;
}

static int show(const struct resource *k, const struct get_options *o, struct str reply,
                struct err *err)
{
    CLEANUP(buf_fini) struct buf items = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct filter f = { o->name, k->id, &items, 0 };
    double now_us = (double)clock_wall_us();
    buf_byte(&items, '[');
    int rc = json_path_each(reply, k->list, keep_named, &f);
    buf_byte(&items, ']');
    if (rc < 0)
        return err_set(err, -EPROTO, "the controller's answer is not a list of %s", k->name);
    if (f.count == 0 && o->name.len > 0 && k->id)
        return err_set(err, -ENOENT, "no '" STR_FMT "' among the %s; `muster get %s` lists them",
                       STR_ARG(o->name), k->name, k->name);
    if (o->output == REMOTE_JSON || o->output == REMOTE_YAML)
        return remote_print(o->output, &items, err);
    if (f.count == 0) {
        fprintf(stderr, "%s\n", k->empty);
        return 0;
    }
    json_path_f64(reply, "now_us", &now_us);
    struct resource_columns columns;
    resource_columns(k, o->output == REMOTE_WIDE, &columns);
    struct table t = { columns.column, columns.count, (int64_t)now_us, colour_wanted(stdout) };
    rc = table_print(&t, buf_view(&items), &text);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&text, err);
}

static int get(const void *options, struct err *err)
{
    const struct get_options *o = options;
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct remote api;
    const struct resource *k = resource_find(o->kind);
    if (!k) return refuse_kind(o->kind, err);
    int rc = remote_find(&o->place, &api, err);
    buf_text(&path, k->path);
    if (rc == 0 && str_eq(str_from(k->name), STR("decisions"))) rc = decisions_path(o, &path, err);
    if (rc == 0 && str_eq(str_from(k->name), STR("events"))) rc = events_path(o, &path);
    if (rc == 0) rc = remote_get(&api, path.data, &reply, err);
    return rc < 0 ? rc : show(k, o, buf_view(&reply), err);
}

static int run(int argc, char *const *argv)
{
    struct get_options options;
    return command_run(&usage, argc, argv, &options, get);
}

const struct command command_get = {
    .name = "get",
    .group = "Look",
    .about =
        "list services, pools, instances, intents, offers, decisions, events, tenants; the config",
    .run = run,
};
