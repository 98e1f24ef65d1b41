/* controller.c - opens the state folder, listens, and ticks while it leads, until a signal.
 *
 * A term of leadership (leader.h) has a struct control of its own, which is made from the store when the term
 * begins and dropped when it ends: whoever takes over restores, observes and only then acts. With a store of
 * its own the process is in one term from its start to its end. */
#include "controller/controller.h"

#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/io/proc.h"
#include "controller/access.h"
#include "controller/api.h"
#include "controller/aside.h"
#include "controller/cloud/cloud_thread.h"
#include "controller/control_metrics.h"
#include "controller/fleet_clock.h"
#include "controller/leader.h"
#include "fleet/controllers.h"
#include "fleet/defaults.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SETUP_ARENA_BYTES ((size_t)4 << 20)
#define STORE_BYTES_MAX ((uint64_t)256 << 20)

struct controller {
    const struct controller_config *config;
    struct arena arena;
    struct loop *loop;
    struct store *store;
    struct fleet_clock clock;
    struct cloud cloud;
    struct cloud_fence fence;
    struct api *api;
    struct metrics *metrics;
    struct control_setup setup;
    uint64_t seed;
    struct leader *leader;
    struct control *control; /* NULL: it stands by */
    struct loop_timer tick;
    struct credentials held;
    char secret_path[PATH_MAX], keys_path[PATH_MAX], program[PATH_MAX], listen_host[ADDR_TEXT_MAX];
    struct tls *tls; /* NULL: plain HTTP */
    struct addr listen;
    struct str *hosts;               /* host names that requests may use; in the arena */
    char reach[STORE_ADDRESS_BYTES]; /* where others find us */
    bool failed;
};

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

