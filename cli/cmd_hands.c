/* cmd_hands.c - `muster pause`, `resume` and `scale`: what people may order the controller. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/order.h"
#include "cli/cmd_run.h"
#include "cli/command.h"
#include "cli/hands.h"

#include <stdio.h>

struct pause_options {
    struct remote_place place;
    struct str service;
};

struct scale_options {
    struct remote_place place;
    struct str target, count;
};

// clang-format off
static const struct config_field pause_rows[] = { REMOTE_ROWS(struct pause_options, place) };
static const struct opt_positional pause_positionals[] = {
    { .name = "SERVICE", .required = true, .offset = offsetof(struct pause_options, service),
      .about = "Name of the service." },
};
static const struct config_field scale_rows[] = { REMOTE_ROWS(struct scale_options, place) };
static const struct opt_positional scale_positionals[] = {
    { .name = "SERVICE[/POOL]", .required = true, .offset = offsetof(struct scale_options, target),
      .about = "The pool; it may be left out where the service has only one." },
    { .name = "COUNT", .required = true, .offset = offsetof(struct scale_options, count),
      .about = "Instances, or auto: back to the policy." },
};
// clang-format on
static const struct config_record pause_record = CONFIG_RECORD_OF(struct pause_options, pause_rows);
static const struct config_record scale_record = CONFIG_RECORD_OF(struct scale_options, scale_rows);
static const struct opt_command pause_usage = {
    .name = "muster pause",
    .about = "Keep a service's fleet as it is, whatever the load does.",
    .options = &pause_record,
    .positionals = pause_positionals,
    .positional_count = COUNT_OF(pause_positionals),
};
static const struct opt_command resume_usage = {
    .name = "muster resume",
    .about = "Let a paused service follow its load again.",
    .options = &pause_record,
    .positionals = pause_positionals,
    .positional_count = COUNT_OF(pause_positionals),
};
static const struct opt_command scale_usage = {
    .name = "muster scale",
    .about = "Set how many instances a pool has, until it is set to auto.",
    .options = &scale_record,
    .positionals = scale_positionals,
    .positional_count = COUNT_OF(scale_positionals),
    .notes = "The count stays over restarts of the controller. What is too much is drained, not "
             "cut off.",
};

static int order(const struct pause_options *o, bool paused, struct err *err)
{
    struct remote api;
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = hands_pause(&api, o->service, paused, err);
    if (rc < 0) return rc;
    printf(paused ? STR_FMT " is paused: its fleet stays as it is until `muster resume " STR_FMT
                            "`.\n"
                  : STR_FMT " follows its load again; `muster get pools` shows what " STR_FMT
                            " has.\n",
           STR_ARG(o->service), STR_ARG(o->service));
    return 0;
}

static int pause_it(const void *options, struct err *err)
{
    return order(options, true, err);
}

static int resume_it(const void *options, struct err *err)
{
    return order(options, false, err);
}

static int scale(const void *options, struct err *err)
{
    const struct scale_options *o = options;
    CLEANUP(buf_fini) struct buf pool = { 0 };
    struct remote api;
    struct str rest = o->target, service = str_cut(&rest, '/');
    int64_t count = ORDER_BY_POLICY;
    if (!str_eq(o->count, STR("auto")) && (str_to_i64(o->count, &count) < 0 || count < 0))
        return err_set(err, COMMAND_MISUSED, "'" STR_FMT "': want a number of instances, or auto",
                       STR_ARG(o->count));
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0)
        rc = rest.len > 0 ? buf_str(&pool, rest) : hands_only_pool(&api, service, &pool, err);
    if (rc == 0) rc = hands_scale(&api, service, buf_view(&pool), count, err);
    if (rc < 0) return rc;
    if (count == ORDER_BY_POLICY)
        printf(STR_FMT "/" STR_FMT " follows its policy again.\n", STR_ARG(service),
               STR_ARG(buf_view(&pool)));
    else
        printf(STR_FMT "/" STR_FMT " is set to %lld, until `muster scale " STR_FMT "/" STR_FMT
                       " auto`.\n",
               STR_ARG(service), STR_ARG(buf_view(&pool)), (long long)count, STR_ARG(service),
               STR_ARG(buf_view(&pool)));
    return 0;
}

static int run_pause(int argc, char *const *argv)
{
    struct pause_options options;
    return command_run(&pause_usage, argc, argv, &options, pause_it);
}

static int run_resume(int argc, char *const *argv)
{
    struct pause_options options;
    return command_run(&resume_usage, argc, argv, &options, resume_it);
}

static int run_scale(int argc, char *const *argv)
{
    struct scale_options options;
    return command_run(&scale_usage, argc, argv, &options, scale);
}

const struct command command_pause = {
    .name = "pause",
    .group = "Act",
    .about = "keep a service's fleet as it is",
    .run = run_pause,
};
const struct command command_resume = {
    .name = "resume",
    .group = "Act",
    .about = "let a paused service follow its load again",
    .run = run_resume,
};
const struct command command_scale = {
    .name = "scale",
    .group = "Act",
    .about = "set how many instances a pool has",
    .run = run_scale,
};
