/* cmd_up.c - `muster up`: start controller and router in the background and wait until the fleet serves.
 *
 * Started processes are written down before anything is waited for, so that `muster down` can end them
 * however this command ends. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/models.h"
#include "cli/cmd_override.h"
#include "cli/command.h"
#include "cli/daemons.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "engine/model/model_check.h"
#include "router/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 250000
#define STOP_US 10000000

struct up_options {
    struct str config, state, listen, controller_listen;
    int64_t timeout_us;
};

#define AT(member) .offset = offsetof(struct up_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "file", .letter = 'f', .type = CONFIG_TEXT, .default_text = "muster.yaml", AT(config),
      .about = "Configuration of the fleet." },
    { .name = "state", .type = CONFIG_TEXT, AT(state),
      .about = "State directory; without it the file's controller.state (muster-state)." },
    { .name = "listen", .type = CONFIG_TEXT, AT(listen),
      .about = "HOST:PORT of the router, instead of the file's." },
    { .name = "controller_listen", .type = CONFIG_TEXT, AT(controller_listen),
      .about = "HOST:PORT of the controller, instead of the file's." },
    { .name = "timeout", .letter = 't', .type = CONFIG_DURATION, .default_text = "2m",
      .min = 1e6, .max = 864e8, AT(timeout_us),
      .about = "Wait so long for the first instances." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct up_options, rows);
static const struct opt_command usage = {
    .name = "muster up",
    .about = "Start a fleet: controller and router in the background, then the first instances.",
    .options = &record,
    .notes = "The fleet runs on when this command has ended; `muster down` drains and stops it.",
};

struct up {
    const struct up_options *o;
    const struct config *config;
    struct str state;
    struct fleet_file started;
    char controller_listen[FLEET_FILE_HOST_BYTES + 16], router_listen[FLEET_FILE_HOST_BYTES + 16];
    char origins[256];
    bool new_controller, new_router;
    int64_t until_us;
};

/* Reads "HOST:PORT" of a flag or the file into a process's record. */
static int read_listen(const char *what, struct str flag, struct str file, char *ret_text,
                       size_t size, struct fleet_file_part *ret, struct err *err)
{
    struct str text = flag.len > 0 ? flag : file, host;
    uint16_t port;
    int rc = router_address(text, &host, &port, err);
    if (rc < 0) return err_prefix(err, rc, "%s", what);
    if (port == 0)
        return err_set(err, -EINVAL, "%s: port 0 would be another one each time; name one", what);
    if (host.len >= sizeof ret->host || text.len >= size)
        return err_set(err, -EINVAL, "%s: the host is longer than %zu bytes", what,
                       sizeof ret->host - 1);
    if (ret->id.pid != 0) return 0; /* it runs already, and stays where it is */
    snprintf(ret->host, sizeof ret->host, STR_FMT, STR_ARG(host));
    snprintf(ret_text, size, STR_FMT, STR_ARG(text));
    ret->port = port;
    return 0;
}

/* Makes a path of the file absolute; "" for none. */
static int absolute(struct str path, char ret[PATH_MAX], struct err *err)
{
    ret[0] = 0;
    if (path.len == 0 || realpath(path.data, ret)) return 0;
    int rc = -errno;
    return err_set(err, rc, STR_FMT ": %s", STR_ARG(path), strerror(-rc));
}

/* Finds the TLS settings. Daemons that run already keep those that they were started with. */
static int find_tls(struct up *u, const struct tls_section *controller,
                    const struct tls_section *router, struct err *err)
{
    struct fleet_file *s = &u->started;
    struct fleet_file_tls *t = &s->tls;
    if (s->controller.id.pid == 0) s->controller.tls = controller->certificate.len > 0;
    if (s->router.id.pid == 0) s->router.tls = router->certificate.len > 0;
    t->on = s->controller.tls || s->router.tls;
    if (!t->on) return 0;
    int rc = absolute(controller->ca.len ? controller->ca : router->ca, t->ca, err);
    /* Where client certificates are required, the controller's own is accepted everywhere. */
    if (controller->client_ca.len == 0 && router->client_ca.len == 0) return rc;
    if (rc == 0) rc = absolute(controller->certificate, t->certificate, err);
    if (rc == 0) rc = absolute(controller->key, t->key, err);
    return rc;
}

/* Finds the secret's absolute path, because later commands may run in another folder. */
static int find_secret(struct up *u, const struct controller_section *c, struct err *err)
{
    char folder[PATH_MAX];
    struct fleet_file *s = &u->started;
    bool named = c->secret_file.len > 0;
    struct str path = named ? c->secret_file : u->state;
    if (!getcwd(folder, sizeof folder)) {
        int rc = -errno;
        return err_set(err, rc, "the current directory is not known: %s", strerror(-rc));
    }
    const char *base = str_starts(path, STR("/")) ? "" : folder;
    int len = snprintf(s->secret, sizeof s->secret, "%s%s" STR_FMT "%s", base, base[0] ? "/" : "",
                       STR_ARG(path), named ? "" : "/secret");
    if (len < (int)sizeof s->secret) return 0;
    return err_set(err, -ENAMETOOLONG, "the path of the secret is longer than %d bytes", PATH_MAX);
}