/* Takes completions that no control waits for any more, so that they do not fill the cloud's queue. */
static void drop_events(struct controller *c)
{
    struct cloud_event *e = malloc(sizeof *e);
    while (e && c->cloud.driver->next(c->cloud.ctx, fleet_clock_now(&c->clock), e)) {
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

static int begin_term(void *arg, uint64_t epoch, struct err *err)
{
    struct controller *c = arg;
    int rc = fleet_clock_open(&c->clock, c->store, err);
    if (rc < 0) return err_prefix(err, rc, "controller.state");
    drop_events(c);
    /* No two terms draw the same ids, not even under a seed that was configured: a provider may remember an id
     * for longer than we do. */
    bool alone = !store_is_shared(c->store) && c->setup.term.epoch == 0;
    c->setup.seed = c->seed ^ (alone ? 0 : hash64(&epoch, sizeof epoch, 0));
    c->setup.term = (struct control_term){ epoch, leads, c };
    rc = control_new(&c->setup, fleet_clock_now(&c->clock), &c->control, err);
    if (rc < 0) return rc;
    control_claim(c->control);
    if (c->clock.unreadable)
        control_set_aside(c->control, STR("clock"), "damaged, or of a newer release");
    control_watch_clouds(c->control, wake_for_cloud, c);
    api_attach(c->api, c->control);
    tick_at(c, clock_mono_us());
    return 0;
}

static void end_term(void *arg)
{
    struct controller *c = arg;
    loop_timer_clear(c->loop, &c->tick);
    api_attach(c->api, NULL);
    control_free(c->control);
    c->control = NULL;
    control_metrics_rest(c->metrics);
}

/* People's tokens open what a controller shows while it stands by. */
static void on_standby(void *arg)
{
    struct controller *c = arg;
    struct tokens *t = malloc(sizeof *t);
    if (t && tokens_load(c->store, t, NULL) == 0) api_tokens(c->api, t);
    free(t);
}

/* ---- ticks ---- */

static void on_tick(void *arg)
{
    struct controller *c = arg;
    loop_assert_owner(c->loop);
    tick_at(c, loop_now_us(c->loop) + c->config->controller->tick_us);
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
    const struct store_redis_config redis = {
        .url = s->store,
        .password_file = s->store_password_file,
        .fleet = s->store_fleet,
        .ca = s->store_ca,
        .certificate = s->store_certificate,
        .key = s->store_key,
        .timeout_us = s->store_timeout_us,
    };
    int rc = store_redis_open(&redis, &c->store, err);
    return rc < 0 ? err_prefix(err, rc, "controller.store") : 0;
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
    if (rc == 0) rc = proc_self_path(c->program, sizeof c->program);
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
    return cloud_thread_new(&cloud_local_backend, ctx, &pace, &c->cloud, err);
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
    char text[ADDR_TEXT_MAX];
    struct addr bare = c->listen;
    addr_text(&bare, text);
    char *colon = strrchr(text, ':');
    *colon = 0;
    bool v6 = text[0] == '[';
    snprintf(c->listen_host, sizeof c->listen_host, "%s", v6 ? text + 1 : text);
    if (v6) c->listen_host[strlen(c->listen_host) - 1] = 0;
    size_t host_count = 0;
    rc = tls_section_open(&s->tls, &c->tls, NULL, err);
    if (rc < 0) return err_prefix(err, rc, "controller.tls");
    rc = gather_hosts(c, &host_count, err);
    if (rc < 0) return rc;
    struct api_config api = { .host = c->listen_host,
                              .port = c->listen.port,
                              .require_secret = s->require_secret || !addr_is_loopback(&c->listen),
                              .held = &c->held,
                              .tls = c->tls,
                              .hosts = c->hosts,
                              .host_count = host_count,
                              .clock = &c->clock,
                              .lease_ms = (uint32_t)(s->lease_us / 1000),
                              .metrics = c->metrics,
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

/* Makes all that a term's control is made of. */
static int open_setup(struct controller *c, struct err *err)
{
    const struct controller_section *s = c->config->controller;
    struct str reach = s->agents_reach;
    struct control_setup setup = {
        .cloud = &c->cloud,
        .cloud_count = 1,
        .store = c->store,
        .metrics = c->metrics,
        .merge = MERGE_CONFIG_DEFAULT,
        .controllers = s->controllers.items,
        .controller_count = (uint32_t)s->controllers.count,
        .secret_file = str_from(c->secret_path),
        .secret = s->send_secret ? (struct str){ 0 } : str_from(c->held.secret),
        /* Of local instances; a cloud's have addresses of their own. */
        .engine_host = STR("127.0.0.1"),
        .tick_us = s->tick_us,
        .tls = c->tls != NULL || tls_url_cut(&reach), /* or a proxy's */
        .tls_ca = s->tls.ca,
        .lease_ms = (uint32_t)(s->lease_us / 1000),
        .grace_ms = (uint64_t)s->grace_us / 1000,
        .age_ms = (uint64_t)s->age_us / 1000,
        .drain_ms = (uint64_t)s->drain_us / 1000,
        .decisions_max = (uint64_t)s->decisions_max,
        .keys_required = s->require_keys,
        .keys_file = c->keys_path,
        .seed = (uint64_t)s->seed,
        .crash_at = s->crash_at.len ? s->crash_at.data : NULL,
    };
    setup.merge.boot_us = s->boot_us;
    setup.merge.drain_us = s->drain_us + s->drain_us / 10; /* the agent's deadline comes first */
    setup.merge.silent_us = s->silent_us;
    if (setup.seed == 0 && getrandom(&setup.seed, sizeof setup.seed, 0) != sizeof setup.seed)
        return err_set(err, -EIO, "the system gives no random bytes");
    struct offer *offers = arena_array(&c->arena, PLAN_OFFERS_MAX, sizeof *offers);
    uint32_t offer_count = 0;
    if (!offers) return err_set(err, -ENOMEM, "no memory for offers");
    int rc = c->cloud.driver->offers(c->cloud.ctx, offers, PLAN_OFFERS_MAX, &offer_count, err);
    if (rc == 0)
        rc = setup_services(c->config, offers, offer_count, str_from(c->program), &c->arena, &setup,
                            err);
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

static int build(struct controller *c, struct err *err)
{
    c->tick = (struct loop_timer){ .fn = on_tick, .arg = c };
    int rc = check_crash_step(c->config->controller, err);
    if (rc == 0) rc = metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &c->metrics, err);
    if (rc == 0) rc = loop_new(&c->loop, err);
    if (rc == 0) rc = open_state(c, err);
    if (rc == 0) rc = open_local(c, err);
    if (rc == 0) rc = open_api(c, err);
    if (rc == 0) rc = open_setup(c, err);
    if (rc == 0) rc = open_leader(c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGTERM, on_signal, c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGINT, on_signal, c, err);
    return rc;
}

int controller_main(const struct controller_config *config, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level((enum log_level)config->controller->log_level);
    log_set_max((uint64_t)config->controller->log_max);
    struct controller *c = calloc(1, sizeof *c);
    must(c);
    c->config = config;
    arena_init(&c->arena, SETUP_ARENA_BYTES);
    int rc = build(c, err);
    if (rc == 0) {
        log_event(LOG_INFO, "controller_ready", "host=%s port=%u state=%s services=%zu",
                  c->listen_host, api_port(c->api), config->controller->state.data,
                  config->service_count);
        rc = loop_run(c->loop);
        if (c->failed) rc = err_set(err, -ENOMEM, "the controller's clock cannot be set");
    }
    leader_free(c->leader); /* first: its term, with the control, ends */
    api_free(c->api);
    tls_free(c->tls);
    cloud_close(&c->cloud);
    if (c->store) store_close(c->store);
    loop_free(c->loop);
    metrics_free(c->metrics);
    arena_fini(&c->arena);
    free(c);
    return rc;
}
