/* controller.c - opens the state folder, listens, and ticks while it leads, until a signal.
 *
 * A term of leadership (leader.h) has a struct control of its own, which is made from the store when the term
 * begins and dropped when it ends: whoever takes over restores, observes and only then acts. With a store of
 * its own the process is in one term from its start to its end. */
#include "controller/controller.h"

#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/io/notify.h"
#include "base/io/proc.h"
#include "controller/access.h"
#include "controller/api.h"
#include "controller/aside.h"
#include "controller/cloud/cloud_adopted.h"
#include "controller/cloud/cloud_thread.h"
#include "controller/cloud/kube/kube_cloud.h"
#include "controller/control_metrics.h"
#include "controller/fleet_clock.h"
#include "controller/leader.h"
#include "controller/live_config.h"
#include "controller/objects/service_objects.h"
#include "controller/orders.h"
#include "fleet/controllers.h"
#include "fleet/defaults.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SETUP_ARENA_BYTES ((size_t)4 << 20)
#define STORE_BYTES_MAX ((uint64_t)256 << 20)
#define LOOK_US 2000000 /* between two looks at the configuration's file */

/* The services that are in force, and the memory of their command lines. */
struct in_force {
    struct controller_config config;
    struct arena arena;
};

struct controller {
    const struct controller_config *config; /* of the start */
    struct live_config live;                /* of the term */
    struct in_force *now;            /* of the term; what may change while it runs is read here */
    struct service_objects *objects; /* NULL: services of objects are not taken */
    struct loop_timer look;
    struct arena arena;
    struct loop *loop;
    struct store *store;
    int lock; /* of the state folder, where the store is elsewhere; -1: none */
    struct fleet_clock clock;
    struct cloud cloud[CONTROL_CLOUDS_MAX];
    uint32_t cloud_count;
    const struct cloud *adopted; /* one of them; NULL: it is not open */
    struct cloud_fence fence;
    struct kube_settings kube;
    uint64_t tokens_at; /* store_changes when the tokens of one that stands by were read */
    struct api *api;
    struct metrics *metrics;
    struct control_setup setup;
    uint64_t seed;
    struct leader *leader;
    struct control *control; /* NULL: it stands by */
    struct loop_timer tick;
    struct notify_watch watch;
    struct credentials held;
    struct key_file scrapers;
    char secret_path[PATH_MAX], keys_path[PATH_MAX], program[PATH_MAX], listen_host[ADDR_TEXT_MAX];
    struct tls *tls; /* NULL: plain HTTP */
    struct addr listen;
    struct str *hosts;               /* host names that requests may use; in the arena */
    char reach[STORE_ADDRESS_BYTES]; /* where others find us */
    bool failed;
};

static int show_config(void *arg, struct buf *out);
static int apply_config(void *arg, const struct config_order *o, const char *by, struct buf *out,
                        struct err *err);
static int open_live(struct controller *c, struct err *err);
static void close_live(struct controller *c);

/* ---- the configuration in force ---- */

/* Fills what may change in a running controller from the configuration in `f`. */
static int fill_live(const struct controller *c, struct in_force *f, struct control_setup *setup,
                     struct err *err)
{
    const struct controller_section *s = f->config.controller;
    struct offer *offers = arena_array(&f->arena, PLAN_OFFERS_MAX, sizeof *offers);
    uint32_t offer_count = 0;
    if (!offers) return err_set(err, -ENOMEM, "no memory for offers");
    setup->merge = MERGE_CONFIG_DEFAULT;
    setup->merge.boot_us = s->boot_us;
    setup->merge.drain_us = s->drain_us + s->drain_us / 10; /* the agent's deadline comes first */
    setup->merge.silent_us = s->silent_us;
    setup->tick_us = s->tick_us;
    setup->lease_ms = (uint32_t)(s->lease_us / 1000);
    setup->grace_ms = (uint64_t)s->grace_us / 1000;
    setup->age_ms = (uint64_t)s->age_us / 1000;
    setup->drain_ms = (uint64_t)s->drain_us / 1000;
    setup->decisions_max = (uint64_t)s->decisions_max;
    setup->keys_required = s->require_keys;
    for (uint32_t i = 0; i < c->cloud_count; i++) {
        uint32_t count = 0;
        int rc = c->cloud[i].driver->offers(c->cloud[i].ctx, &offers[offer_count],
                                            PLAN_OFFERS_MAX - offer_count, &count, err);
        if (rc < 0) return rc;
        offer_count += count;
    }
    return setup_services(&f->config, offers, offer_count, str_from(c->program), &f->arena, setup,
                          err);
}

