/* kube_place.c - has calls of the controller served by Pods of a workload of the user's (kube_workload.h).
 *
 *     create:  a free place? ──no──► GET scale, PATCH replicas, wait ──► PATCH Pod: bound
 *     remove:  PATCH Pod: marked ──► GET scale, PATCH replicas; or DELETE Pod, where another would go */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/kube/kube_errand.h"

#include <stdio.h>
#include <string.h>

#define PLACE_LOOK_US 3000000
#define SCALE_TRIES 5

/* ---- the beginning of a place ---- */

static bool is_untaken(void *arg, const struct kube_place *p)
{
    const struct kube_cloud *k = arg;
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++)
        if (k->errand[i].call && strcmp(k->errand[i].place, p->meta.name) == 0) return false;
    return strlen(p->meta.name) < NAME_BYTES; /* of a handle */
}

uint32_t kube_place_waiting(const struct kube_cloud *k, const struct kube_workload *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++)
        n += k->errand[i].workload == w && k->errand[i].kept.op == CLOUD_CREATE;
    return n;
}

static void on_bound(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    struct kube_pod pod;
    struct err err = { 0 };
    er->call = NULL;
    er->place[0] = 0;
    if (r->rc == -ESTALE || r->rc == -ENOENT) { /* it changed or went: choose again */
        er->waits = true;
    } else if (r->rc < 0) {
        errand_fail(er, r);
    } else if (kube_pod_read(r->body, &pod, &err) < 0) {
        errand_refuse(er, OFFER_INVALID, &err, -EINVAL);
    } else {
        kube_workload_take(er->workload, r->body);
        kube_view_take(er->cloud->view, &pod);
        er->made = pod.listed;
        log_event(LOG_INFO, "place_bound", "intent=%s pod=%s", er->kept.intent, pod.meta.name);
        errand_succeed(er);
    }
}

/* Writes the launch document as the container sees it, and binds the place. */
static void bind_place(struct errand *er, const struct kube_place *p)
{
    struct kube_cloud *k = er->cloud;
    const struct cloud_kept *c = &er->kept;
    CLEANUP(buf_fini) struct buf launch = { .max = LAUNCH_BYTES_MAX }, body = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct launch_spec spec;
    struct err err = { 0 };
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    int rc = launch_spec_decode(buf_view(&c->spec), &arena, &spec, &err);
    if (rc == 0) {
        spec.engine_host = STR("0.0.0.0");
        spec.created_us = c->asked_us;
        spec.folder = STR(KUBE_STATE_FOLDER);
        spec.secret_file = STR(KUBE_KEY_FILE); /* the workload's template mounts it */
        rc = launch_spec_encode(&spec, &launch);
    }
    if (rc == 0)
        kube_workload_put_bind(p, c->intent, k->settings->section->fleet, &spec, buf_view(&launch),
                               &body);
    if (rc == 0) rc = body.rc;
    if (rc < 0) {
        errand_refuse(er, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_INVALID, &err, rc);
        return;
    }
    snprintf(er->place, sizeof er->place, "%s", p->meta.name);
    er->waits = false;
    struct kube_request req = { .verb = KUBE_PATCH,
                                .resource = &errand_pods,
                                .name = str_from(er->place),
                                .body = buf_view(&body) };
    errand_start(er, &req, on_bound);
}

static void scale_again(struct errand *er, const struct kube_reply *r);

static void ask_scale(struct errand *er, void (*on_end)(void *arg, const struct kube_reply *r))
{
    er->waits = false;
    struct kube_request req = { .verb = KUBE_GET,
                                .resource = &kube_workload_kind_get(er->workload)->resource,
                                .name = kube_workload_name(er->workload),
                                .subresource = "scale" };
    errand_start(er, &req, on_end);
}

static void set_scale(struct errand *er, uint32_t replicas, const char *version,
                      void (*on_end)(void *arg, const struct kube_reply *r))
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    kube_workload_put_scale(replicas, version, &body);
    log_event(LOG_INFO, "workload_scaled", "workload=%s/%.*s replicas=%u intent=%s",
              kube_workload_kind_get(er->workload)->name, STR_ARG(kube_workload_name(er->workload)),
              replicas, er->kept.intent);
    struct kube_request req = { .verb = KUBE_PATCH,
                                .resource = &kube_workload_kind_get(er->workload)->resource,
                                .name = kube_workload_name(er->workload),
                                .subresource = "scale",
                                .body = buf_view(&body) };
    errand_start(er, &req, on_end);
}

/* Reads a Scale's replicas and version. */
static int read_scale(struct str scale, int64_t *ret_replicas, char version[KUBE_VERSION_BYTES],
                      struct err *err)
{
    struct kube_meta meta;
    int64_t there;
    int rc = kube_scale_read(scale, ret_replicas, &there, err);
    if (rc == 0) rc = kube_meta_read(scale, &meta, err);
    if (rc == 0) snprintf(version, KUBE_VERSION_BYTES, "%s", meta.version);
    return rc;
}

static void on_grown(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc < 0 && r->rc != -ESTALE) {
        errand_fail(er, r);
        return;
    }
    er->waits = true; /* somebody else set it: it is looked at again */
    if (r->rc < 0) er->look_us = 0;
}

static void on_look(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    char version[KUBE_VERSION_BYTES];
    int64_t replicas;
    struct err err = { 0 };
    er->call = NULL;
    int rc = r->rc < 0 ? r->rc : read_scale(r->body, &replicas, version, &err);
    if (r->rc < 0) {
        errand_fail(er, r);
    } else if (rc < 0) {
        errand_refuse(er, OFFER_INVALID, &err, rc);
    } else {
        uint32_t target =
            kube_workload_target(er->workload, kube_place_waiting(er->cloud, er->workload));
        if (replicas < target)
            set_scale(er, target, version, on_grown);
        else
            er->waits = true;
    }
}

