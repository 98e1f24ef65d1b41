/* main.c - the muster binary: find the subcommand and run it. */
#include "base/core/bits.h"
#include "base/core/str.h"
#include "cli/command.h"

#include <stdio.h>

// clang-format off
/* In the order of --help; rows of one group stand together. */
static const struct command *const commands[] = {
    &command_chat,   &command_run_model, &command_demo,                       /* Use */
    &command_up,     &command_down,                                           /* Fleet */
    &command_status, &command_get, &command_explain, &command_policies,       /* Look */
    &command_perf,
    &command_pause,  &command_resume, &command_scale, &command_keys, &command_tokens,          /* Act */
    &command_quarantine,
    &command_config, &command_docs,                                           /* Configure */
    &command_router, &command_controller, &command_engine, &command_agent,    /* Roles */
    &command_load, &command_simulate, &command_predict, &command_replay, &command_plan, &command_offers, /* Measure */
    &command_version,                                                         /* Help */
};
// clang-format on

static void print_help(FILE *out)
{
    fputs("muster - serve language models on a fleet that grows and shrinks with its load\n\n"
          "usage: muster COMMAND [OPTIONS]\n",
          out);
    const char *group = "";
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        if (strcmp(group, commands[i]->group) != 0) {
            group = commands[i]->group;
            fprintf(out, "\n%s\n", group);
        }
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->about);
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
    const char *names[COUNT_OF(commands)];
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        names[i] = commands[i]->name;
        if (str_eq(str_from(names[i]), name)) return commands[i]->run(argc - 2, argv + 2);
    }
    const char *near = str_nearest(name, names, COUNT_OF(commands));
    fprintf(stderr, "muster: no command '%s'%s%s%s; see muster --help\n", argv[1],
            near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return EXIT_USAGE;
}
