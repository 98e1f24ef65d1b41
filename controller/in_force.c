/* in_force.c - decides which configuration the controller's process works with, and takes another while it runs.
 *
 * What may change comes from a file, from `muster apply` or from objects of Kubernetes. All take one path
 * (live_config.h): loaded, prepared (control_prepare), made durable, then done. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/cloud_adopted.h"
#include "controller/metrics.h"
#include "controller/orders.h"
#include "controller/process.h"
#include "controller/setup.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_US 2000000 /* between two looks at the configuration's file */
/* From the end of a drain to its agent's word on it: the agent hears of the drain with the reply to its next report,
 * and counts from there. */
#define DRAIN_MARGIN_US 15000000

/* The offers of all clouds, in the order in which control has them or will have them. */
struct offers {
    struct offer *list; /* PLAN_OFFERS_MAX */
    uint32_t count;
};

static int add_offers(struct offers *o, const struct offer *more, uint32_t count, struct err *err)
{
    if (count > PLAN_OFFERS_MAX - o->count)
        return err_set(err, -E2BIG, "more than %d offers", PLAN_OFFERS_MAX);
    if (count > 0) memcpy(o->list + o->count, more, count * sizeof *more);
    o->count += count;
    return 0;
}

/* Gathers the offers that clouds have, with those of a change. A running control keeps its order, and adds
 * setup->offer; a new one asks the clouds, one after the other. */
