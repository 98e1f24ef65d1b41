/* cmd_down.c - `muster down`: drain the instances, then stop router and controller. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "cli/cmd_override.h"
#include "cli/command.h"
#include "cli/daemons.h"
#include "cli/remote.h"

#include <stdio.h>
#include <unistd.h>

#define POLL_US 250000
#define STOP_US 15000000 /* from SIGTERM to SIGKILL */
#define KILL_US 10000000 /* for instances that are ended by force */

struct down_options {
    struct str state;
    int64_t timeout_us;
    bool now;
};

#define AT(member) .offset = offsetof(struct down_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "state", .type = CONFIG_TEXT, .default_text = FLEET_FILE_STATE_DEFAULT, AT(state),
      .about = "State directory of the fleet." },
    { .name = "timeout", .letter = 't', .type = CONFIG_DURATION, .default_text = "1m",
      .min = 1e6, .max = 864e8, AT(timeout_us),
      .about = "Let instances finish their requests for so long." },
    { .name = "now", .type = CONFIG_BOOL, .default_text = "false", AT(now),
      .about = "Do not drain: outputs that are under way break off." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct down_options, rows);
static const struct opt_command usage = {
    .name = "muster down",
    .about = "Stop a fleet: drain its instances, then end router and controller.",
    .options = &record,
    .notes = "What the fleet knows (keys, decisions, cost) stays in the state directory.",
};

/* ---- draining ---- */

struct tally {
    uint32_t ready, draining, other;
};

static int count(void *ctx, struct str instance)
{
    struct tally *t = ctx;
    CLEANUP(buf_fini) struct buf phase = { 0 };
    int rc = json_path_text(instance, "phase", &phase);
    if (rc < 0) return rc;
    if (str_eq(buf_view(&phase), STR("ready")))
        t->ready++;
    else if (str_eq(buf_view(&phase), STR("draining")))
        t->draining++;
    else
        t->other++;
    return 0;
}

static int wait_empty(const struct remote *api, int64_t timeout_us, struct err *err)
{
    int64_t until_us = clock_mono_us() + timeout_us;
    struct tally said = { UINT32_MAX, 0, 0 };
    for (;;) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        struct tally t = { 0 };
        int rc = remote_get(api, "/api/v1/instances", &reply, err);
        if (rc == 0) rc = json_path_each(buf_view(&reply), "instances", count, &t);
        if (rc < 0) return rc;
        uint32_t left = t.ready + t.draining + t.other;
        if (memcmp(&t, &said, sizeof t) != 0 && left > 0)
            fprintf(stderr, "%u instances left: %u ready, %u draining, %u starting or ending\n",
                    left, t.ready, t.draining, t.other);
        said = t;
        if (left == 0) return 0;
        if (clock_mono_us() >= until_us)
            return err_set(err, -ETIMEDOUT, "%u instances are still there", left);
        usleep(POLL_US);
    }
}

/* Drains the instances for the sake of clients. If that fails the fleet goes down all the same. */
static void drain(const struct down_options *o, const struct fleet_file *s)
{
    struct remote_place place = { .state = o->state };
    struct remote api;
    struct err err = { 0 };
    if (!fleet_file_lives(&s->controller)) {
        fprintf(stderr, "the controller has ended already: instances are stopped undrained\n");
        return;
    }
    int rc = remote_find(&place, &api, &err);
    if (rc == 0) rc = scale_to_zero_begin(&api, o->state, &err);
    if (rc == 0) rc = wait_empty(&api, o->timeout_us, &err);
    if (rc < 0) fprintf(stderr, "not drained: %s; they are ended now\n", err_text(&err, rc));
}

/* ---- stopping ---- */

static int stop(const struct down_options *o, const struct fleet_file *s, struct err *err)
{
    uint32_t ended = 0;
    int rc = daemons_stop(&s->router, STOP_US, err);
    if (rc == 0) rc = daemons_stop(&s->controller, STOP_US, err);
    if (rc == 0) rc = local_procs_kill(o->state, KILL_US, &ended, err);
    if (rc == 0 && ended > 0) fprintf(stderr, "%u instance processes were ended by force\n", ended);
    return rc;
}

static int take_down(const struct down_options *o, struct err *err)
{
    struct fleet_file s = { 0 };
    struct local_procs left;
    int rc = fleet_file_read(o->state, &s, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    bool found = rc == 0;
    rc = local_procs_find(o->state, &left, err);
    if (rc < 0) return rc;
    bool lives = fleet_file_lives(&s.router) || fleet_file_lives(&s.controller);
    if (!lives && left.count == 0) {
        printf("Nothing of " STR_FMT " runs.\n", STR_ARG(o->state));
        return found ? fleet_file_remove(o->state, err) : 0;
    }
    if (!o->now) drain(o, &s);
    rc = stop(o, &s, err);
    if (rc == 0) rc = fleet_file_remove(o->state, err);
    if (rc == 0) printf("The fleet of " STR_FMT " is down.\n", STR_ARG(o->state));
    return rc;
}

static int down(const void *options, struct err *err)
{
    const struct down_options *o = options;
    char path[PATH_MAX];
    int lock;
    int rc = fleet_file_path(o->state, "up.lock", path, err);
    if (rc < 0) return rc;
    if (access(o->state.data, F_OK) < 0) {
        printf("Nothing was started from " STR_FMT ".\n", STR_ARG(o->state));
        return 0;
    }
    rc = file_lock(path, &lock, err);
    if (rc < 0) return rc;
    rc = take_down(o, err);
    file_unlock(lock);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct down_options options;
    return command_run(&usage, argc, argv, &options, down);
}

const struct command command_down = {
    .name = "down",
    .group = "Fleet",
    .about = "drain and stop a fleet",
    .run = run,
};
