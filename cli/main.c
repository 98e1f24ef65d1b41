/* main.c - the muster binary: finds the subcommand and runs it; `muster version`.
 *
 * The version names the build and the kernels that this machine gets. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "engine/kernels/op.h"

#include <stdio.h>

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

// clang-format off
/* Commands of one group stand together. */
const struct command *const command_table[] = {
    &command_chat,   &command_run_model, &command_generate, &command_demo,                       /* Use */
    &command_up,     &command_down,                                           /* Fleet */
    &command_status, &command_get, &command_describe, &command_explain, &command_policies,       /* Look */
    &command_perf, &command_tokenize, &command_doctor,
    &command_pause,  &command_resume, &command_scale, &command_drain, &command_apply, &command_gc, &command_keys, &command_tokens,          /* Act */
    &command_quarantine,
    &command_config, &command_docs, &command_manifests, &command_pull, &command_model, &command_tokenizer,   /* Configure */
    &command_router, &command_controller, &command_engine, &command_agent,    /* Roles */
    &command_bench, &command_load, &command_simulate, &command_predict, &command_replay, &command_plan, &command_offers,
    &command_perplexity, /* Measure */
    &command_version,                                                         /* Help */
    NULL,
};

#define COMMANDS (COUNT_OF(command_table) - 1)

// clang-format on

static void print_help(FILE *out)
{
    fputs("muster - serve language models on a fleet that grows and shrinks with its load\n\n"
          "usage: muster COMMAND [OPTIONS]\n",
          out);
    const char *group = "";
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(group, command_table[i]->group) != 0) {
            group = command_table[i]->group;
            fprintf(out, "\n%s\n", group);
        }
        fprintf(out, "  %-12s %s\n", command_table[i]->name, command_table[i]->about);
    }
    fputs("\n`muster COMMAND --help` lists the options of a command.\n", out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    struct str name = str_from(argv[1]);
    if (str_eq(name, STR("--help")) || str_eq(name, STR("-h")) || str_eq(name, STR("help"))) {
        print_help(stdout);
        return 0;
    }
    if (str_eq(name, STR("--version"))) name = STR("version");
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = command_table[i]->name;
        if (str_eq(str_from(names[i]), name)) return command_table[i]->run(argc - 2, argv + 2);
    }
    const char *near = str_nearest(name, names, COMMANDS);
    fprintf(stderr, "muster: no command '%s'%s%s%s; see muster --help\n", argv[1],
            near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return EXIT_USAGE;
}