static int in_force_new(const struct config *config, struct in_force **ret, struct err *err)
{
    struct in_force *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, -ENOMEM, "no memory for the configuration");
    arena_init(&f->arena, SETUP_ARENA_BYTES);
    controller_config_fill(&f->config, config);
    *ret = f;
    return 0;
}

static void in_force_free(struct in_force *f)
{
    if (f) arena_fini(&f->arena);
    free(f);
}

static void in_force_freep(struct in_force **f)
{
    in_force_free(*f);
    *f = NULL;
}

/* ---- leading ---- */

static bool leads(void *arg)
{
    struct controller *c = arg;
    return c->leader && leader_leads(c->leader);
}

static struct str leader_of(void *arg)
{
    struct controller *c = arg;
    return c->leader ? leader_address(c->leader) : (struct str){ 0 };
}

static void tick_at(struct controller *c, int64_t at_us)
{
    if (loop_timer_set(c->loop, &c->tick, at_us) < 0) {
        c->failed = true;
        loop_stop(c->loop);
    }
}

/* Takes completions that no control waits for any more, so that they do not fill a cloud's queue. */
static void drop_events(struct controller *c)
{
    struct cloud_event *e = malloc(sizeof *e);
    for (uint32_t i = 0; e && i < c->cloud_count; i++) {
        while (c->cloud[i].driver->next(c->cloud[i].ctx, fleet_clock_now(&c->clock), e)) {
        }
    }
    free(e);
}

/* Takes completions of calls to providers at once, so that the next state is not a tick away. */
static void on_urgent(void *arg);
static void on_cloud(void *arg)
{
    struct controller *c = arg;
    if (!c->control) {
        drop_events(c);
        return;
    }
    (void)control_calls(c->control, fleet_clock_now(&c->clock)); /* no fault is armed here */
    if (control_is_urgent(c->control)) on_urgent(c);
}

/* Wakes the loop; runs on a cloud's thread. The next tick makes up for a refused post. */
static void wake_for_cloud(void *arg)
{
    struct controller *c = arg;
    (void)loop_post(c->loop, on_cloud, c);
}

static int open_adopted(struct controller *c, const struct controller_config *config,
                        struct err *err);
static int begin_term(void *arg, uint64_t epoch, struct err *err)
{
    struct controller *c = arg;
    struct control_setup setup;
    int rc = fleet_clock_open(&c->clock, c->store, err);
    if (rc < 0) return err_prefix(err, rc, "controller.state");
    rc = open_live(c, err);
    if (rc < 0) return rc;
    drop_events(c);
    /* No two terms draw the same ids, not even under a seed that was configured: a provider may remember an id
     * for longer than we do. */
    bool alone = !store_is_shared(c->store) && c->setup.term.epoch == 0;
    c->setup.seed = c->seed ^ (alone ? 0 : hash64(&epoch, sizeof epoch, 0));
    c->setup.term = (struct control_term){ epoch, leads, c };
    setup = c->setup;
    rc = open_adopted(c, &c->now->config, err);
    setup.cloud_count = c->cloud_count;
    if (c->adopted) {
        setup.adopted = cloud_adopted_heard;
        setup.adopted_ctx = c->adopted->ctx;
    }
    if (rc == 0) rc = fill_live(c, c->now, &setup, err);
    if (rc == 0) rc = control_new(&setup, fleet_clock_now(&c->clock), &c->control, err);
    if (rc < 0) {
        close_live(c);
        return rc;
    }
    control_claim(c->control);
    if (c->clock.unreadable)
        control_set_aside(c->control, STR("clock"), "damaged, or of a newer release");
    control_watch_clouds(c->control, wake_for_cloud, c);
    api_attach(c->api, c->control);
    if (service_objects_begin(c->objects, c->control, err) < 0)
        log_event(LOG_ERROR, "service_objects_not_watched", "error=%s", err->text);
    tick_at(c, clock_mono_us());
    return 0;
}

static void end_term(void *arg)
{
    struct controller *c = arg;
    loop_timer_clear(c->loop, &c->tick);
    service_objects_end(c->objects);
    api_attach(c->api, NULL);
    control_free(c->control);
    c->control = NULL;
    close_live(c);
    control_metrics_rest(c->metrics);
    c->tokens_at = 0;
}

/* People's tokens open what a controller shows while it stands by. */
static void on_standby(void *arg)
{
    struct controller *c = arg;
    uint64_t changes = store_changes(c->store, STR("token/"));
    if (changes && changes == c->tokens_at) return;
    struct tokens *t = malloc(sizeof *t);
    if (t && tokens_load(c->store, t, NULL) == 0) {
        api_tokens(c->api, t);
        c->tokens_at = changes;
    }
    free(t);
}

