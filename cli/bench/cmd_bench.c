/* cmd_bench.c - `muster bench`: finds the command below it. */
#include "cli/bench/cmd_bench.h"

#include "base/core/bits.h"
#include "cli/command.h"

static const struct {
    const char *name;
    int (*run)(int argc, char *const *argv);
} below[] = {
    { "engine", bench_engine_run },
    { "kernels", bench_kernels_run },
};

struct bench_options {
    struct str action;
};

static const char *const actions[] = { "engine", "kernels", NULL };
static const struct opt_positional positionals[] = {
    { .name = "ACTION",
      .required = true,
      .words = actions,
      .offset = offsetof(struct bench_options, action),
      .about = "engine or kernels; each has its own --help." },
};
static const struct config_record record = { .size = sizeof(struct bench_options) };
static const struct opt_command usage = {
    .name = "muster bench",
    .about = "Measure the engine's arithmetic beside what this machine can do at most.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "`muster bench engine --model M` times prompts and outputs of a model, `muster bench "
             "kernels` single\noperations. Limits are measured in the same run: compare shares.",
};

static int no_such_action(const void *options, struct err *err)
{
    const struct bench_options *o = options;
    return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want engine or kernels",
                   STR_ARG(o->action));
}

static int run(int argc, char *const *argv)
{
    struct bench_options options;
    for (size_t i = 0; i < COUNT_OF(below) && argc > 0; i++)
        if (str_eq(str_from(argv[0]), str_from(below[i].name)))
            return below[i].run(argc - 1, argv + 1);
    return command_run(&usage, argc, argv, &options, no_such_action);
}

const struct command command_bench = {
    .name = "bench",
    .group = "Measure",
    .about = "measure the engine beside the machine's limits",
    .below = actions,
    .run = run,
};
