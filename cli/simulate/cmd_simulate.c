/* cmd_simulate.c - `muster simulate`: replay a trace over a fleet in virtual time. */
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/simulate/cmd_simulate_clouds.h"
#include "cli/simulate/sim_arms.h"
#include "cli/simulate/sim_file.h"

#include <stdio.h>
#include <string.h>

static const char notes[] =
    "`muster simulate clouds` runs the controller over generated spot markets instead.\n"
    "Requests that are rejected, unfinished or too long are misses with infinite TTFT. Equal\n"
    "options and seed give an equal digest. Generated traces, which differ by seed:\n";

static struct opt_command usage = {
    .name = "muster simulate",
    .about = "Replay a trace over a fleet in virtual time, with the policies, scheduler and router "
             "that serve.",
    .options = &sim_options_record,
};

/* Prints, before the run and apart from its report, which settings of a file are taken and which are not:
 * a user would expect all of them to have an effect. */
static int tell_file(const struct sim_options *o, const struct sim_arms *arms, struct err *err)
{
    struct sim_file_uses uses = { 0 };
    for (uint32_t i = 0; i < arms->count; i++) {
        const struct sim_arm *arm = &arms->arm[i];
        uses.engines |= !sim_pool_is_serial(&arm->config.pool[0]);
        uses.scaling |= arm->config.scaling != NULL;
        uses.leads |= !sim_option_is_set(&arm->options, "lead_time");
        memset(uses.pools, 0, sizeof uses.pools);
        for (uint32_t p = 0; p < arm->config.pool_count; p++)
            uses.pools[arm->config.pool[p].service]++;
    }
    CLEANUP(buf_fini) struct buf note = { 0 };
    int rc = o->config.len > 0 ? sim_file_note(o->config.data, uses, &note, err) : 0;
    if (rc == 0 && note.len > 0) fprintf(stderr, "%s: %s", usage.name, note.data);
    return rc;
}

static int simulate(int argc, char *const *argv, const struct sim_options *o, struct err *err)
{
    CLEANUP(sim_arms_fini) struct sim_arms arms = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = sim_arms_init(&arms, &usage, argc, argv, o, err);
    if (rc < 0) return rc == -EINVAL ? COMMAND_MISUSED : rc;
    rc = tell_file(o, &arms, err);
    if (rc < 0) return rc;
    rc = sim_arms_load(&arms, err);
    if (rc < 0) return rc;
    rc = sim_arms_run(&arms, (uint32_t)o->jobs, err);
    if (rc < 0) return rc;
    rc = o->output == SIM_OUTPUT_JSON ? sim_arms_json(&arms, &out) : sim_arms_table(&arms, &out);
    return rc < 0 ? err_set(err, rc, "no memory for the report") : command_print(&out, err);
}

static const char *const below[] = { "clouds", NULL };

static int run(int argc, char *const *argv)
{
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    CLEANUP(buf_fini) struct buf help = { 0 };
    struct sim_options options;
    struct err err = { 0 };
    if (argc > 0 && str_eq(str_from(argv[0]), str_from(below[0])))
        return simulate_clouds_run(argc - 1, argv + 1);
    buf_text(&help, notes);
    generate_help(&help);
    model_file_help(&help);
    if (help.rc == 0) usage.notes = help.data;
    int rc = opt_parse(&usage, argc, argv, &options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    if (parsed.help) return opt_show_help(&usage);
    rc = simulate(argc, argv, &options, &err);
    if (rc == COMMAND_MISUSED) return opt_fail(&usage, &err);
    if (rc < 0) fprintf(stderr, "%s: %s\n", usage.name, err_text(&err, rc));
    return rc < 0 ? EXIT_FAILED : 0;
}

const struct command command_simulate = {
    .name = "simulate",
    .group = "Measure",
    .about = "replay a trace over a fleet in virtual time; compare policies",
    .below = below,
    .run = run,
};
