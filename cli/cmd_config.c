/* cmd_config.c - `muster config`: check a file, show the values in effect, print the schema. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/schema.h"

#include <stdio.h>
#include <unistd.h>

struct config_options {
    struct str act, file;
    bool origin;
    int output;
};

static const char *const forms[] = { "yaml", "json", NULL };
enum { FORM_YAML, FORM_JSON };

#define AT(member) .offset = offsetof(struct config_options, member)
static const char *const actions[] = { "check", "view", "schema", NULL };
// clang-format off
static const struct config_field rows[] = {
    { .name = "origin", .type = CONFIG_BOOL, .default_text = "false", AT(origin),
      .about = "view: where each value comes from." },
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "yaml", .names = forms,
      AT(output), .about = "view: form of what is printed." },
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "check, view or schema." },
    { .name = "FILE", AT(file), .about = "Configuration file; view works without one." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct config_options, rows);
static const struct opt_command usage = {
    .name = "muster config",
    .about = "Check a configuration, show what is in effect, or print its JSON Schema.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static int check(const struct config_options *o, struct err *err)
{
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(buf_fini) struct buf problems = { 0 };
    if (o->file.len == 0) return err_set(err, COMMAND_MISUSED, "config check wants a FILE");
    int rc = check_file(o->file.data, &config, &problems, err);
    if (problems.len > 0) {
        fwrite(problems.data, 1, problems.len, stderr);
        return EXIT_FAILED;
    }
    if (rc < 0) return rc;
    printf("%s is valid.\n", o->file.data);
    return 0;
}

static int view(const struct config_options *o, struct err *err)
{
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct config_sources sources = { .path = o->file.data,
                                      .environ = (const char *const *)environ };
    int rc = config_load(&schema, &sources, &config, NULL, err);
    if (rc < 0) return rc;
    rc = config_view(config, o->output == FORM_JSON ? CONFIG_JSON : CONFIG_YAML, o->origin, &out);
    if (rc < 0) return err_set(err, rc, "the configuration cannot be printed");
    return command_print(&out, err);
}

static int print_schema(struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = config_json_schema(&schema, &out);
    if (rc < 0) return err_set(err, rc, "the schema cannot be printed");
    return command_print(&out, err);
}

static int config_command(const void *options, struct err *err)
{
    const struct config_options *o = options;
    if (str_eq(o->act, STR("check"))) return check(o, err);
    if (str_eq(o->act, STR("view"))) return view(o, err);
    if (str_eq(o->act, STR("schema"))) return print_schema(err);
    return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want check, view or schema",
                   STR_ARG(o->act));
}

static int run(int argc, char *const *argv)
{
    struct config_options options;
    return command_run(&usage, argc, argv, &options, config_command);
}

const struct command command_config = {
    .name = "config",
    .group = "Configure",
    .about = "check a file, show what is in effect, print the schema",
    .run = run,
};