/* ---- ticks ---- */

static void on_tick(void *arg)
{
    struct controller *c = arg;
    loop_assert_owner(c->loop);
    tick_at(c, loop_now_us(c->loop) + c->now->config.controller->tick_us);
    if (!leader_leads(c->leader)) return; /* the leader's timer is due, and ends the term */
    struct err err = { 0 };
    int rc = fleet_clock_keep(&c->clock, &err);
    if (rc < 0) {
        metric_inc(metric_of(c->metrics, CONTROL_M_STORE_FAILURES));
        log_event(LOG_ERROR, "time_not_written", "error=%s", err_text(&err, rc));
    }
    control_date(c->control, fleet_clock_date_ahead(&c->clock));
    (void)control_tick(c->control, fleet_clock_now(&c->clock)); /* no fault is armed here */
    leader_check(c->leader, control_epoch_seen(c->control));
    if (!c->control) return; /* the term is over */
    api_broadcast(c->api);
    if (control_is_urgent(c->control)) tick_at(c, loop_now_us(c->loop) + URGENT_TICK_US);
}

static void on_urgent(void *arg)
{
    struct controller *c = arg;
    int64_t soon = loop_now_us(c->loop) + URGENT_TICK_US;
    if (loop_timer_is_set(&c->tick) && c->tick.node.key <= soon) return;
    tick_at(c, soon);
}

static void on_signal(void *arg, int signo)
{
    struct controller *c = arg;
    log_event(LOG_INFO, "controller_leaves", "signal=%d", signo);
    notify_stopping("ends; the fleet goes on without it");
    loop_stop(c->loop);
}

/* ---- start ---- */

static int state_path(const struct controller *c, const char *name, char ret[PATH_MAX],
                      struct err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", c->config->controller->state.data, name);
    if (n < 0 || n >= PATH_MAX) return err_set(err, -ENAMETOOLONG, "controller.state is too long");
    return 0;
}

/* Makes a path absolute: instances get it and run elsewhere, so it must not depend on our working folder. */
static int absolute(char path[PATH_MAX], struct err *err)
{
    char real[PATH_MAX];
    if (!realpath(path, real)) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    memcpy(path, real, PATH_MAX);
    return 0;
}

static int open_store(struct controller *c, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    char path[PATH_MAX];
    if (str_eq(s->store, STR(STORE_FILE))) {
        int rc = state_path(c, "muster.db", path, err);
        if (rc == 0) rc = store_file_open(path, STORE_BYTES_MAX, &c->store, err);
        return rc < 0 ? err_prefix(err, rc, "controller.state") : 0;
    }
    int rc = setup_shared_store(c->config, (const char *const *)environ, &c->store, err);
    if (rc < 0) return err_prefix(err, rc, "controller.store");
    /* Nobody may take the folder for one without a controller, nor for a file store's. */
    rc = state_path(c, "muster.db.lock", path, err);
    return rc < 0 ? rc : file_lock_shared(path, &c->lock, err);
}

static int open_state(struct controller *c, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    int rc = file_make_folders(s->state.data, 0700, err);
    if (rc < 0) return err_prefix(err, rc, "controller.state");
    rc = open_store(c, err);
    if (rc < 0) return rc;
    rc = state_path(c, "keys", c->keys_path, err);
    if (rc < 0) return rc;
    if (s->secret_file.len)
        snprintf(c->secret_path, sizeof c->secret_path, "%s", s->secret_file.data);
    else
        rc = state_path(c, "secret", c->secret_path, err);
    char secret[2 * FILE_SECRET_BYTES + 1] = "";
    if (rc == 0) rc = file_secret(c->secret_path, secret, err);
    if (rc == 0) credentials_of_secret(str_from(secret), &c->held);
    explicit_bzero(secret, sizeof secret);
    if (rc == 0) rc = absolute(c->secret_path, err);
    return rc;
}

static int open_local(struct controller *c, struct err *err)
{
    char folder[PATH_MAX];
    struct local_config local = { 0 };
    int rc = state_path(c, "instances", folder, err);
    if (rc == 0) rc = file_make_folders(folder, 0700, err);
    if (rc == 0) rc = absolute(folder, err);
    if (rc == 0)
        rc = setup_local(c->config->local, &c->arena, &local.offer, &local.offer_count,
                         &local.machine_share, err);
    if (rc < 0) return rc;
    const char *const agent[] = { c->program, "agent",
                                  c->config->controller->send_secret ? "--send-secret" : NULL,
                                  NULL };
    local.folder = folder;
    local.agent = agent;
    void *ctx;
    rc = cloud_local_open(&local, &ctx, err);
    if (rc < 0) return rc;
    const struct cloud pace = { .poll_us = c->config->local->poll_us,
                                .calls_per_s = c->config->local->calls_per_s,
                                .fence = &c->fence };
    rc = cloud_thread_new(&cloud_local_backend, ctx, &pace, &c->cloud[c->cloud_count], err);
    c->cloud_count += rc == 0;
    return rc;
}

