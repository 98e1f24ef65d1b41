/* command.h - a subcommand of the muster binary is one file and one line of main.c's table; commands share this
 * frame: options, help, the sentence at the end, the exit status.
 *
 * Layer: cli (base/io)
 * Exit:  0 done, 1 failed, 2 called wrongly, 3 not ready, 124 timed out
 */
#pragma once
#include "base/io/config/opt.h"

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_TIMED_OUT 124

struct command {
    const char *name;
    const char *group; /* heading in --help */
    const char *about;
    const char *const
        *below; /* commands behind this one's name, as `plan layers`; NULL-terminated */
    int (*run)(int argc, char *const *argv); /* without the program's and the command's name */
};

extern const struct command command_agent, command_apply, command_bench, command_chat,
    command_config, command_controller, command_demo, command_describe, command_docs,
    command_doctor, command_down, command_drain, command_engine, command_explain, command_gc,
    command_generate, command_get, command_keys, command_load, command_manifests, command_model,
    command_offers, command_pause, command_perf, command_perplexity, command_plan, command_policies,
    command_predict, command_pull, command_quarantine, command_replay, command_resume,
    command_router, command_run_model, command_scale, command_simulate, command_status,
    command_tokenize, command_tokenizer, command_tokens, command_up, command_version;

/* The result of fn for arguments that are wrong in a way that the options' schema cannot express. */
#define COMMAND_MISUSED (-EBADRQC)

/* Parses argv into `options` and calls fn. fn returns an exit status, or a negative errno with a
 * sentence, which is printed after the command's name. -ETIMEDOUT exits with EXIT_TIMED_OUT,
 * COMMAND_MISUSED with EXIT_USAGE, any other errno with EXIT_FAILED. */
int command_run(const struct opt_command *usage, int argc, char *const *argv, void *options,
                int (*fn)(const void *options, struct err *err));

/* Calls fn with the options of each command and of the commands below it, as --help would show them; they
 * live during the call only. Stops at a negative result of fn and returns it. */
typedef int (*command_usage_fn)(void *ctx, const struct command *command,
                                const struct opt_command *usage);
int command_usages(const struct command *const *commands, command_usage_fn fn, void *ctx);

/* All commands in the order of --help; NULL-terminated (main.c). */
extern const struct command *const command_table[];

/* Writes all of `out` to stdout. -EIO and the like when that fails. */
int command_print(const struct buf *out, struct err *err);

/* Appends a decision of the controller in words (cmd_explain.c). `decision` is one item of
 * /api/v1/decisions; -EINVAL for anything else. */
int explain_decision(struct str decision, int64_t now_us, struct buf *out);
