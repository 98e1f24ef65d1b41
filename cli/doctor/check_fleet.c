/* check_fleet.c - checks of the running fleet, as its controller shows it: parts, rights, versions, clocks.
 *
 * The controller measures each part's clock when it reports; its own clock is compared with ours at the
 * middle of a call. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/doctor/doctor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SILENT_S 3.0 /* six syncs of a router */
#define CLOCK_S 2.0  /* clocks that differ by more make logs, ages and certificates lie */
#define NONE_RUNS "no fleet runs"

static bool skip(struct doctor *d)
{
    if (d->answers) return false;
    doctor_say(d, CHECK_SKIPPED, NULL, "the controller does not answer");
    return true;
}

/* ---- the controller ---- */

/* Returns true if somebody says that there is a controller: a flag, or the record of `muster up`. */
static bool is_expected(const struct doctor *d)
{
    return d->o->place.controller.len > 0 || fleet_file_lives(&d->fleet.controller);
}

static void say_state(struct doctor *d, double ms)
{
    struct str reply = buf_view(&d->status), unreadable;
    bool observed = true;
    double up_s = 0;
    CLEANUP(buf_fini) struct buf age = { 0 };
    (void)json_path_bool(reply, "observed", &observed); /* absent: of an older release */
    (void)json_path_f64(reply, "uptime_s", &up_s);
    age_text(up_s, &age);
    if (json_path(reply, "unreadable", &unreadable) == 0 && unreadable.len > 2)
        doctor_say(d, CHECK_WARNING, "`muster status` names them, `muster gc` removes some",
                   "records of its store cannot be read");
    if (!observed)
        doctor_say(d, CHECK_WARNING, "see provider and offers, and its log",
                   "it still waits for a listing of a provider");
    doctor_say(d, CHECK_OK, NULL, "%s:%u answers in %.0f ms, up %s", d->api.host, d->api.port, ms,
               age.data);
}

void check_controller(struct doctor *d)
{
    struct err err = { 0 };
    if (!d->has_api) {
        doctor_say(d, CHECK_SKIPPED, NULL, "its address or our credential cannot be read");
        return;
    }
    int64_t began_us = clock_mono_us();
    int rc = remote_get(&d->api, "/api/v1/status", &d->status, &err);
    double ms = (double)(clock_mono_us() - began_us) / 1e3;
    d->answers = rc == 0;
    if (rc == 0)
        say_state(d, ms);
    else if (rc == -ECONNREFUSED && !is_expected(d))
        doctor_say(d, CHECK_SKIPPED, "`muster up -f FILE` starts one", NONE_RUNS " at %s:%u",
                   d->api.host, d->api.port);
    else
        doctor_say(d, CHECK_FAILED, "see its log, or name it with --controller and --state", "%s",
                   err_text(&err, rc));
}

void check_rights(struct doctor *d)
{
    CLEANUP(buf_fini) struct buf reply = { 0 }, role = { 0 }, who = { 0 };
    struct err err = { 0 };
    if (skip(d)) return;
    int rc = remote_get(&d->api, "/api/v1/whoami", &reply, &err);
    if (rc == 0) rc = json_path_text(buf_view(&reply), "role", &role);
    if (rc == 0) rc = json_path_text(buf_view(&reply), "who", &who);
    if (rc < 0)
        doctor_say(d, CHECK_SKIPPED, NULL, "the controller does not say: %s", err_text(&err, rc));
    else if (str_eq(buf_view(&role), STR("admin")))
        doctor_say(d, CHECK_OK, NULL, "we may look and give orders, as %s", who.data);
    else
        doctor_say(d, CHECK_WARNING,
                   "run as the owner of the state folder, or with --token of role admin",
                   "we may only look, as %s: orders are refused", who.data);
}

/* ---- parts ---- */

struct walk {
    struct doctor *d;
    uint32_t count, troubled;
    struct buf text;
};