static int open_kube(struct controller *c, struct err *err)
{
    uint64_t seed;
    int rc = setup_kube(c->config, &c->arena, &c->kube, err);
    if (rc == 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc < 0) return rc;
    c->kube.fence = &c->fence;
    c->kube.meters = (struct kube_meters){ .metrics = c->metrics,
                                           .calls = CONTROL_M_KUBE_CALLS,
                                           .seconds = CONTROL_M_KUBE_SECONDS,
                                           .waited_seconds = CONTROL_M_KUBE_WAITED };
    rc = kube_cloud_open(c->loop, &c->kube, c->config->controller->drain_us,
                         (const char *const *)environ, seed, &c->cloud[c->cloud_count], err);
    c->cloud_count += rc == 0;
    return rc;
}

/* Without offers of a cluster there is this machine, with offers or without. */
static int open_clouds(struct controller *c, struct err *err)
{
    bool kube = kube_is_wanted(c->config->kube);
    int rc = proc_self_path(c->program, sizeof c->program);
    if (rc == 0 && (!kube || c->config->local->offers.count > 0)) rc = open_local(c, err);
    if (rc == 0 && kube) rc = open_kube(c, err);
    return rc;
}

/* Splits controller.agents_reach, with or without "https://", into host and port. */
static int split_reach(struct str text, struct str *ret_host, uint32_t *ret_port, struct err *err)
{
    tls_url_cut(&text);
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':')
        colon--;
    uint64_t port;
    if (colon < 2 || str_to_u64(str_of(text.data + colon, text.len - colon), &port) < 0 ||
        port < 1 || port > 65535)
        return err_set(err, -EINVAL, "controller.agents_reach: want HOST:PORT");
    *ret_host = str_of(text.data, colon - 1);
    *ret_port = (uint32_t)port;
    return 0;
}

/* Gathers the host names of the configuration and the one that agents are told, with and without port. */
static int gather_hosts(struct controller *c, size_t *ret_count, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    size_t count = s->hosts.count;
    c->hosts = arena_alloc(&c->arena, (count + 2) * sizeof *c->hosts);
    if (!c->hosts) return err_set(err, -ENOMEM, "controller: no memory");
    if (count) memcpy(c->hosts, s->hosts.items, count * sizeof *c->hosts);
    if (s->agents_reach.len) {
        struct str host;
        uint32_t port;
        int rc = split_reach(s->agents_reach, &host, &port, err);
        if (rc < 0) return rc;
        struct str with_port = s->agents_reach;
        tls_url_cut(&with_port);
        c->hosts[count++] = host;
        c->hosts[count++] = with_port;
    }
    *ret_count = count;
    return 0;
}

static int open_api(struct controller *c, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    int rc = addr_parse(&c->listen, s->listen, err);
    if (rc < 0) return err_prefix(err, rc, "controller.listen");
    addr_host(&c->listen, c->listen_host);
    size_t host_count = 0;
    rc = key_file_load(s->metrics_key_file, &c->scrapers, err);
    if (rc < 0) return err_prefix(err, rc, "controller.metrics_key_file");
    rc = tls_section_open(&s->tls, &c->tls, NULL, err);
    if (rc < 0) return err_prefix(err, rc, "controller.tls");
    rc = gather_hosts(c, &host_count, err);
    if (rc < 0) return rc;
    struct api_config api = { .host = c->listen_host,
                              .port = c->listen.port,
                              .require_secret = s->require_secret || !addr_is_loopback(&c->listen),
                              .held = &c->held,
                              .scrapers = &c->scrapers,
                              .tls = c->tls,
                              .hosts = c->hosts,
                              .host_count = host_count,
                              .clock = &c->clock,
                              .lease_ms = (uint32_t)(s->lease_us / 1000),
                              .metrics = c->metrics,
                              .show_config = show_config,
                              .apply_config = apply_config,
                              .on_urgent = on_urgent,
                              .leads = leads,
                              .leader = leader_of,
                              .arg = c };
    return api_new(c->loop, &api, &c->api, err);
}

/* Finds the address at which agents report: agents_reach, or else the listen address, which must then be
 * a specific one. */
