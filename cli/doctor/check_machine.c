/* check_machine.c - checks of this machine: ports, limits, processor, clock, and what providers can sell. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/proc.h"
#include "cli/daemons.h"
#include "cli/doctor/doctor.h"
#include "controller/cloud/cloud_local.h"
#include "controller/cloud/kube/kube_check.h"
#include "controller/cloud/web/web_once.h"
#include "controller/config.h"
#include "controller/setup.h"
#include "engine/kernels/op.h"
#include "router/config.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

/* ---- ports ---- */

static int is_router_at(void *ctx, struct str item)
{
    uint64_t port;
    return json_path_u64(item, "port", &port) == 0 && port == *(const uint16_t *)ctx;
}

/* Returns true if the fleet itself listens there: as `muster up` wrote down, or as its controller says. */
static bool is_ours(const struct doctor *d, bool router, uint16_t port)
{
    const struct fleet_file_part *p = router ? &d->fleet.router : &d->fleet.controller;
    if (fleet_file_lives(p) && p->port == port) return true;
    if (!d->answers) return false;
    if (!router) return d->api.port == port;
    return json_path_each(buf_view(&d->status), "routers", is_router_at, &port) == 1;
}

static void check_port(struct doctor *d, const char *what, struct str listen, bool router)
{
    struct err err = { 0 };
    struct str host;
    uint16_t port = 0;
    if (router_address(listen, &host, &port, NULL) == 0 && is_ours(d, router, port)) {
        doctor_say(d, CHECK_OK, NULL, "%s: " STR_FMT " is ours", what, STR_ARG(listen));
        return;
    }
    int rc = daemons_check_free(listen.data, "another listen", &err);
    if (rc == 0)
        doctor_say(d, CHECK_OK, NULL, "%s: " STR_FMT " is free", what, STR_ARG(listen));
    else if (rc == -EADDRINUSE)
        doctor_say(d, CHECK_FAILED, "end that program (ss -ltnp), or listen elsewhere",
                   "%s: " STR_FMT " is taken by another program", what, STR_ARG(listen));
    else
        doctor_say(d, CHECK_FAILED, "name another place to listen", "%s: %s", what,
                   err_text(&err, rc));
}

void check_ports(struct doctor *d)
{
    if (!d->config) {
        doctor_say(d, CHECK_SKIPPED, NULL, "there is no valid configuration");
        return;
    }
    const struct controller_section *c = config_section_get(d->config, controller_section.name);
    const struct router_config *r = config_section_get(d->config, router_section.name);
    check_port(d, "controller", c->listen, false);
    check_port(d, "router", r->listen, true);
}

/* ---- limits, processor, clock ---- */

#define FILES_LEAST 1024   /* a router with fewer refuses connections early */
#define FILES_ENOUGH 16384 /* a few thousand clients and engines */

void check_descriptors(struct doctor *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        doctor_say(d, CHECK_SKIPPED, NULL, "%s", strerror(errno));
        return;
    }
    unsigned long long most = (unsigned long long)limit.rlim_max;
    bool none = limit.rlim_max == RLIM_INFINITY;
    enum check_status status = none || most >= FILES_ENOUGH ? CHECK_OK
                               : most >= FILES_LEAST        ? CHECK_WARNING
                                                            : CHECK_FAILED;
    doctor_say(d, status,
               status == CHECK_OK ? NULL : "raise the hard limit (ulimit -Hn, LimitNOFILE=)",
               none ? "the hard limit is none (%llu)" : "the hard limit is %llu", none ? 0 : most);
}

void check_processor(struct doctor *d)
{
    const char *best = ops_best()->name;
    bool slow = strcmp(best, op_ref.name) == 0;
    doctor_say(d, slow ? CHECK_WARNING : CHECK_OK,
               slow ? "run engines where AVX2, AVX-512 or NEON is there" : NULL,
               slow ? "only the %s kernels run here: engines on this processor are slow"
                    : "%s kernels run here",
               best);
}

void check_time(struct doctor *d)
{
    struct timex t = { .modes = 0 };
    int state = adjtimex(&t);
    if (state < 0)
        doctor_say(d, CHECK_SKIPPED, NULL, "the kernel's clock state is not to be had: %s",
                   strerror(errno));
    else if (state == TIME_ERROR || (t.status & STA_UNSYNC))
        doctor_say(d, CHECK_WARNING, "start chrony or systemd-timesyncd",
                   "the clock is not synchronised");
    else
        doctor_say(d, CHECK_OK, NULL, "the clock is synchronised, within %.0f ms",
                   (double)t.maxerror / 1e3);
}

