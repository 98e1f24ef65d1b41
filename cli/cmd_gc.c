/* cmd_gc.c - `muster gc`: show what the fleet has lost sight of, and with --yes remove it.
 *
 * The controller judges and removes, by the rules of its intents. Where none runs, the state directory of
 * this machine is looked at for what local instances have left, and nothing else: what a provider has
 * cannot be told from what a fleet needs without the fleet's intents. The store's lock is held meanwhile, so
 * that no controller starts in between. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "controller/cloud/cloud_local.h"

#include <stdio.h>
#include <unistd.h>

#define PATH "/api/v1/gc"
#define LOCK_NAME "muster.db.lock" /* of the store in the state directory */

struct gc_options {
    struct remote_place place;
    bool yes;
    int output;
};

// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct gc_options, place),
    { .name = "yes", .letter = 'y', .type = CONFIG_BOOL, .default_text = "false",
      .offset = offsetof(struct gc_options, yes),
      .about = "Remove what may go; without it nothing is changed." },
    REMOTE_TREES_ROW(struct gc_options, output),
};
static const struct table_column columns[] = {
    { "KIND", "kind", TABLE_TEXT },       { "NAME", "name", TABLE_TEXT },
    { "PROVIDER", "provider", TABLE_TEXT }, { "ACTION", "action", TABLE_STATE },
    { "WHY", "why", TABLE_TEXT },         { "NEXT", "next", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct gc_options, rows);
static const struct opt_command usage = {
    .name = "muster gc",
    .about = "Show instances, intents and records that nothing needs, and remove them with --yes.",
    .options = &record,
    .notes = "An instance that serves, or may serve, is never removed. Without a running "
             "controller only\n"
             "folders that local instances left in the state directory are looked at.",
};

/* ---- without a controller ---- */

struct sweep {
    struct json_writer w;
    uint32_t removed, kept;
};

static void on_leftover(void *arg, const struct cloud_leftover *one)
{
    struct sweep *s = arg;
    s->removed += one->removed;
    s->kept += !one->removed;
    json_object(&s->w);
    json_kv_text(&s->w, "kind", "leftover");
    json_kv_text(&s->w, "name", one->name);
    json_kv_text(&s->w, "provider", "local");
    json_kv_text(&s->w, "action", one->removed ? "removed" : one->removable ? "remove" : "keep");
    json_kv_text(&s->w, "why", one->why);
    json_kv_text(&s->w, "next",
                 one->removable ? NULL
                                : "`muster up` takes it up again, `muster down --now` ends it");
    json_object_end(&s->w);
}

/* Keeps controllers off the state directory; -EBUSY when one runs. */
static int lock_store(struct str state, int *ret_lock, struct err *err)
{
    char path[PATH_MAX];
    int rc = fleet_file_path(state, LOCK_NAME, path, err);
    if (rc == 0) rc = file_lock(path, ret_lock, err);
    if (rc == -EBUSY)
        return err_prefix(err, rc, "a controller runs on " STR_FMT " and does not answer",
                          STR_ARG(state));
    return rc;
}

static int sweep_folder(const struct gc_options *o, struct buf *out, struct err *err)
{
    char folder[PATH_MAX];
    struct sweep s = { 0 };
    int lock, rc = fleet_file_path(o->place.state, "instances", folder, err);
    if (rc == 0) rc = lock_store(o->place.state, &lock, err);
    if (rc < 0) return rc;
    json_writer_init(&s.w, out);
    json_object(&s.w);
    json_kv_bool(&s.w, "controller", false);
    json_key(&s.w, "orphans");
    json_array(&s.w);
    if (access(folder, F_OK) == 0)
        rc = cloud_local_leftovers(folder, true, o->yes, on_leftover, &s, err);
    json_array_end(&s.w);
    json_kv_u64(&s.w, "removed", s.removed);
    json_kv_u64(&s.w, "kept", s.kept);
    json_object_end(&s.w);
    file_unlock(lock);
    return rc < 0 ? rc : out->rc;
}

/* Returns true if the state directory may be looked at in place of a controller: no other place was named,
 * and there is one. */
static bool may_sweep(const struct gc_options *o)
{
    return o->place.controller.len == 0 && access(o->place.state.data, W_OK) == 0;
}

/* ---- the answer ---- */

static int show(const struct gc_options *o, struct str reply, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str orphans;
    uint64_t removed = 0, kept = 0;
    if (json_path(reply, "orphans", &orphans) < 0 ||
        json_path_u64(reply, "removed", &removed) < 0 || json_path_u64(reply, "kept", &kept) < 0)
        return err_set(err, -EPROTO, "the controller's list of orphans is not understood");
    if (removed + kept == 0) {
        printf("Nothing is left over.\n");
        return 0;
    }
    struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
    int rc = table_print(&t, orphans, &text);
    if (rc == 0 && o->yes)
        buf_printf(&text, "\n%llu removed, %llu kept.\n", (unsigned long long)removed,
                   (unsigned long long)kept);
    if (rc == 0 && !o->yes) buf_text(&text, "\nNothing was changed; --yes removes what may go.\n");
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&text, err);
}

static int gc(const void *options, struct err *err)
{
    const struct gc_options *o = options;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct remote api;
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0)
        rc = remote_call(&api, STR(PATH), o->yes ? STR("{}") : (struct str){ 0 }, &reply, err);
    if (rc == -ECONNREFUSED && may_sweep(o)) {
        buf_clear(&reply);
        rc = sweep_folder(o, &reply, err);
        if (rc == 0)
            fprintf(stderr,
                    "No controller runs on " STR_FMT ": only its local instances' folders "
                    "are looked at.\n",
                    STR_ARG(o->place.state));
    }
    if (rc < 0) return rc;
    if (o->output != REMOTE_TABLE) return remote_print(o->output, &reply, err);
    return show(o, buf_view(&reply), err);
}

static int run(int argc, char *const *argv)
{
    struct gc_options options;
    return command_run(&usage, argc, argv, &options, gc);
}

const struct command command_gc = {
    .name = "gc",
    .group = "Act",
    .about = "show what nothing needs, and remove it",
    .run = run,
};