static int find_reach(struct controller *c, struct str *ret_host, uint32_t *ret_port,
                      struct err *err)
{
    struct str text = c->config->controller->agents_reach;
    *ret_host = str_from(c->listen_host);
    *ret_port = api_port(c->api);
    if (text.len) return split_reach(text, ret_host, ret_port, err);
    if (str_eq(*ret_host, STR("0.0.0.0")) || str_eq(*ret_host, STR("::")))
        return err_set(err, -EINVAL,
                       "controller.listen: agents cannot reach " STR_FMT
                       "; name controller.agents_reach",
                       STR_ARG(*ret_host));
    return 0;
}

/* Writes the address that the lease shows to the other controllers, and they to agents and routers. */
static int print_reach(struct controller *c, struct err *err)
{
    const struct control_setup *setup = &c->setup;
    bool v6 = str_find(setup->host, STR(":")) != SIZE_MAX;
    int n =
        snprintf(c->reach, sizeof c->reach, "%s%s" STR_FMT "%s:%u", setup->tls ? "https://" : "",
                 v6 ? "[" : "", STR_ARG(setup->host), v6 ? "]" : "", setup->port);
    if (n < 0 || (size_t)n >= sizeof c->reach)
        return err_set(err, -ENAMETOOLONG, "controller.agents_reach is too long");
    return 0;
}

static int check_controllers(const struct controller_section *s, struct err *err)
{
    struct controller_address a;
    for (size_t i = 0; i < s->controllers.count; i++) {
        int rc = controller_address_parse(s->controllers.items[i], &a, err);
        if (rc < 0) return err_prefix(err, rc, "controller.controllers[%zu]", i);
    }
    return 0;
}

/* Opens the provider of adopted engines where a pool names it; it stays for all later terms. */
static int open_adopted(struct controller *c, const struct controller_config *config,
                        struct err *err)
{
    if (c->adopted || !setup_adopts(config)) return 0;
    struct cloud *cloud = &c->cloud[c->cloud_count];
    int rc = cloud_adopted_open(cloud, err);
    if (rc < 0) return rc;
    c->adopted = cloud;
    c->cloud_count++;
    return 0;
}

/* Refuses a configuration of the start that no term could begin with: one that stands by would show it only
 * when it is needed. */
static int check_start(struct controller *c, struct err *err)
{
    CLEANUP(in_force_freep) struct in_force *f = NULL;
    struct control_setup setup = { 0 };
    if (!store_is_shared(c->store)) return 0; /* its only term begins now */
    int rc = in_force_new(c->config->whole, &f, err);
    if (rc == 0) rc = open_adopted(c, &f->config, err);
    return rc < 0 ? rc : fill_live(c, f, &setup, err);
}

/* Makes all that a term's control is made of, but for what the configuration in force says. */
static int open_setup(struct controller *c, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    struct str reach = s->agents_reach;
    struct control_setup setup = {
        .cloud = c->cloud,
        .cloud_count = c->cloud_count,
        .store = c->store,
        .metrics = c->metrics,
        .controllers = s->controllers.items,
        .controller_count = (uint32_t)s->controllers.count,
        .secret_file = str_from(c->secret_path),
        .secret = s->send_secret ? (struct str){ 0 } : str_from(c->held.secret),
        /* Of local instances; a cloud's driver writes its own. */
        .engine_host = STR("127.0.0.1"),
        .tls = c->tls != NULL || tls_url_cut(&reach), /* or a proxy's */
        .tls_ca = s->tls.ca,
        .keys_file = c->keys_path,
        .seed = (uint64_t)s->seed,
        .crash_at = s->crash_at.len ? s->crash_at.data : NULL,
    };
    if (setup.seed == 0 && getrandom(&setup.seed, sizeof setup.seed, 0) != sizeof setup.seed)
        return err_set(err, -EIO, "the system gives no random bytes");
    int rc = check_start(c, err);
    if (rc == 0) rc = find_reach(c, &setup.host, &setup.port, err);
    if (rc == 0) rc = check_controllers(s, err);
    if (rc < 0) return rc;
    c->setup = setup;
    c->seed = setup.seed;
    return print_reach(c, err);
}

static int open_leader(struct controller *c, struct err *err)
{
    const struct leader_config config = {
        .loop = c->loop,
        .store = c->store,
        .metrics = c->metrics,
        .fence = &c->fence,
        .address = str_from(c->reach),
        .term_us = c->config->controller->leader_lease_us,
        .on_begin = begin_term,
        .on_end = end_term,
        .on_standby = on_standby,
        .arg = c,
    };
    return leader_new(&config, &c->leader, err);
}