/* ---- providers ---- */

/* Opens a provider from the configuration and lets it check itself; -errno when it cannot be opened. */
struct provider_kind {
    const char *name;
    int (*check)(struct doctor *d, cloud_finding_fn fn, struct err *err);
};

static int check_local(struct doctor *d, cloud_finding_fn fn, struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    char folder[PATH_MAX], program[PATH_MAX];
    const char *const agent[] = { program, "agent", NULL };
    struct local_config local = { .folder = folder, .agent = agent };
    void *ctx;
    arena_init(&arena, (size_t)1 << 20);
    int rc = doctor_path(d, "instances", folder);
    if (rc == 0) rc = proc_self_path(program, sizeof program);
    if (rc == 0)
        rc = setup_local(config_section_get(d->config, local_section.name), &arena, &local.offer,
                         &local.offer_count, &local.machine_share, err);
    if (rc == 0) rc = cloud_local_open(&local, &ctx, err);
    if (rc < 0) return rc;
    cloud_local_backend.check(ctx, fn, d);
    cloud_local_backend.close(ctx);
    return 0;
}

static int check_kubernetes(struct doctor *d, cloud_finding_fn fn, struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    struct controller_config config = { 0 };
    struct kube_settings settings;
    arena_init(&arena, (size_t)16 << 20);
    controller_config_fill(&config, d->config);
    if (!config.kube) return err_set(err, -EINVAL, "there is no section kubernetes");
    int rc = setup_kube(&config, &arena, &settings, err);
    if (rc == 0) rc = kube_check(&settings, (const char *const *)environ, fn, d, err);
    return rc;
}

static const struct provider_kind providers[] = {
    { "local", check_local },
    { "kubernetes", check_kubernetes },
};

static void on_finding(void *arg, const struct cloud_finding *f)
{
    static const enum check_status status[] = {
        [CLOUD_FINE] = CHECK_OK, [CLOUD_DOUBTFUL] = CHECK_WARNING, [CLOUD_BROKEN] = CHECK_FAILED
    };
    doctor_say(arg, status[f->health], f->next, "%s: %s", f->what, f->why);
}

/* Returns true if a pool of the configuration names the provider. */
static bool is_used(const struct doctor *d, const char *name)
{
    const struct config_records *list = config_section_get(d->config, services_section.name);
    const struct service_section *s = list->items;
    for (size_t i = 0; i < list->count; i++) {
        const struct pool_section *pool = s[i].pools.items;
        for (size_t p = 0; p < s[i].pools.count; p++)
            if (str_eq(pool[p].provider, str_from(name))) return true;
    }
    return false;
}

/* Checks those of `clouds` that pools name. Returns how many they are. */
static uint32_t check_clouds(struct doctor *d)
{
    CLEANUP(arena_fini) struct arena arena;
    struct controller_config config = { 0 };
    struct web_settings *all;
    struct err err = { 0 };
    uint32_t used = 0;
    arena_init(&arena, (size_t)4 << 20);
    controller_config_fill(&config, d->config);
    int rc = web_settings_make_all(config.cloud, config.cloud_count, &arena, &all, &err);
    for (size_t i = 0; i < config.cloud_count && rc == 0; i++) {
        if (!is_used(d, config.cloud[i].name.data)) continue;
        used++;
        rc = web_check(&all[i], (const char *const *)environ, on_finding, d, &err);
    }
    if (rc < 0)
        doctor_say(d, CHECK_FAILED, "mend its section of the configuration", "%s",
                   err_text(&err, rc));
    return used;
}

void check_providers(struct doctor *d)
{
    uint32_t used = d->config ? check_clouds(d) : 0;
    for (size_t i = 0; d->config && i < COUNT_OF(providers); i++) {
        struct err err = { 0 };
        if (!is_used(d, providers[i].name)) continue;
        used++;
        int rc = providers[i].check(d, on_finding, &err);
        if (rc < 0)
            doctor_say(d, CHECK_FAILED, "mend its section of the configuration", "%s: %s",
                       providers[i].name, err_text(&err, rc));
    }
    if (used == 0)
        doctor_say(d, CHECK_SKIPPED, NULL, "%s",
                   d->config ? "no pool names a provider that is known here"
                             : "there is no valid configuration");
}
