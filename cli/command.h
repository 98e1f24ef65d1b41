/* command.h - a subcommand of the muster binary: one row of main.c's table, one file.
 *
 * Layer: cli
 * Exit:  0 done, 1 failed, 2 called wrongly, 3 not ready, 124 timed out
 */
#pragma once

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_TIMED_OUT 124

struct command {
    const char *name;
    const char *group; /* heading in --help */
    const char *about;
    int (*run)(int argc, char *const *argv); /* without the program's and the command's name */
};

extern const struct command command_agent, command_chat, command_config, command_controller,
    command_demo, command_docs, command_down, command_engine, command_explain, command_get,
    command_keys, command_load, command_offers, command_pause, command_perf, command_plan,
    command_policies, command_predict, command_quarantine, command_replay, command_resume,
    command_router, command_run_model, command_scale, command_simulate, command_status,
    command_tokens, command_up, command_version;
