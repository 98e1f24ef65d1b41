/* cmd_apply.c - `muster apply`: show what a configuration would change in a running fleet, then change it.
 *
 * The controller judges and compares, because it knows what is in force. The difference is asked for first,
 * and the order names the generation that it was made for: what has changed in between is not overwritten. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>
#include <string.h>

#define PATH "/api/v1/config"

struct apply_options {
    struct remote_place place;
    struct str file;
    bool dry_run;
    int output;
};

#define AT(member) .offset = offsetof(struct apply_options, member)
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct apply_options, place),
    { .name = "file", .letter = 'f', .type = CONFIG_TEXT, .required = true, AT(file),
      .about = "Configuration of the fleet; - reads it from stdin." },
    { .name = "dry_run", .type = CONFIG_BOOL, .default_text = "false", AT(dry_run),
      .about = "Only show what would change." },
    REMOTE_TREES_ROW(struct apply_options, output),
};
static const struct table_column columns[] = {
    { "CHANGE", "path", TABLE_TEXT }, { "KIND", "kind", TABLE_TEXT },
    { "FROM", "from", TABLE_TEXT },   { "TO", "to", TABLE_TEXT },
    { "TAKES EFFECT", "effect", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct apply_options, rows);
static const struct opt_command usage = {
    .name = "muster apply",
    .about = "Change the services, pools, SLOs and budgets of a running fleet.",
    .options = &record,
    .notes =
        "What is applied holds over restarts, until the controller's own file is changed: the "
        "last\n"
        "change counts, wherever it was made. `muster get config` says what is in force. Effects:\n"
        "`new instances` leaves those that run as they are (`muster drain --pool` replaces them);\n"
        "`elsewhere` is read by routers or agents at their start. A change that needs a restart of "
        "the\n"
        "controller, or is not valid, is refused, and nothing is changed.",
};

static int read_stdin(struct buf *text, struct err *err)
{
    char piece[4096];
    text->max = CONFIG_FILE_BYTES_MAX;
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;)
        if (buf_append(text, piece, n) < 0)
            return err_set(err, text->rc, "stdin: more than %zu bytes", CONFIG_FILE_BYTES_MAX);
    return ferror(stdin) ? err_set(err, -EIO, "stdin cannot be read") : 0;
}

static int send_order(const struct remote *api, const struct apply_options *o, struct str text,
                      bool dry_run, uint64_t generation, struct buf *reply, struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    const char *slash = strrchr(o->file.data, '/');
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_text(&w, "name", slash && slash[1] ? slash + 1 : o->file.data);
    json_kv_str(&w, "text", text);
    json_kv_bool(&w, "dry_run", dry_run);
    if (generation) json_kv_u64(&w, "generation", generation);
    json_object_end(&w);
    if (body.rc < 0) return err_set(err, body.rc, "no memory for the order");
    return remote_call(api, STR(PATH), buf_view(&body), reply, err);
}

static int show_changes(struct str changes, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
    int rc = table_print(&t, changes, &out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int apply_text(const struct remote *api, const struct apply_options *o, struct str text,
                      struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct str changes;
    uint64_t generation = 0;
    bool table = o->output == REMOTE_TABLE;
    int rc = send_order(api, o, text, true, 0, &reply, err);
    if (rc < 0) return rc;
    if (json_path(buf_view(&reply), "changes", &changes) < 0 ||
        json_path_u64(buf_view(&reply), "generation", &generation) < 0)
        return err_set(err, -EPROTO, "the controller's comparison is not understood");
    bool differs = changes.len > 2; /* "[]" */
    if (table && differs) rc = show_changes(changes, err);
    if (rc == 0 && differs && !o->dry_run)
        rc = send_order(api, o, text, false, generation, &reply, err);
    if (rc < 0) return rc;
    if (!table) return remote_print(o->output, &reply, err);
    if (!differs)
        printf("Nothing differs from what is in force (generation %llu).\n",
               (unsigned long long)generation);
    else if (o->dry_run)
        printf("\nNothing was changed.\n");
    else if (json_path_u64(buf_view(&reply), "generation", &generation) == 0)
        printf("\nIn force, as generation %llu.\n", (unsigned long long)generation);
    return 0;
}

static int apply(const void *options, struct err *err)
{
    const struct apply_options *o = options;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct remote api;
    int rc = str_eq(o->file, STR("-")) ? read_stdin(&text, err)
                                       : file_read(o->file.data, CONFIG_FILE_BYTES_MAX, &text, err);
    if (rc == 0) rc = remote_find(&o->place, &api, err);
    return rc < 0 ? rc : apply_text(&api, o, buf_view(&text), err);
}

static int run(int argc, char *const *argv)
{
    struct apply_options options;
    return command_run(&usage, argc, argv, &options, apply);
}

const struct command command_apply = {
    .name = "apply",
    .group = "Act",
    .about = "change services, pools, SLOs and budgets of a running fleet",
    .run = run,
};
