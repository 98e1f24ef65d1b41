/* process_open.c - opens what a controller works with: the state folder and its store, clouds, the API's port. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/proc.h"
#include "controller/cloud/cloud_exec.h"
#include "controller/cloud/cloud_local.h"
#include "controller/cloud/cloud_thread.h"
#include "controller/cloud/kube/kube_cloud.h"
#include "controller/cloud/web/web_cloud.h"
#include "controller/cloud/web/web_user_data.h"
#include "controller/joins.h"
#include "controller/metrics.h"
#include "controller/process.h"
#include "controller/setup.h"
#include "fleet/controllers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define STORE_BYTES_MAX ((uint64_t)256 << 20)

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
    if (rc < 0) return rc;
    c->cluster = &c->cloud[c->cloud_count++];
    return 0;
}

static int open_web(struct controller *c, struct err *err)
{
    const struct controller_config *config = c->config;
    if (config->cloud_count > 0 && config->controller->send_secret)
        return err_set(err, -EINVAL,
                       "controller.send_secret: machines of `clouds` get keys of their own, and "
                       "never the fleet's secret");
    struct str ca;
    int rc = web_settings_make_all(config->cloud, config->cloud_count, &c->arena, &c->web, err);
    if (rc == 0) rc = web_user_data_ca(config->controller->tls.ca, &c->arena, &ca, err);
    for (size_t i = 0; i < config->cloud_count && rc == 0; i++) {
        struct web_settings *s = &c->web[i];
        uint64_t seed;
        if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
            return err_set(err, -EIO, "the system gives no random bytes");
        s->ca = ca;
        s->fence = &c->fence;
        s->meters = (struct web_meters){ .metrics = c->metrics,
                                         .requests = CONTROL_M_CLOUD_REQUESTS,
                                         .seconds = CONTROL_M_CLOUD_SECONDS,
                                         .waited_seconds = CONTROL_M_CLOUD_WAITED };
        rc = s->kind->step
                 ? web_cloud_open(c->loop, s, (const char *const *)environ, seed,
                                  &c->cloud[c->cloud_count], err)
                 : cloud_exec_open(s, (const char *const *)environ, &c->cloud[c->cloud_count], err);
        c->cloud_count += rc == 0;
    }
    return rc;
}

/* Without other clouds there is this machine, with offers or without. */
static int open_clouds(struct controller *c, struct err *err)
{
    bool kube = kube_is_wanted(c->config->kube);
    bool only_local = !kube && c->config->cloud_count == 0;
    int rc = proc_self_path(c->program, sizeof c->program);
    if (rc == 0 && (only_local || c->config->local->offers.count > 0)) rc = open_local(c, err);
    if (rc == 0 && kube) rc = open_kube(c, err);
    return rc < 0 ? rc : open_web(c, err);
}

/* Splits controller.agents_reach, with or without "https://", into host and port. */
static int split_reach(struct str text, struct str *ret_host, uint32_t *ret_port, struct err *err)
{
    uint16_t port;
    tls_url_cut(&text);
    if (str_host_port(text, ret_host, &port) < 0 || port == 0)
        return err_set(err, -EINVAL, "controller.agents_reach: want HOST:PORT");
    *ret_port = port;
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
                              .show_config = in_force_show,
                              .apply_config = in_force_apply,
                              .on_urgent = controller_on_urgent,
                              .leads = controller_leads,
                              .leader = controller_leader,
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
    int rc = in_force_check(c, err);
    if (rc == 0) rc = find_reach(c, &setup.host, &setup.port, err);
    if (rc == 0) rc = check_controllers(s, err);
    if (rc < 0) return rc;
    c->setup = setup;
    c->seed = setup.seed;
    return print_reach(c, err);
}

static int check_crash_step(const struct controller_section *s, struct err *err)
{
    if (s->crash_at.len == 0) return 0;
    for (uint32_t i = 0; i < control_step_count; i++)
        if (str_eq(s->crash_at, str_from(control_steps[i]))) return 0;
    for (uint32_t i = 0; i < control_stop_step_count; i++)
        if (str_eq(s->crash_at, str_from(control_stop_steps[i]))) return 0;
    if (str_eq(s->crash_at, str_from(control_join_step))) return 0;
    const char *near = str_nearest(s->crash_at, control_steps, control_step_count);
    return err_set(err, -EINVAL, "controller.crash_at: there is no step '%s'%s%s", s->crash_at.data,
                   near ? "; did you mean " : "", near ? near : "");
}

int process_open(struct controller *c, struct err *err)
{
    int rc = check_crash_step(c->config->controller, err);
    if (rc == 0) rc = open_state(c, err);
    if (rc == 0) rc = open_clouds(c, err);
    if (rc == 0) rc = open_api(c, err);
    return rc < 0 ? rc : open_setup(c, err);
}
