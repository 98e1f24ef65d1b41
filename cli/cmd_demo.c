/* cmd_demo.c - `muster demo`, which ./demo builds and runs. */
#include "base/core/own.h"
#include "base/io/opt.h"
#include "cli/command.h"
#include "cli/demo.h"

#include <stdio.h>

struct demo_command_options {
    struct str config, folder, trace, summary;
    int64_t growth_us, arm_us, arm_from_us, rounds;
    double growth_speed, arm_speed;
    bool stay;
};

#define AT(member) .offset = offsetof(struct demo_command_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "stay", .type = CONFIG_BOOL, .default_text = "false", AT(stay),
      .about = "Leave the fleet running until Ctrl-C." },
    { .name = "config", .letter = 'c', .type = CONFIG_TEXT, .default_text = "muster.yaml",
      AT(config), .about = "Configuration of the fleet." },
    { .name = "folder", .type = CONFIG_TEXT, .default_text = "build/demo/state", .max = 200,
      AT(folder), .about = "State and logs go to this folder, with the time of the start behind its name." },
    { .name = "summary", .type = CONFIG_TEXT, .default_text = "build/demo/summary.json",
      AT(summary), .about = "File for the figures." },
    { .name = "trace", .type = CONFIG_TEXT, .default_text = "traces/mooncake-conversation-4min.jsonl",
      AT(trace), .about = "Trace whose arrivals, lengths and shared prefixes are replayed." },
    { .name = "growth_speed", .type = CONFIG_FLOAT, .default_text = "2", .min = 0.1, .max = 100,
      AT(growth_speed), .about = "While the fleet grows, arrivals come this many times as fast." },
    { .name = "arm_speed", .type = CONFIG_FLOAT, .default_text = "2.5", .min = 0.1, .max = 100,
      AT(arm_speed), .about = "The same for the comparison of policies." },
    { .name = "growth", .type = CONFIG_DURATION, .default_text = "40s", .min = 1e6, .max = 36e8,
      AT(growth_us), .about = "Length of the load under which the fleet grows." },
    { .name = "arm", .type = CONFIG_DURATION, .default_text = "20s", .min = 1e6, .max = 36e8,
      AT(arm_us), .about = "Length of one run of the comparison." },
    { .name = "arm_from", .type = CONFIG_DURATION, .default_text = "126s", .min = 0, .max = 36e8,
      AT(arm_from_us),
      .about = "Where in the trace the comparison begins: conversations go on there." },
    { .name = "rounds", .type = CONFIG_INT, .default_text = "2", .min = 1, .max = 100, AT(rounds),
      .about = "Runs of each policy in the comparison." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct demo_command_options, rows);
static const struct opt_command usage = {
    .name = "muster demo",
    .about =
        "Bring up a fleet on this machine, grow it under load, shrink it, compare two policies.",
    .options = &record,
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

static int run(int argc, char *const *argv)
{
    struct demo_command_options o;
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    struct err err = { 0 };
    int rc = opt_parse(&usage, argc, argv, &o, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    if (parsed.help) return opt_show_help(&usage);
    struct sigaction action = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct demo_options options = { .config = o.config.data,
                                    .folder = o.folder.data,
                                    .trace = o.trace.data,
                                    .summary = o.summary.data,
                                    .stay = o.stay,
                                    .growth_speed = o.growth_speed,
                                    .arm_speed = o.arm_speed,
                                    .growth_us = o.growth_us,
                                    .arm_us = o.arm_us,
                                    .arm_from_us = o.arm_from_us,
                                    .rounds = (uint32_t)o.rounds };
    rc = demo_run(&options, &interrupted, &err);
    if (rc < 0) fprintf(stderr, "muster demo: %s\n", err_text(&err, rc));
    if (rc == -EINTR) return 130;
    return rc == 0 ? 0 : EXIT_FAILED;
}

const struct command command_demo = {
    .name = "demo",
    .group = "Use",
    .about = "show the whole loop on this machine",
    .run = run,
};
