/* schema.c - list the sections of all roles, and check a file by the rules of each.
 *
 * The schema's fields check single values; this file makes the checks that need two of them, or the machine. It
 * collects all problems, so that a file can be corrected in one go.
 */
#include "cli/schema.h"

#include "agent/agent.h"
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "base/io/models.h"
#include "controller/cloud/cloud_adopted.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_user_data.h"
#include "controller/config.h"
#include "controller/setup.h"
#include "engine/config.h"
#include "engine/serve/predict_engine.h"
#include "policies/catalog.h"
#include "policies/predict/predict.h"
#include "router/config.h"
#include "router/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct config_section *const sections[] = {
    &controller_section, &services_section, &local_section, &kube_section,   &clouds_section,
    &router_section,     &engine_section,   &agent_section, &models_section,
};

const struct config_schema schema = { sections, COUNT_OF(sections), config_absent_policies };

#define ARENA_BYTES ((size_t)4 << 20)

struct checking {
    const struct config *config;
    struct buf *out;
    struct err first;
    uint32_t count;
};

static void problem(struct checking *c, const struct err *err, int rc)
{
    if (c->count++ == 0) c->first = *err;
    buf_printf(c->out, "%s\n", err_text(err, rc));
}

/* Checks that a policy for engines exists, and that a predictor needs no more inputs than an engine has. */
static int check_policy(const char *kind, const char *flag, const char *name, struct err *err)
{
    for (size_t i = 0; i < setup_engine_policy_count; i++) {
        if (strcmp(kind, setup_engine_policies[i].kind) != 0 || !name[0]) continue;
        int rc = policy_check(kind, str_from(name), flag, err);
        if (rc < 0 || strcmp(kind, "predict") != 0) return rc;
        const char *missing = predict_missing(predict_find(str_from(name)), PREDICT_ENGINE_HAVE);
        if (!missing) return 0;
        return err_set(err, -EINVAL, "%s %s is not applicable: an engine has no %s", flag, name,
                       missing);
    }
    return 0;
}

/* Checks the command line that an instance will be started with, by the engine's own schema. */
static void check_launch(struct checking *c, const char *service, const char *pool,
                         const struct control_launch *launch)
{
    const struct opt_command engine = { .name = "muster engine", .section = &engine_section };
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    struct err err = { 0 };
    char *argv[LAUNCH_ARGS_MAX];
    int count = 0;
    for (uint32_t i = 2; i < launch->engine_arg_count; i++)             /* after `muster engine` */
        argv[count++] = (char *)(uintptr_t)launch->engine_args[i].data; /* never written to */
    int rc = opt_parse(&engine, count, argv, NULL, &parsed, &err);
    for (size_t i = 0; i < parsed.flag_count && rc == 0; i++) {
        const char *kind = strchr(parsed.flags[i].path, '.') + 1;
        char flag[32];
        snprintf(flag, sizeof flag, "--%s", kind);
        rc = check_policy(kind, flag, parsed.flags[i].value, &err);
    }
    if (rc < 0) problem(c, &err, err_prefix(&err, rc, "service %s, pool %s", service, pool));
}

/* Checks the section `engine` of a file without services, which is for a lone engine. */
static void check_engine(struct checking *c)
{
    const char *engine = config_section_get(c->config, engine_section.name);
    for (size_t i = 0; i < engine_section.record->field_count; i++) {
        const struct config_field *f = &engine_section.record->fields[i];
        if (f->type != CONFIG_TEXT) continue;
        const struct str *name = (const void *)(engine + f->offset);
        struct err err = { 0 };
        char path[64];
        snprintf(path, sizeof path, "%s.%s", engine_section.name, f->name);
        int rc = name->len > 0 ? check_policy(f->name, path, name->data, &err) : 0;
        if (rc < 0) problem(c, &err, rc);
    }
}

static void check_service(struct checking *c, const struct service_section *s,
                          const struct control_launch *launch)
{
    const struct pool_section *pool = s->pools.items;
    struct err err = { 0 };
    if (s->engine_program.len > 0) return; /* another program has flags and models of its own */
    bool is_here = s->pools.count == 0; /* instances of a cloud read a file of their own machine */
    for (size_t p = 0; p < s->pools.count; p++)
        is_here = is_here || str_eq(pool[p].provider, STR("local"));
    struct models_place model;
    const struct models_section *models = config_section_get(c->config, models_section.name);
    int found = models_resolve(models, s->model, &model, &err);
    if (found == 0 && is_here && access(model.path, R_OK) < 0) {
        int rc = -errno;
        bool has_url = model.entry && model.entry->url.len > 0;
        problem(c, &err,
                err_set(&err, rc, "service %s: the model %s cannot be read: %s%s%s", s->name.data,
                        model.path, strerror(-rc), has_url ? "; fetch it with muster pull " : "",
                        has_url ? s->model.data : ""));
    }
    if (!launch) return;
    for (size_t p = 0; p < s->pools.count; p++)
        if (engine_traits[launch[p].kind].serves_itself)
            check_launch(c, s->name.data, pool[p].name.data, &launch[p]);
}

/* Checks that the minimum of all pools fits the machine; otherwise `up` would wait for ever. */
static void check_room(struct checking *c, const struct controller_config *cc,
                       const struct local_offer *offers, uint32_t offer_count, double cores)
{
    double wanted = 0;
    struct err err = { 0 };
    for (size_t s = 0; s < cc->service_count; s++) {
        const struct pool_section *pool = cc->service[s].pools.items;
        for (size_t p = 0; p < cc->service[s].pools.count; p++)
            for (uint32_t o = 0; o < offer_count && pool[p].offers.count > 0; o++)
                if (str_eq(pool[p].provider, STR("local")) &&
                    str_eq(offers[o].name, pool[p].offers.items[0]))
                    wanted += (double)pool[p].min * offers[o].share;
    }
    if (wanted <= cores + 1e-9) return;
    problem(c, &err,
            err_set(&err, -EINVAL, "the pools' minima want %.2f cores, local.cores gives %.2f",
                    wanted, cores));
}