static int each_router(void *ctx, struct str item)
{
    struct walk *w = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 }, host = { 0 }, reply = { 0 };
    struct remote router = w->d->api;
    struct err err = { 0 };
    double age_s = 0;
    uint64_t port = 0;
    if (json_path_text(item, "router", &name) < 0 || json_path_text(item, "host", &host) < 0 ||
        json_path_u64(item, "port", &port) < 0 || json_path_f64(item, "sync_age_s", &age_s) < 0 ||
        port == 0 || port > UINT16_MAX || host.len >= sizeof router.host)
        return -EPROTO;
    w->count++;
    if (age_s > SILENT_S) {
        doctor_say(w->d, CHECK_FAILED,
                   "start it again, or wait: it is forgotten after five minutes",
                   "%s at %s:%u is silent for %.0f s", name.data, host.data, (unsigned)port, age_s);
        return 0;
    }
    snprintf(router.host, sizeof router.host, "%s", host.data);
    router.port = (uint16_t)port;
    router.is_router = true;
    int rc = remote_get(&router, "/health", &reply, &err);
    if (rc < 0)
        doctor_say(w->d, CHECK_WARNING, "open the way from here, if clients come this way",
                   "%s reports, and cannot be reached from here: %s", name.data,
                   err_text(&err, rc));
    else
        doctor_say(w->d, CHECK_OK, NULL, "%s at %s:%u answers", name.data, host.data,
                   (unsigned)port);
    return 0;
}

void check_routers(struct doctor *d)
{
    struct walk w = { .d = d };
    if (skip(d)) return;
    int rc = json_path_each(buf_view(&d->status), "routers", each_router, &w);
    if (rc < 0)
        doctor_say(d, CHECK_FAILED, NULL, "the controller's list of routers is not understood");
    else if (w.count == 0)
        doctor_say(d, CHECK_FAILED, "start one: muster router --controller HOST:PORT",
                   "none has reported to the controller");
}

static int each_instance(void *ctx, struct str item)
{
    struct walk *w = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 }, trouble = { 0 };
    w->count++;
    if (json_path_text(item, "trouble", &trouble) < 0) return 0;
    if (json_path_text(item, "instance", &id) < 0) return -EPROTO;
    w->troubled++;
    doctor_say(w->d, CHECK_WARNING, "`muster describe instance ID`, and its log", "%s: %s", id.data,
               trouble.data ? trouble.data : "");
    return 0;
}

void check_instances(struct doctor *d)
{
    struct walk w = { .d = d };
    if (skip(d)) return;
    if (json_path_each(buf_view(&d->status), "instances", each_instance, &w) < 0)
        doctor_say(d, CHECK_FAILED, NULL, "the controller's list of instances is not understood");
    else if (w.troubled < w.count || w.count == 0)
        doctor_say(d, CHECK_OK, NULL, "%u of %u without trouble", w.count - w.troubled, w.count);
}

static int each_offer(void *ctx, struct str item)
{
    struct walk *w = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 }, class = { 0 }, error = { 0 };
    w->count++;
    if (json_path_text(item, "offer", &name) < 0) return -EPROTO;
    if (json_path_text(item, "last_error", &class) < 0) return 0;
    (void)json_path_text(item, "error", &error); /* absent: the class says it */
    bool person = str_eq(buf_view(&class), STR("auth")) || str_eq(buf_view(&class), STR("quota")) ||
                  str_eq(buf_view(&class), STR("invalid"));
    w->troubled++;
    doctor_say(w->d, person ? CHECK_FAILED : CHECK_WARNING,
               person ? "mend credentials, quota or the offer at the provider"
                      : "it is asked again by itself",
               "%s was refused for %s: %s", name.data, class.data, error.data ? error.data : "");
    return 0;
}

void check_offers(struct doctor *d)
{
    struct walk w = { .d = d };
    if (skip(d)) return;
    if (json_path_each(buf_view(&d->status), "offers", each_offer, &w) < 0)
        doctor_say(d, CHECK_FAILED, NULL, "the controller's list of offers is not understood");
    else if (w.troubled == 0)
        doctor_say(d, CHECK_OK, NULL, "%u, and none was refused of late", w.count);
}

/* ---- versions and clocks ---- */