static int read_places(struct up *u, struct err *err)
{
    const struct controller_section *c = config_section_get(u->config, controller_section.name);
    const struct router_config *r = config_section_get(u->config, router_section.name);
    struct fleet_file *s = &u->started;
    int rc = fleet_file_read(u->state, s, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    if (!fleet_file_lives(&s->controller)) s->controller.id.pid = 0;
    if (!fleet_file_lives(&s->router)) s->router.id.pid = 0;
    rc = read_listen("controller.listen", u->o->controller_listen, c->listen, u->controller_listen,
                     sizeof u->controller_listen, &s->controller, err);
    if (rc == 0)
        rc = read_listen("router.listen", u->o->listen, r->listen, u->router_listen,
                         sizeof u->router_listen, &s->router, err);
    if (rc == 0) rc = find_tls(u, &c->tls, &r->tls, err);
    if (rc < 0) return rc;
    if (!realpath(u->o->config.data, s->config)) {
        rc = -errno;
        return err_set(err, rc, "%s: %s", u->o->config.data, strerror(-rc));
    }
    return find_secret(u, c, err);
}

/* ---- models ---- */

static bool show_check(void *bar, uint64_t done, uint64_t total)
{
    model_progress_show(bar, done, total);
    return true;
}

static int check_one(const struct up *u, struct str model, struct err *err)
{
    const struct models_section *m = config_section_get(u->config, models_section.name);
    const struct models_entry *e = models_find(m, model);
    struct model_progress bar = { 0 };
    char path[PATH_MAX], stamps[PATH_MAX];
    if (!e || e->sha256.len == 0) return 0;
    int rc = models_path(m, e, path, err);
    if (rc == 0) rc = fleet_file_path(u->state, MODELS_STAMPS, stamps, err);
    const struct model_check check = { path, e->sha256, stamps, show_check, &bar };
    if (rc == 0) rc = model_check(&check, NULL, err);
    model_progress_end(&bar);
    return rc;
}

/* Compares the models of this machine with their digests before anything starts. Engines find what was compared here;
 * those of other kinds compare nothing themselves. */
static int check_models(const struct up *u, struct err *err)
{
    const struct config_records *list = config_section_get(u->config, services_section.name);
    const struct service_section *s = list->items;
    for (size_t i = 0; i < list->count; i++) {
        const struct pool_section *pool = s[i].pools.items;
        for (size_t p = 0; p < s[i].pools.count; p++) {
            if (!str_eq(pool[p].provider, STR("local"))) continue;
            int rc = check_one(u, s[i].model, err);
            if (rc == 0) rc = check_one(u, pool[p].model, err);
            if (rc == 0) rc = check_one(u, s[i].engine.draft_model, err);
            if (rc < 0) return err_prefix(err, rc, "service %s", s[i].name.data);
        }
    }
    return 0;
}

/* ---- starting ---- */

static int start_controller(struct up *u, struct err *err)
{
    const char *args[] = { "--config", u->started.config, "--listen", u->controller_listen,
                           "--state",  u->state.data,     NULL };
    int rc = daemons_spawn(u->state, "controller", args, &u->started.controller.id, err);
    u->new_controller = rc == 0;
    return rc < 0 ? rc : fleet_file_write(u->state, &u->started, err);
}

/* Lets the console's pages call the router even when the controller listens elsewhere than the file says.
 * The origins of the file stay as they are otherwise. */
static void say_origins(struct up *u)
{
    const struct router_config *r = config_section_get(u->config, router_section.name);
    const char *scheme = u->started.controller.tls ? "https" : "http";
    size_t len = 0;
    for (size_t i = 0; i < r->cors_origins.count && len < sizeof u->origins; i++)
        len += (size_t)snprintf(u->origins + len, sizeof u->origins - len, STR_FMT ",",
                                STR_ARG(r->cors_origins.items[i]));
    if (len < sizeof u->origins)
        len += (size_t)snprintf(u->origins + len, sizeof u->origins - len,
                                "%s://127.0.0.1:%u,%s://localhost:%u", scheme,
                                u->started.controller.port, scheme, u->started.controller.port);
    if (len >= sizeof u->origins) u->origins[0] = 0; /* too many: as the file says */
}

static int start_router(struct up *u, struct err *err)
{
    char reach[FLEET_FILE_HOST_BYTES + 24];
    const struct fleet_file_part *c = &u->started.controller;
    CLEANUP(buf_fini) struct buf url = { 0 };
    fleet_file_url(c, &url);
    snprintf(reach, sizeof reach, "%s", url.data + (c->tls ? 0 : strlen("http://")));
    const char *args[] = {
        "--config", u->started.config, "--listen",        u->router_listen, "--controller",
        reach,      "--secret-file",   u->started.secret, "--cors-origins", u->origins,
        NULL
    };
    say_origins(u);
    if (!u->origins[0]) args[8] = NULL;
    int rc = daemons_spawn(u->state, "router", args, &u->started.router.id, err);
    u->new_router = rc == 0;
    return rc < 0 ? rc : fleet_file_write(u->state, &u->started, err);
}

static int64_t left_us(const struct up *u)
{
    return max_i64(0, u->until_us - clock_mono_us());
}

static int start_parts(struct up *u, struct err *err)
{
    int rc = 0;
    bool has_controller = u->started.controller.id.pid != 0;
    bool has_router = u->started.router.id.pid != 0;
    const struct daemons_place place = { u->state, &u->started.tls };
    if (!has_controller) rc = daemons_check_free(u->controller_listen, "--controller-listen", err);
    if (rc == 0 && !has_router) rc = daemons_check_free(u->router_listen, "--listen", err);
    if (rc == 0 && !has_controller) {
        fprintf(stderr, "starting the controller at %s\n", u->controller_listen);
        rc = start_controller(u, err);
    }
    if (rc == 0)
        rc = daemons_wait(&place, "controller", &u->started.controller, true, left_us(u), err);
    if (rc == 0 && !has_router) {
        fprintf(stderr, "starting the router at %s\n", u->router_listen);
        rc = start_router(u, err);
    }
    /* A router without an instance is up too; its requests wait for one. */
    if (rc == 0) rc = daemons_wait(&place, "router", &u->started.router, false, left_us(u), err);
    return rc;
}

/* Ends all that this command has started when the fleet did not come up, also the instances that the
 * controller launched meanwhile. */
static void take_back(struct up *u)
{
    struct fleet_file *s = &u->started;
    uint32_t ended;
    if (u->new_router) daemons_stop(&s->router, STOP_US, NULL);
    if (u->new_controller && daemons_stop(&s->controller, STOP_US, NULL) == 0)
        local_procs_kill(u->state, STOP_US, &ended, NULL);
    if (!fleet_file_lives(&s->router) && !fleet_file_lives(&s->controller))
        fleet_file_remove(u->state, NULL);
}

/* ---- waiting for instances ---- */

struct waiting {
    const struct config_records *services;
    struct buf said, now; /* progress as printed last, and now */
    uint32_t missing;
};

static bool must_run(const struct waiting *w, struct str name)
{
    const struct service_section *s = w->services->items;
    for (size_t i = 0; i < w->services->count; i++) {
        if (!str_eq(s[i].name, name)) continue;
        const struct pool_section *pool = s[i].pools.items;
        int64_t min = s[i].min;
        for (size_t p = 0; p < s[i].pools.count; p++)
            min += pool[p].min;
        return min > 0;
    }
    return false;
}

static int look_at_service(void *ctx, struct str service)
{
    struct waiting *w = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    uint64_t ready = 0, starting = 0;
    bool paused = false, drained = false;
    int rc = json_path_text(service, "service", &name);
    if (rc == 0) rc = json_path_u64(service, "ready", &ready);
    if (rc == 0) rc = json_path_u64(service, "starting", &starting);
    if (rc == 0) rc = json_path_bool(service, "paused", &paused);
    if (rc < 0) return rc;
    (void)json_path_bool(service, "drained", &drained); /* absent: of an older release */
    if (ready == 0 && !paused && !drained && must_run(w, buf_view(&name))) w->missing++;
    return buf_printf(&w->now, STR_FMT ": %llu ready, %llu starting%s\n", STR_ARG(buf_view(&name)),
                      (unsigned long long)ready, (unsigned long long)starting,
                      paused    ? ", paused by hand"
                      : drained ? ", drained by hand"
                                : "");
}

static int look_at_instance(void *ctx, struct str instance)
{
    struct waiting *w = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf trouble = { 0 };
    if (json_path_text(instance, "trouble", &trouble) < 0) return 0;
    int rc = json_path_text(instance, "instance", &name);
    return rc < 0 ? rc
                  : buf_printf(&w->now, "  %s: %s\n", name.data, trouble.data ? trouble.data : "");
}

/* Looks once at the fleet. Returns 0, or how many services have no ready instance though they should. */
static int look(const struct remote *api, struct waiting *w, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int rc = remote_get(api, "/api/v1/status", &reply, err);
    if (rc < 0) return rc;
    buf_clear(&w->now);
    w->missing = 0;
    rc = json_path_each(buf_view(&reply), "services", look_at_service, w);
    if (rc == 0) rc = json_path_each(buf_view(&reply), "instances", look_at_instance, w);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's status is not understood");
    if (!str_eq(buf_view(&w->now), buf_view(&w->said))) {
        fwrite(w->now.data, 1, w->now.len, stderr);
        buf_clear(&w->said);
        buf_str(&w->said, buf_view(&w->now));
    }
    return 0;
}

/* Waits until the controller leads, or another on its store does: a shared store has a lease to wait for. */
static int wait_leader(struct up *u, const struct remote *api, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int rc;
    while ((rc = remote_get(api, "/api/v1/services", &reply, err)) == -EAGAIN && left_us(u) > 0)
        usleep(POLL_US);
    return rc;
}

static int wait_instances(struct up *u, struct err *err)
{
    struct waiting w = { .services = config_section_get(u->config, services_section.name) };
    struct remote_place place = { .state = u->state };
    struct remote api;
    int rc = remote_find(&place, &api, err);
    if (rc == 0) rc = wait_leader(u, &api, err);
    if (rc == 0) rc = scale_to_zero_end(&api, u->state, err);
    while (rc == 0) {
        rc = look(&api, &w, err);
        if (rc < 0 || w.missing == 0) break;
        if (left_us(u) == 0) {
            char log[PATH_MAX];
            if (fleet_file_path(u->state, "controller.log", log, NULL) == 0) daemons_show_log(log);
            rc = err_set(err, -ETIMEDOUT,
                         "%u services have no instance yet; the fleet goes on starting: see "
                         "`muster status`, " STR_FMT "/controller.log and " STR_FMT
                         "/instances/*/engine.log; `muster down` ends it",
                         w.missing, STR_ARG(u->state), STR_ARG(u->state));
            break;
        }
        usleep(POLL_US);
    }
    buf_fini(&w.said);
    buf_fini(&w.now);
    return rc;
}

/* ---- the end ---- */

static void show_places(const struct up *u, bool ran_already)
{
    CLEANUP(buf_fini) struct buf router = { 0 };
    CLEANUP(buf_fini) struct buf controller = { 0 };
    bool usual = str_eq(u->state, STR(FLEET_FILE_STATE_DEFAULT));
    char state[PATH_MAX + 16] = "";
    fleet_file_url(&u->started.router, &router);
    fleet_file_url(&u->started.controller, &controller);
    if (!usual) snprintf(state, sizeof state, " --state " STR_FMT, STR_ARG(u->state));
    if (ran_already) printf("The fleet of " STR_FMT " already runs.\n\n", STR_ARG(u->state));
    printf("API      %s/v1      (OpenAI; router, pid %lld)\n"
           "console  %s/        (controller, pid %lld)\n\n"
           "Next: muster chat --url %s \"Tell me a story.\"\n"
           "      muster status%s\n"
           "      muster down%s\n",
           router.data, (long long)u->started.router.id.pid, controller.data,
           (long long)u->started.controller.id.pid, router.data, state, state);
}

static int go(struct up *u, struct err *err)
{
    char path[PATH_MAX];
    const struct controller_section *c = config_section_get(u->config, controller_section.name);
    int lock;
    u->state = u->o->state.len > 0 ? u->o->state : c->state;
    int rc = file_make_folders(u->state.data, 0700, err);
    if (rc == 0) rc = fleet_file_path(u->state, "up.lock", path, err);
    if (rc == 0) rc = file_lock(path, &lock, err);
    if (rc < 0) return rc;
    rc = read_places(u, err);
    bool ran_already = u->started.controller.id.pid != 0 && u->started.router.id.pid != 0;
    if (rc == 0 && !ran_already) rc = check_models(u, err);
    if (rc == 0 && !ran_already) {
        u->until_us = clock_mono_us() + u->o->timeout_us;
        rc = start_parts(u, err);
        if (rc < 0) take_back(u);
        if (rc == 0) rc = wait_instances(u, err);
    }
    if (rc == 0) show_places(u, ran_already);
    file_unlock(lock);
    return rc;
}

static int up(const void *options, struct err *err)
{
    const struct up_options *o = options;
    CLEANUP(config_freep) struct config *config = NULL;
    int rc = check_file(o->config.data, &config, NULL, err);
    if (rc < 0) return rc;
    struct up u = { .o = o, .config = config };
    return go(&u, err);
}

static int run(int argc, char *const *argv)
{
    struct up_options options;
    return command_run(&usage, argc, argv, &options, up);
}

const struct command command_up = {
    .name = "up",
    .group = "Fleet",
    .about = "start a fleet in the background",
    .run = run,
};