static int check_crash_step(const struct controller_section *s, struct err *err)
{
    if (s->crash_at.len == 0) return 0;
    for (uint32_t i = 0; i < control_step_count; i++)
        if (str_eq(s->crash_at, str_from(control_steps[i]))) return 0;
    const char *near = str_nearest(s->crash_at, control_steps, control_step_count);
    return err_set(err, -EINVAL, "controller.crash_at: there is no step '%s'%s%s", s->crash_at.data,
                   near ? "; did you mean " : "", near ? near : "");
}

/* ---- another configuration while it runs ---- */

static void set_log(const struct controller_section *s)
{
    log_set_level((enum log_level)s->log_level);
    log_set_max((uint64_t)s->log_max);
}

/* Puts a candidate into force: prepared, then durable, then done. With dry_run only prepared. */
static int change_config(struct controller *c, struct live_candidate *candidate, bool dry_run,
                         struct err *err)
{
    CLEANUP(in_force_freep) struct in_force *f = NULL;
    CLEANUP(control_next_freep) struct control_next *next = NULL;
    struct control_setup setup = { 0 };
    int64_t date_us = clock_wall_us();
    int rc = in_force_new(candidate->config, &f, err);
    if (rc == 0) rc = fill_live(c, f, &setup, err);
    if (rc == 0) rc = control_prepare(c->control, &setup, &next, err);
    if (rc < 0 || dry_run) return rc;
    rc = live_config_keep(&c->live, candidate, date_us, err);
    if (rc < 0) return rc;
    control_commit(c->control, TAKE(next));
    live_config_take(&c->live, candidate, date_us);
    in_force_free(c->now);
    c->now = TAKE(f);
    set_log(c->now->config.controller);
    log_event(LOG_INFO, "config_in_force", "generation=%llu source=%s by=%s changes=%u",
              (unsigned long long)c->live.generation, live_source_names[candidate->source],
              candidate->by, candidate->count);
    on_urgent(c);
    return 0;
}

static void count_config(struct controller *c, const char *result)
{
    struct str label = str_from(result);
    metric_inc(metric_series(c->metrics, CONTROL_M_CONFIG_CHANGES, &label));
    metric_set(metric_of(c->metrics, CONTROL_M_CONFIG_GENERATION), (double)c->live.generation);
}

static void note_order(struct controller *c, const char *what, const char *by, const char *text)
{
    const struct control_order o = { .what = what, .by = by, .text = text };
    control_order_done(c->control, &o, fleet_clock_now(&c->clock));
}

/* Loads and changes; tells people and counts either way. An applied candidate without changes is in force
 * already; a file with another text is taken all the same, because from now on it is what holds. */
static int try_config(struct controller *c, struct live_candidate *candidate, bool dry_run,
                      struct err *err)
{
    enum live_source source = candidate->source;
    int rc = live_config_load(&c->live, candidate, err);
    bool differs = candidate->count > 0 || source == LIVE_OBJECTS ||
                   (source == LIVE_FILE && live_config_differs(&c->live));
    if (rc == 0 && differs) rc = change_config(c, candidate, dry_run, err);
    if (rc == 0 && source == LIVE_FILE) c->live.refused_us = 0;
    if (dry_run || (rc == 0 && candidate->count == 0)) return rc;
    if (rc < 0) live_config_refuse(&c->live, candidate->by, err, rc, clock_wall_us());
    static const char *const orders[] = { "config_file", "apply", "config_object" };
    count_config(c, rc < 0 ? "refused" : live_source_names[source]);
    note_order(c, rc < 0 ? "config_refused" : orders[source], candidate->by,
               rc < 0 ? err_text(err, rc) : candidate->paths.data);
    return rc;
}

/* Takes the file again after it has changed, or on SIGHUP. One that stands by reads it when its term begins. */
static void reload(struct controller *c)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct err err = { 0 };
    const char *path = c->config->sources.path;
    if (!leads(c)) return;
    if (!path) {
        log_event(LOG_WARN, "config_without_file", "%s",
                  "error=\"there is no file to read again\"");
        return;
    }
    int rc = live_config_read(&c->live, &text, &err);
    struct live_candidate candidate = {
        .source = LIVE_FILE, .text = buf_view(&text), .name = path, .by = "the file"
    };
    if (rc == 0) {
        (void)try_config(c, &candidate, false, &err); /* a refusal is told there */
    } else {
        live_config_refuse(&c->live, candidate.by, &err, rc, clock_wall_us());
        count_config(c, "refused");
    }
    live_candidate_fini(&candidate);
}

static void on_hangup(void *arg, int signo)
{
    (void)signo;
    reload(arg);
}

