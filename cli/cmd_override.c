/* cmd_override.c - `muster scale`, `pause` and `resume`: override the policy's counts by hand. */
#include "cli/cmd_override.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/wire/order.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>
#include <unistd.h>

static int post(const struct remote *api, struct str service, const char *act, struct str body,
                struct err *err)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    buf_text(&path, "/api/v1/services/");
    remote_segment(&path, service);
    buf_printf(&path, "/%s", act);
    return remote_call(api, buf_view(&path), body, &reply, err);
}

int override_pause(const struct remote *api, struct str service, bool paused, struct err *err)
{
    return post(api, service, paused ? "pause" : "resume", STR("{}"), err);
}

int override_scale(const struct remote *api, struct str service, struct str pool, int64_t count,
                   struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct scale_order order = { pool, count };
    scale_order_encode(&order, &body);
    if (body.rc < 0) return err_set(err, body.rc, "no memory for the order");
    return post(api, service, "scale", buf_view(&body), err);
}

struct pools {
    struct str service;
    struct buf names; /* joined by ", " */
    uint32_t count;
};

static int add_pool(void *ctx, struct str item)
{
    struct pools *p = ctx;
    CLEANUP(buf_fini) struct buf service = { 0 };
    int rc = json_path_text(item, "service", &service);
    if (rc < 0 || !str_eq(buf_view(&service), p->service)) return rc;
    if (p->count++ > 0) buf_text(&p->names, ", ");
    return json_path_text(item, "pool", &p->names);
}

/* Splits SERVICE/POOL at the last slash: names of models have some, too. -ENOENT: there is none. */
static int split(struct str target, struct str *ret_service, struct buf *ret_pool)
{
    size_t slash = target.len;
    while (slash > 0 && target.data[slash - 1] != '/')
        slash--;
    if (slash < 2 || slash == target.len) return -ENOENT;
    *ret_service = str_of(target.data, slash - 1);
    return buf_str(ret_pool, str_of(target.data + slash, target.len - slash));
}

int override_target(const struct remote *api, struct str target, struct str *ret_service,
                    struct buf *ret_pool, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct pools p = { .service = target };
    int rc = remote_get(api, "/api/v1/pools", &reply, err);
    if (rc < 0) return rc;
    *ret_service = target;
    rc = json_path_each(buf_view(&reply), "pools", add_pool, &p);
    if (rc < 0)
        rc = err_set(err, -EPROTO, "the controller's list of pools is not understood");
    else if (p.count == 0 && (rc = split(target, ret_service, ret_pool)) == -ENOENT)
        rc = err_set(err, -ENOENT, "no service '" STR_FMT "'; `muster get services` lists them",
                     STR_ARG(target));
    else if (p.count > 1)
        rc = err_set(err, -EINVAL,
                     STR_FMT " has several pools: name one of " STR_FMT " as " STR_FMT "/POOL",
                     STR_ARG(target), STR_ARG(buf_view(&p.names)), STR_ARG(target));
    else if (p.count == 1)
        rc = buf_str(ret_pool, buf_view(&p.names));
    buf_fini(&p.names);
    return rc;
}

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
    if (rc == 0) rc = override_pause(&api, o->service, paused, err);
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
    struct str service = { 0 };
    int64_t count = ORDER_BY_POLICY;
    if (!str_eq(o->count, STR("auto")) && (str_to_i64(o->count, &count) < 0 || count < 0))
        return err_set(err, COMMAND_MISUSED, "'" STR_FMT "': want a number of instances, or auto",
                       STR_ARG(o->count));
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = override_target(&api, o->target, &service, &pool, err);
    if (rc == 0) rc = override_scale(&api, service, buf_view(&pool), count, err);
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

/* scale_to_zero_begin saves the counts and sets them to zero; scale_to_zero_end sets them back. */

#define FILE_NAME "rest.json"
#define FILE_BYTES_MAX ((size_t)1 << 20)

struct order {
    const struct remote *api;
    bool back; /* to the item's count; false: to zero */
    struct err *err;
};

static int set_pool(void *ctx, struct str item)
{
    const struct order *o = ctx;
    CLEANUP(buf_fini) struct buf service = { 0 };
    CLEANUP(buf_fini) struct buf pool = { 0 };
    double manual;
    int rc = json_path_text(item, "service", &service);
    if (rc == 0) rc = json_path_text(item, "pool", &pool);
    if (rc < 0) return err_set(o->err, -EPROTO, "the list of pools is not understood");
    int64_t count = 0;
    if (o->back)
        count = json_path_f64(item, "manual", &manual) == 0 ? (int64_t)manual : ORDER_BY_POLICY;
    rc = override_scale(o->api, buf_view(&service), buf_view(&pool), count, o->err);
    /* Since then the configuration may have lost the pool, or its maximum may have shrunk. */
    return o->back && (rc == -ENOENT || rc == -EINVAL) ? 0 : rc;
}

int scale_to_zero_begin(const struct remote *api, struct str state, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char path[PATH_MAX];
    struct str pools;
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc == 0) rc = remote_get(api, "/api/v1/pools", &reply, err);
    if (rc < 0) return rc;
    if (json_path(buf_view(&reply), "pools", &pools) < 0)
        return err_set(err, -EPROTO, "the controller's list of pools is not understood");
    if (access(path, F_OK) < 0) rc = file_write_atomic(path, pools, 0600, err);
    struct order o = { api, false, err };
    return rc < 0 ? rc : json_path_each(pools, "", set_pool, &o);
}

int scale_to_zero_end(const struct remote *api, struct str state, struct err *err)
{
    CLEANUP(buf_fini) struct buf pools = { 0 };
    char path[PATH_MAX];
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc == 0) rc = file_read(path, FILE_BYTES_MAX, &pools, err);
    if (rc == -ENOENT) return 0;
    struct order o = { api, true, err };
    if (rc == 0) rc = json_path_each(buf_view(&pools), "", set_pool, &o);
    if (rc == 0 && unlink(path) < 0) rc = err_set(err, -errno, "cannot remove %s", path);
    return rc;
}