static int gather_offers(const struct controller *c, const struct kube_change *change,
                         struct offers *o, struct control_setup *setup, struct err *err)
{
    uint32_t count = 0, added_count = 0;
    const struct offer *added = change ? kube_change_offers(change, &added_count) : NULL;
    if (c->control) {
        const struct offer *held = control_offers(c->control, &count);
        int rc = add_offers(o, held, count, err);
        setup->offer = o->list + o->count;
        setup->offer_count = added_count;
        return rc < 0 ? rc : add_offers(o, added, added_count, err);
    }
    for (uint32_t i = 0; i < c->cloud_count; i++) {
        int rc = c->cloud[i].driver->offers(c->cloud[i].ctx, o->list + o->count,
                                            PLAN_OFFERS_MAX - o->count, &count, err);
        if (rc < 0) return rc;
        o->count += count;
        if (&c->cloud[i] == c->cluster) rc = add_offers(o, added, added_count, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Fills what may change in a running controller from the configuration in `f`. *ret_change is what the driver
 * of Kubernetes takes when it comes into force; NULL without one. */
static int fill(const struct controller *c, struct in_force *f, struct control_setup *setup,
                struct kube_change **ret_change, struct err *err)
{
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    const struct controller_section *s = f->config.controller;
    struct offers offers = { arena_array(&f->arena, PLAN_OFFERS_MAX, sizeof *offers.list), 0 };
    if (!offers.list) return err_set(err, -ENOMEM, "no memory for offers");
    setup->merge = MERGE_CONFIG_DEFAULT;
    setup->merge.boot_us = s->boot_us;
    setup->merge.drain_us = s->drain_us + max_i64(s->drain_us / 10, DRAIN_MARGIN_US);
    setup->merge.silent_us = s->silent_us;
    setup->join.within_us = s->join_within_us ? s->join_within_us : s->boot_us;
    setup->join.replaces = s->join_twice == JOIN_TWICE_REPLACE;
    setup->tick_us = s->tick_us;
    setup->lease_ms = (uint32_t)(s->lease_us / 1000);
    setup->grace_ms = (uint64_t)s->grace_us / 1000;
    setup->age_ms = (uint64_t)s->age_us / 1000;
    setup->drain_ms = (uint64_t)s->drain_us / 1000;
    setup->decisions_max = (uint64_t)s->decisions_max;
    setup->keys_required = s->require_keys;
    int rc = c->cluster ? setup_kube_change(&f->config, c->cluster, &change, err) : 0;
    if (rc == 0) rc = gather_offers(c, change, &offers, setup, err);
    if (rc == 0)
        rc = setup_services(&f->config, offers.list, offers.count, str_from(c->program), &f->arena,
                            setup, err);
    if (rc == 0 && c->web) rc = setup_user_data(&f->config, c->web, setup, err);
    if (rc < 0) return rc;
    *ret_change = TAKE(change);
    return 0;
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

int in_force_check(struct controller *c, struct err *err)
{
    CLEANUP(in_force_freep) struct in_force *f = NULL;
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    struct control_setup setup = { 0 };
    if (!store_is_shared(c->store)) return 0; /* its only term begins now */
    int rc = in_force_new(c->config->whole, &f, err);
    if (rc == 0) rc = open_adopted(c, &f->config, err);
    return rc < 0 ? rc : fill(c, f, &setup, &change, err);
}

int in_force_fill(struct controller *c, struct control_setup *setup, struct err *err)
{
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    int rc = open_adopted(c, &c->now->config, err);
    setup->cloud_count = c->cloud_count;
    if (c->adopted) {
        setup->adopted = cloud_adopted_heard;
        setup->adopted_ctx = c->adopted->ctx;
    }
    if (rc == 0) rc = fill(c, c->now, setup, &change, err);
    if (rc == 0 && change) kube_change_take(TAKE(change));
    return rc;
}

/* ---- another configuration while it runs ---- */

void in_force_log(const struct controller_section *s)
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
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    struct control_setup setup = { 0 };
    int64_t date_us = clock_wall_us();
    int rc = in_force_new(candidate->config, &f, err);
    if (rc == 0) rc = fill(c, f, &setup, &change, err);
    if (rc == 0) rc = control_prepare(c->control, &setup, &next, err);
    if (rc < 0 || dry_run) return rc;
    rc = live_config_keep(&c->live, candidate, date_us, err);
    if (rc < 0) return rc;
    if (change) kube_change_take(TAKE(change));
    control_commit(c->control, TAKE(next));
    live_config_take(&c->live, candidate, date_us);
    in_force_free(c->now);
    c->now = TAKE(f);
    in_force_log(c->now->config.controller);
    log_event(LOG_INFO, "config_in_force", "generation=%llu source=%s by=%s changes=%u",
              (unsigned long long)c->live.generation, live_source_names[candidate->source],
              candidate->by, candidate->count);
    controller_on_urgent(c);
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
    if (!controller_leads(c)) return;
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
    if (controller_leads(c) && live_config_file_changed(&c->live)) reload(c);
    /* A timer that cannot be set leaves SIGHUP and `muster apply`. */
    (void)loop_timer_set(c->loop, &c->look, loop_now_us(c->loop) + LOOK_US);
}

int in_force_show(void *arg, struct buf *out)
{
    const struct controller *c = arg;
    return live_config_put(&c->live, out);
}

int in_force_apply(void *arg, const struct config_order *o, const char *by, struct buf *out,
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
    /* Changes of the file until now are older than this order. */
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
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    struct control_setup setup = { 0 };
    struct live_candidate candidate = { .source = LIVE_OBJECTS, .services = list };
    int rc = live_config_load(&c->live, &candidate, err);
    if (rc == 0) rc = in_force_new(candidate.config, &f, err);
    if (rc == 0) rc = open_adopted(c, &f->config, err);
    if (rc == 0) rc = fill(c, f, &setup, &change, err);
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

int in_force_objects(struct controller *c, struct err *err)
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
        .leads = controller_leads,
        .change = change_services,
        .list = list_services,
        .arg = c,
    };
    return service_objects_new(&config, &c->objects, err);
}

/* ---- a term's ---- */

int in_force_open(struct controller *c, struct err *err)
{
    const struct live_config_setup setup = { .start = c->config->whole,
                                             .sources = c->config->sources,
                                             .check = c->config->check,
                                             .store = c->store };
    int rc = live_config_open(&c->live, &setup, clock_wall_us(), err);
    if (rc == 0 && c->objects) take_stored(c);
    if (rc == 0) rc = in_force_new(live_config_get(&c->live), &c->now, err);
    if (rc < 0) {
        in_force_close(c);
        return rc;
    }
    in_force_log(c->now->config.controller);
    metric_set(metric_of(c->metrics, CONTROL_M_CONFIG_GENERATION), (double)c->live.generation);
    return 0;
}

void in_force_close(struct controller *c)
{
    in_force_free(c->now);
    c->now = NULL;
    live_config_fini(&c->live);
}

int in_force_watch(struct controller *c, struct err *err)
{
    int rc = loop_signal(c->loop, SIGHUP, on_hangup, c, err);
    c->look = (struct loop_timer){ .fn = on_look, .arg = c };
    if (rc == 0 && c->config->sources.path)
        rc = loop_timer_set(c->loop, &c->look, clock_mono_us() + LOOK_US);
    return rc;
}