void kube_place_take(struct errand *er)
{
    struct kube_cloud *k = er->cloud;
    int64_t now_us = loop_now_us(k->loop);
    const struct kube_place *p = kube_workload_find(er->workload, er->kept.intent, NULL);
    if (p) {
        must(name_copy(er->made.handle, NAME_BYTES, str_from(p->meta.name)) == 0);
        must(name_copy(er->made.intent, NAME_BYTES, str_from(p->intent)) == 0);
        errand_succeed(er);
        return;
    }
    p = kube_workload_choose(er->workload, is_untaken, k);
    if (p) {
        bind_place(er, p);
    } else if (now_us >= er->until_us) {
        struct err err = { 0 };
        int rc =
            err_set(&err, -EAGAIN, "%s " STR_FMT " made no Pod within %d s; its events say why",
                    kube_workload_kind_get(er->workload)->name,
                    STR_ARG(kube_workload_name(er->workload)), PLACE_US / 1000000);
        errand_refuse(er, OFFER_CAPACITY, &err, rc);
    } else if (now_us >= er->look_us) {
        er->look_us = now_us + PLACE_LOOK_US;
        ask_scale(er, on_look);
    } else {
        er->waits = true;
    }
}

void kube_place_serve(struct kube_cloud *k)
{
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++)
        if (k->errand[i].waits) kube_place_take(&k->errand[i]);
    for (uint32_t i = 0; i < k->settings->sold_count; i++)
        if (k->workload[i]) kube_workload_turn(k->workload[i]);
}

/* ---- the end of a place ---- */

static void on_shrunk(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == -ESTALE)
        scale_again(er, r);
    else if (r->rc < 0)
        errand_fail(er, r);
    else
        errand_succeed(er);
}

static void on_less(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    const struct kube_workload_kind *kind = kube_workload_kind_get(er->workload);
    const struct kube_place *p = kube_workload_find(er->workload, NULL, er->place);
    char version[KUBE_VERSION_BYTES];
    int64_t replicas;
    struct err err = { 0 };
    er->call = NULL;
    if (r->rc == -ENOENT) { /* the workload went, and may have left its Pods */
        errand_delete(er, er->place);
        return;
    }
    if (r->rc < 0) {
        errand_fail(er, r);
        return;
    }
    int rc = read_scale(r->body, &replicas, version, &err);
    if (rc < 0) {
        errand_refuse(er, OFFER_INVALID, &err, rc);
        return;
    }
    uint32_t target =
        kube_workload_target(er->workload, kube_place_waiting(er->cloud, er->workload));
    bool stays = replicas <= target || (kind->ordinal && p && p->ordinal < target);
    if (p && p->alive && stays) /* it would not go by itself: its successor is a free place */
        errand_delete(er, er->place);
    else if (replicas > target)
        set_scale(er, target, version, on_shrunk);
    else
        errand_succeed(er);
}

static void scale_again(struct errand *er, const struct kube_reply *r)
{
    if (er->tries++ < SCALE_TRIES)
        ask_scale(er, on_less);
    else
        errand_fail(er, r);
}

static void on_marked(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc < 0 && r->rc != -ENOENT) {
        errand_fail(er, r);
        return;
    }
    if (r->rc == 0) kube_workload_take(er->workload, r->body);
    ask_scale(er, on_less);
}

void kube_place_mark(struct errand *er)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    kube_workload_put_mark(&body);
    struct kube_request req = { .verb = KUBE_PATCH,
                                .resource = &errand_pods,
                                .name = str_from(er->place),
                                .body = buf_view(&body) };
    errand_start(er, &req, on_marked);
}

struct kube_workload *kube_place_find(const struct kube_cloud *k, const struct cloud_kept *c,
                                      const char **ret_pod)
{
    for (uint32_t i = 0; i < k->settings->sold_count; i++) {
        if (!k->workload[i]) continue;
        const struct kube_place *p = kube_workload_find(k->workload[i], c->intent, NULL);
        if (!p && c->handle[0]) p = kube_workload_find(k->workload[i], NULL, c->handle);
        if (!p) continue;
        *ret_pod = p->meta.name;
        return k->workload[i];
    }
    return NULL;
}

bool kube_place_all_known(const struct kube_cloud *k, const struct cloud_call *call,
                          struct err *err)
{
    bool creates = call->op == CLOUD_CREATE;
    if (!creates && call->handle[0] && strcmp(call->handle, call->intent) == 0) return true;
    for (uint32_t i = 0; i < k->settings->sold_count; i++) {
        const struct offer *o = &k->settings->sold[i].offer;
        const char *why;
        if (!k->workload[i] || kube_workload_synced(k->workload[i], &why)) continue;
        if (creates && strcmp(call->create.offer->name, o->name) != 0) continue;
        err_set(err, -EBUSY, "the Pods of offer %s are not known: %.200s", o->name, why);
        return false;
    }
    return true;
}

static void places_changed(void *arg)
{
    struct kube_cloud *k = arg;
    if (k->fn) k->fn(k->arg);
}

int kube_place_open(struct kube_cloud *k, struct err *err)
{
    for (uint32_t i = 0; i < k->settings->sold_count; i++) {
        const struct kube_sold *sold = &k->settings->sold[i];
        if (!sold->workload) continue;
        int rc = kube_workload_new(k->client, k->ns, sold->workload, sold->workload_name,
                                   places_changed, k, &k->workload[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}
