/* cmd_version.c - which build this is, and which kernels this machine gets. */
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "engine/kernels/op.h"

struct version_options {
    int output;
};

// clang-format off
static const struct config_field rows[] = { REMOTE_OUTPUT_ROW(struct version_options, output) };
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct version_options, rows);
static const struct opt_command usage = {
    .name = "muster version",
    .about = "Print the version, the compiler and the kernels that this machine gets.",
    .options = &record,
};

static int print_version(const void *options, struct err *err)
{
    const struct version_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const char *kernels = ops_best()->name;
    if (o->output == REMOTE_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_text(&w, "version", MUSTER_VERSION);
        json_kv_text(&w, "compiler", __VERSION__);
        json_kv_text(&w, "kernels", kernels);
        json_object_end(&w);
        buf_byte(&out, '\n');
    } else {
        buf_printf(&out, "muster %s (compiler %s, kernels %s)\n", MUSTER_VERSION, __VERSION__,
                   kernels);
    }
    int rc = command_print(&out, err);
    return rc < 0 ? rc : 0;
}

static int run(int argc, char *const *argv)
{
    struct version_options options;
    return command_run(&usage, argc, argv, &options, print_version);
}

const struct command command_version = {
    .name = "version",
    .group = "Help",
    .about = "print the version",
    .run = run,
};
