/* command.c - parse the options, run the command, and report its failure once. */

#include "cli/command.h"

#include "base/core/own.h"

#include <stdio.h>

int command_run(const struct opt_command *usage, int argc, char *const *argv, void *options,
                int (*fn)(const void *options, struct err *err))
{
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    struct err err = { 0 };
    int rc = opt_parse(usage, argc, argv, options, &parsed, &err);
    if (rc < 0) return opt_fail(usage, &err);
    if (parsed.help) return opt_show_help(usage);
    rc = fn(options, &err);
    if (rc < 0) fprintf(stderr, "%s: %s\n", usage->name, err_text(&err, rc));
    if (rc == -ETIMEDOUT) return EXIT_TIMED_OUT;
    if (rc == COMMAND_MISUSED) return EXIT_USAGE;
    return rc < 0 ? EXIT_FAILED : rc;
}

struct usages {
    const struct command *command;
    command_usage_fn fn;
    void *ctx;
    int rc;
    bool shown;
};

static void give_usage(void *ctx, const struct opt_command *usage)
{
    struct usages *u = ctx;
    u->shown = true;
    u->rc = u->fn(u->ctx, u->command, usage);
}

/* Asks for the help of the command, or of the one below it. */
static int ask_usage(struct usages *u, const char *below)
{
    char help[] = "--help", name[64];
    char *argv[] = { name, help, NULL };
    must(!below || strlen(below) < sizeof name);
    if (below) memcpy(name, below, strlen(below) + 1);
    u->shown = false;
    opt_help_catch(give_usage, u);
    (void)u->command->run(below ? 2 : 1, below ? argv : argv + 1);
    opt_help_catch(NULL, NULL);
    must(u->shown); /* every command has --help */
    return u->rc;
}

int command_usages(const struct command *const *commands, command_usage_fn fn, void *ctx)
{
    for (; *commands; commands++) {
        struct usages u = { .command = *commands, .fn = fn, .ctx = ctx };
        int rc = ask_usage(&u, NULL);
        for (size_t i = 0; rc >= 0 && u.command->below && u.command->below[i]; i++)
            rc = ask_usage(&u, u.command->below[i]);
        if (rc < 0) return rc;
    }
    return 0;
}

int command_print(const struct buf *out, struct err *err)
{
    if (out->rc < 0) return err_set(err, out->rc, "no memory for the text");
    if (fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0) return 0;
    int rc = errno ? -errno : -EIO;
    return err_set(err, rc, "cannot write to stdout: %s", strerror(-rc));
}