/* Adds the name of a part whose version differs from ours, or is not told. */
static void add_version(struct walk *w, const char *what, struct str item, const char *name)
{
    CLEANUP(buf_fini) struct buf version = { 0 }, id = { 0 };
    if (name) (void)json_path_text(item, name, &id); /* absent: the kind alone is told */
    bool known = json_path_text(item, "version", &version) == 0;
    w->count++;
    if (known && str_eq(buf_view(&version), STR(MUSTER_VERSION))) return;
    if (!known && name) return; /* it has not reported yet, or is of a release that tells none */
    buf_printf(&w->text, "%s%s%s%s %s", w->troubled++ > 0 ? ", " : "", what, id.len ? " " : "",
               id.len ? id.data : "", known ? version.data : "(tells none)");
}

static int router_version(void *ctx, struct str item)
{
    add_version(ctx, "router", item, "router");
    return 0;
}

static int instance_version(void *ctx, struct str item)
{
    add_version(ctx, "instance", item, "instance");
    return 0;
}

void check_versions(struct doctor *d)
{
    struct walk w = { .d = d };
    struct str reply = buf_view(&d->status);
    if (skip(d)) return;
    add_version(&w, "controller", reply, NULL);
    (void)json_path_each(reply, "routers", router_version, &w); /* understood by the checks above */
    (void)json_path_each(reply, "instances", instance_version, &w);
    if (w.troubled > 0)
        doctor_say(d, CHECK_WARNING,
                   "finish the upgrade: two releases work together for a while only",
                   "this command is " MUSTER_VERSION "; %s", w.text.data);
    else
        doctor_say(d, CHECK_OK, NULL, "all of %u parts are " MUSTER_VERSION, w.count);
    buf_fini(&w.text);
}

static void add_clock(struct walk *w, const char *what, struct str item, const char *name)
{
    CLEANUP(buf_fini) struct buf id = { 0 };
    double ahead_s = 0;
    if (json_path_f64(item, "clock_ahead_s", &ahead_s) < 0) return; /* not known */
    w->count++;
    if (fabs(ahead_s) <= CLOCK_S) return;
    w->troubled++;
    (void)json_path_text(item, name, &id);
    doctor_say(w->d, CHECK_FAILED, "start chrony or systemd-timesyncd there",
               "%s %s is %.1f s %s the controller's clock", what, id.data ? id.data : "",
               fabs(ahead_s), ahead_s > 0 ? "ahead of" : "behind");
}

static int router_clock(void *ctx, struct str item)
{
    add_clock(ctx, "router", item, "router");
    return 0;
}

static int instance_clock(void *ctx, struct str item)
{
    add_clock(ctx, "instance", item, "instance");
    return 0;
}

/* Measures how far the controller's clock is ahead of ours. False: it does not say. */
static bool controller_ahead_s(struct doctor *d, double *ret)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    double now_us;
    int64_t began_us = clock_wall_us();
    if (remote_get(&d->api, "/api/v1/whoami", &reply, NULL) < 0) return false;
    int64_t middle_us = began_us + (clock_wall_us() - began_us) / 2;
    if (json_path_f64(buf_view(&reply), "now_us", &now_us) < 0) return false;
    *ret = (now_us - (double)middle_us) / 1e6;
    return true;
}

void check_clocks(struct doctor *d)
{
    struct walk w = { .d = d };
    struct str reply = buf_view(&d->status);
    double ahead_s;
    if (skip(d)) return;
    if (controller_ahead_s(d, &ahead_s)) {
        w.count++;
        if (fabs(ahead_s) > CLOCK_S) {
            w.troubled++;
            doctor_say(d, CHECK_FAILED, "start chrony or systemd-timesyncd on both machines",
                       "the controller's clock is %.1f s %s ours", fabs(ahead_s),
                       ahead_s > 0 ? "ahead of" : "behind");
        }
    }
    (void)json_path_each(reply, "routers", router_clock, &w); /* understood by the checks above */
    (void)json_path_each(reply, "instances", instance_clock, &w);
    if (w.troubled == 0)
        doctor_say(d, w.count > 0 ? CHECK_OK : CHECK_SKIPPED, NULL, "%u parts agree within %.0f s",
                   w.count, CLOCK_S);
}