static void on_look(void *arg)
{
    struct controller *c = arg;
    if (leads(c) && live_config_file_changed(&c->live)) reload(c);
    /* A timer that cannot be set leaves SIGHUP and `muster apply`. */
    (void)loop_timer_set(c->loop, &c->look, loop_now_us(c->loop) + LOOK_US);
}

static int show_config(void *arg, struct buf *out)
{
    const struct controller *c = arg;
    return live_config_put(&c->live, out);
}

static int apply_config(void *arg, const struct config_order *o, const char *by, struct buf *out,
                        struct err *err)
{
    struct controller *c = arg;
    CLEANUP(buf_fini) struct buf name = { 0 }, file = { 0 };
    if (o->generation && o->generation != c->live.generation)
        return err_set(
            err, -ESTALE,
            "the configuration in force has changed meanwhile: it is generation %llu, not "
            "%llu",
            (unsigned long long)c->live.generation, (unsigned long long)o->generation);
    if (buf_str(&name, o->name) < 0) return err_set(err, -ENOMEM, "no memory for the order");
    /* What was written into the file until now is older than this order. */
    if (!o->dry_run) (void)live_config_read(&c->live, &file, NULL);
    struct live_candidate candidate = {
        .source = LIVE_APPLIED, .text = o->text, .name = name.data, .by = by
    };
    uint64_t before = c->live.generation;
    int rc = try_config(c, &candidate, o->dry_run, err);
    if (rc == 0) {
        struct json_writer w;
        json_writer_init(&w, out);
        json_object(&w);
        json_kv_bool(&w, "dry_run", o->dry_run);
        json_kv_bool(&w, "applied", c->live.generation != before);
        json_kv_u64(&w, "generation", c->live.generation);
        json_key(&w, "changes");
        json_put_raw(&w, buf_view(&candidate.changes));
        json_object_end(&w);
    }
    live_candidate_fini(&candidate);
    return rc;
}

/* ---- services of objects (objects/service_objects.h) ---- */

static int change_services(void *arg, struct str list, const char *by, struct err *err)
{
    struct controller *c = arg;
    struct live_candidate candidate = { .source = LIVE_OBJECTS, .services = list, .by = by };
    int rc = try_config(c, &candidate, false, err);
    live_candidate_fini(&candidate);
    return rc;
}

static struct str list_services(void *arg, uint64_t *ret_generation)
{
    const struct controller *c = arg;
    *ret_generation = c->live.generation;
    return buf_view(&c->live.services);
}

/* Puts a list that the store has into force, if a term can begin with it. */
static int restore_services(struct controller *c, struct str list, struct err *err)
{
    CLEANUP(in_force_freep) struct in_force *f = NULL;
    struct control_setup setup = { 0 };
    struct live_candidate candidate = { .source = LIVE_OBJECTS, .services = list };
    int rc = live_config_load(&c->live, &candidate, err);
    if (rc == 0) rc = in_force_new(candidate.config, &f, err);
    if (rc == 0) rc = open_adopted(c, &f->config, err);
    if (rc == 0) rc = fill_live(c, f, &setup, err);
    if (rc == 0) live_config_restore(&c->live, &candidate);
    live_candidate_fini(&candidate);
    return rc;
}

/* Begins the term with the services that objects had in force: they are known before the API server answers. Where
 * the list does not fit the file any more, its services are tried one by one. */
static void take_stored(struct controller *c)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct service_list list, fit = { 0 };
    struct err err = { 0 };
    arena_init(&arena, SETUP_ARENA_BYTES);
    if (c->live.stored.len == 0 || restore_services(c, buf_view(&c->live.stored), &err) == 0)
        return;
    fit.entry = arena_array(&arena, SERVICE_LIST_MAX, sizeof *fit.entry);
    if (service_list_read(buf_view(&c->live.stored), &arena, &list, &err) < 0 || !fit.entry) return;
    for (uint32_t i = 0; i < list.count; i++) {
        fit.entry[fit.count++] = list.entry[i];
        buf_clear(&text);
        int rc = service_list_write(&fit, &text);
        if (rc == 0) rc = restore_services(c, buf_view(&text), &err);
        if (rc == 0) continue;
        fit.count--;
        log_event(LOG_ERROR, "service_set_aside", "object=%.*s error=%s",
                  STR_ARG(list.entry[i].object), err_text(&err, rc));
    }
}

static int open_objects(struct controller *c, struct err *err)
{
    const struct kube_section *kube = c->config->kube;
    if (!kube || !kube->services) return 0;
    const struct service_objects_config config = {
        .loop = c->loop,
        .section = kube,
        .environ = (const char *const *)environ,
        .seed = c->seed,
        .reporter = str_from(c->reach),
        .schema = config_schema_of(c->config->whole),
        .clock = &c->clock,
        .metrics = c->metrics,
        .leads = leads,
        .change = change_services,
        .list = list_services,
        .arg = c,
    };
    return service_objects_new(&config, &c->objects, err);
}