static void check_fleet(struct checking *c)
{
    struct controller_config cc = { 0 };
    controller_config_fill(&cc, c->config);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    struct control_setup setup = { 0 };
    struct offer offer[PLAN_OFFERS_MAX] = { 0 };
    const struct local_offer *local;
    uint32_t count, sold = 0;
    double cores;
    struct err err = { 0 };
    int rc = setup_local(cc.local, &arena, &local, &count, &cores, &err);
    for (; rc == 0 && sold < count && sold < LOCAL_OFFERS_MAX; sold++) {
        rc = name_copy(offer[sold].name, sizeof offer[sold].name, local[sold].name);
        if (rc == 0)
            rc = name_copy(offer[sold].provider, sizeof offer[sold].provider, STR("local"));
    }
    struct kube_settings kube = { 0 };
    if (rc == 0) rc = setup_kube(&cc, &arena, &kube, &err);
    for (uint32_t i = 0; rc == 0 && i < kube.sold_count && sold < PLAN_OFFERS_MAX; i++)
        offer[sold++] = kube.sold[i].offer;
    struct web_settings *web = NULL;
    if (rc == 0) rc = web_settings_make_all(cc.cloud, cc.cloud_count, &arena, &web, &err);
    for (size_t k = 0; rc == 0 && k < cc.cloud_count; k++)
        for (uint32_t i = 0; i < web[k].offer_count && sold < PLAN_OFFERS_MAX; i++)
            offer[sold++] = web[k].offer[i].offer;
    if (rc == 0 && setup_adopts(&cc) && sold < PLAN_OFFERS_MAX) cloud_adopted_offer(&offer[sold++]);
    if (rc == 0) rc = setup_services(&cc, offer, sold, STR("muster"), &arena, &setup, &err);
    struct str ca = { 0 };
    setup.tls_ca = cc.controller->tls.ca;
    /* A file that only the controller's machine has is no fault of the configuration. */
    if (rc == 0 && cc.cloud_count > 0 &&
        access(setup.tls_ca.len ? setup.tls_ca.data : "", R_OK) == 0)
        rc = web_user_data_ca(setup.tls_ca, &arena, &ca, &err);
    for (size_t k = 0; k < cc.cloud_count && web; k++)
        web[k].ca = ca;
    if (rc == 0 && web) rc = setup_user_data(&cc, web, &setup, &err);
    if (rc < 0) problem(c, &err, rc);
    for (size_t s = 0; s < cc.service_count; s++)
        check_service(c, &cc.service[s], rc < 0 ? NULL : setup.launch[s]);
    if (rc == 0) check_room(c, &cc, local, count, cores);
    if (cc.service_count == 0) check_engine(c);
}

static void check_model_list(struct checking *c)
{
    const struct models_section *m = config_section_get(c->config, models_section.name);
    const struct models_entry *e = m->list.items;
    for (size_t i = 0; i < m->list.count; i++) {
        struct err err = { 0 };
        int rc = models_entry_check(&e[i], &err);
        if (rc < 0) problem(c, &err, rc);
    }
}

static void check_router(struct checking *c)
{
    const struct router_config *r = config_section_get(c->config, router_section.name);
    struct err err = { 0 };
    int rc = policy_check("route", r->route, "router.route", &err);
    if (rc < 0) problem(c, &err, rc);
    rc = policy_check("predict", r->predict, "router.predict", &err);
    if (rc < 0) problem(c, &err, rc);
    rc = policy_check("migrate", r->migrate, "router.migrate", &err);
    if (rc < 0) problem(c, &err, rc);
    for (size_t i = 0; i < r->endpoints.count; i++) {
        struct router_endpoint at;
        rc = router_endpoint(r->endpoints.items[i], &at, &err);
        if (rc < 0) problem(c, &err, err_prefix(&err, rc, "router.endpoints[%zu]", i));
    }
    const struct predict_policy *predict = predict_find(r->predict);
    const char *missing = predict ? predict_missing(predict, FEATURES_HAVE) : NULL;
    if (missing)
        problem(c, &err,
                err_set(&err, -EINVAL, "router.predict: %s is not applicable: a router has no %s",
                        predict->name, missing));
}

int check_loaded(const struct config *config, struct buf *problems, struct err *err)
{
    CLEANUP(buf_fini) struct buf unread = { 0 };
    struct checking c = { .config = config, .out = problems ? problems : &unread };
    check_model_list(&c);
    check_fleet(&c);
    check_router(&c);
    if (c.count > 1)
        return err_set(err, -EINVAL, "%s (and %u more; `muster config check` lists them)",
                       c.first.text, c.count - 1);
    return c.count == 1 ? err_set(err, -EINVAL, "%s", c.first.text) : 0;
}

int check_file(const char *path, struct config **ret, struct buf *problems, struct err *err)
{
    CLEANUP(config_freep) struct config *config = NULL;
    struct config_problems found = { 0 };
    struct config_sources sources = { .path = path, .environ = (const char *const *)environ };
    int rc = config_load(&schema, &sources, &config, &found, err);
    if (problems && found.text.len > 0) buf_str(problems, buf_view(&found.text));
    buf_fini(&found.text);
    if (rc == 0) rc = check_loaded(config, problems, err);
    if (rc == 0) *ret = TAKE(config);
    return rc;
}
