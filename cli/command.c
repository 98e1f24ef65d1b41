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

int command_print(const struct buf *out, struct err *err)
{
    if (out->rc < 0) return err_set(err, out->rc, "no memory for the text");
    if (fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0) return 0;
    int rc = errno ? -errno : -EIO;
    return err_set(err, rc, "cannot write to stdout: %s", strerror(-rc));
}