/* ---- all of it ---- */

/* Finds out which configuration is in force: a term begins with it. */
static int open_live(struct controller *c, struct err *err)
{
    const struct live_config_setup setup = { .start = c->config->whole,
                                             .sources = c->config->sources,
                                             .check = c->config->check,
                                             .store = c->store };
    int rc = live_config_open(&c->live, &setup, clock_wall_us(), err);
    if (rc == 0 && c->objects) take_stored(c);
    if (rc == 0) rc = in_force_new(live_config_get(&c->live), &c->now, err);
    if (rc < 0) {
        close_live(c);
        return rc;
    }
    set_log(c->now->config.controller);
    metric_set(metric_of(c->metrics, CONTROL_M_CONFIG_GENERATION), (double)c->live.generation);
    return 0;
}

static void close_live(struct controller *c)
{
    in_force_free(c->now);
    c->now = NULL;
    live_config_fini(&c->live);
}

static int watch_file(struct controller *c, struct err *err)
{
    int rc = loop_signal(c->loop, SIGHUP, on_hangup, c, err);
    c->look = (struct loop_timer){ .fn = on_look, .arg = c };
    if (rc == 0 && c->config->sources.path)
        rc = loop_timer_set(c->loop, &c->look, clock_mono_us() + LOOK_US);
    return rc;
}

static int open_metrics(struct controller *c, struct err *err)
{
    int rc = metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &c->metrics, err);
    const struct str result[] = { str_from(live_source_names[LIVE_FILE]),
                                  str_from(live_source_names[LIVE_APPLIED]),
                                  str_from(live_source_names[LIVE_OBJECTS]), STR("refused") };
    for (size_t i = 0; rc == 0 && i < COUNT_OF(result); i++) /* a rate needs a zero */
        metric_series(c->metrics, CONTROL_M_CONFIG_CHANGES, &result[i]);
    return rc;
}

static int build(struct controller *c, struct err *err)
{
    c->tick = (struct loop_timer){ .fn = on_tick, .arg = c };
    int rc = check_crash_step(c->config->controller, err);
    if (rc == 0) rc = open_metrics(c, err);
    if (rc == 0) rc = loop_new(&c->loop, err);
    if (rc == 0) rc = open_state(c, err);
    if (rc == 0) rc = open_clouds(c, err);
    if (rc == 0) rc = open_api(c, err);
    if (rc == 0) rc = open_setup(c, err);
    if (rc == 0) rc = open_objects(c, err);
    if (rc == 0) rc = open_leader(c, err);
    if (rc == 0) rc = watch_file(c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGTERM, on_signal, c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGINT, on_signal, c, err);
    return rc;
}

/* The controller is ready when it listens and holds its store, not when all clouds have been listed: a provider
 * that is out of reach must not make a service manager start it again and again. */
static void tell_ready(const struct controller *c)
{
    char status[ADDR_TEXT_MAX + 64];
    log_event(LOG_INFO, "controller_ready", "host=%s port=%u state=%s services=%zu", c->listen_host,
              api_port(c->api), c->config->controller->state.data, c->config->service_count);
    snprintf(status, sizeof status, "listens at %s port %u", c->listen_host, api_port(c->api));
    notify_ready(status);
}

int controller_main(const struct controller_config *config, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    set_log(config->controller);
    struct controller *c = calloc(1, sizeof *c);
    must(c);
    c->config = config;
    c->lock = -1;
    arena_init(&c->arena, SETUP_ARENA_BYTES);
    int rc = build(c, err);
    if (rc == 0) rc = notify_watch_start(&c->watch, c->loop, NULL, 0, err);
    if (rc == 0) {
        tell_ready(c);
        rc = loop_run(c->loop);
        if (c->failed) rc = err_set(err, -ENOMEM, "the controller's clock cannot be set");
    }
    leader_free(c->leader); /* first: its term, with the control, ends */
    service_objects_free(c->objects);
    api_free(c->api);
    key_file_fini(&c->scrapers);
    tls_free(c->tls);
    for (uint32_t i = 0; i < c->cloud_count; i++)
        cloud_close(&c->cloud[i]);
    if (c->store) store_close(c->store);
    file_unlock(c->lock);
    notify_watch_stop(&c->watch);
    notify_watch_fini(&c->watch);
    loop_free(c->loop);
    metrics_free(c->metrics);
    arena_fini(&c->arena);
    free(c);
    return rc;
}
