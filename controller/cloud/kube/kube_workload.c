/* kube_workload.c - keeps the places of one workload from a watch of its Pods, and reckons its replicas. */
#include "controller/cloud/kube/kube_workload.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_US 5000000
#define SELECTOR_BYTES 512
#define INTENT_NOTE KUBE_DOMAIN "intent"
#define ENDING_NOTE KUBE_DOMAIN "ending"
#define COST_NOTE "controller.kubernetes.io/pod-deletion-cost"
#define COST_LEAST "-2147483647"

static const struct kube_resource pods = { "", "v1", "pods", false };

static const struct kube_workload_kind kinds[] = {
    { "deployment", { "apps", "v1", "deployments", false }, false },
    { "statefulset", { "apps", "v1", "statefulsets", false }, true },
    { "leaderworkerset", { "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", false }, true },
};

const struct kube_workload_kind *kube_workload_kind_of(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (str_eq(name, str_from(kinds[i].name))) return &kinds[i];
    return NULL;
}

struct kube_workload {
    struct kube_client *client;
    struct str ns, name;
    const struct kube_workload_kind *kind;
    void (*changed)(void *arg);
    void *arg;
    struct kube_call *ask; /* of its selector */
    int64_t again_us;
    struct kube_watch *watch;        /* NULL: the selector is not known */
    bool synced, missing, full_told; /* missing: there is no such workload, and so no place */
    char problem[KUBE_MESSAGE_BYTES];
    struct kube_place place[KUBE_PLACES_MAX];
    uint32_t count;
};

const struct kube_workload_kind *kube_workload_kind_get(const struct kube_workload *w)
{
    return w->kind;
}

struct str kube_workload_name(const struct kube_workload *w)
{
    return w->name;
}

/* ---- places ---- */

static int read_note(void *ctx, struct str name, struct str value)
{
    struct kube_place *p = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return 0;
    if (str_eq(name, STR(INTENT_NOTE)) && text.len < sizeof p->intent)
        snprintf(p->intent, sizeof p->intent, "%.*s", (int)text.len, text.data);
    if (str_eq(name, STR(ENDING_NOTE))) p->marked = true;
    return 0;
}

/* Returns the number after the last '-' of a Pod's name. */
static uint32_t ordinal_of(const char *name)
{
    const char *dash = strrchr(name, '-');
    uint64_t n = 0;
    if (!dash || str_to_u64(str_from(dash + 1), &n) < 0 || n > UINT32_MAX) return 0;
    return (uint32_t)n;
}

static int read_place(const struct kube_workload *w, struct str pod, struct kube_place *ret)
{
    struct kube_place p = { 0 };
    CLEANUP(buf_fini) struct buf phase = { 0 };
    struct str metadata;
    int rc = kube_meta_read(pod, &p.meta, NULL);
    if (rc < 0 || json_path(pod, "metadata", &metadata) < 0) return -EINVAL;
    (void)json_path_each_member(metadata, "annotations", read_note, &p);
    (void)json_path_text(pod, "status.phase", &phase);
    bool ended =
        str_eq(buf_view(&phase), STR("Failed")) || str_eq(buf_view(&phase), STR("Succeeded"));
    p.alive = !ended && !p.meta.deleting;
    p.ordinal = w->kind->ordinal ? ordinal_of(p.meta.name) : 0;
    *ret = p;
    return 0;
}

static struct kube_place *find_pod(struct kube_workload *w, const char *name)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (strcmp(w->place[i].meta.name, name) == 0) return &w->place[i];
    return NULL;
}

void kube_workload_take(struct kube_workload *w, struct str pod)
{
    struct kube_place next;
    if (read_place(w, pod, &next) < 0) return;
    struct kube_place *p = find_pod(w, next.meta.name);
    if (!p && w->count == KUBE_PLACES_MAX) {
        if (!w->full_told)
            log_event(LOG_ERROR, "too_many_places", "workload=%s/%.*s pods=%d", w->kind->name,
                      STR_ARG(w->name), KUBE_PLACES_MAX);
        w->full_told = true;
        return;
    }
    if (!p) p = &w->place[w->count++];
    *p = next;
}

static void on_pod(void *arg, const struct kube_event *e)
{
    struct kube_workload *w = arg;
    if (e->type == KUBE_SYNCED) {
        w->synced = true;
    } else if (e->type == KUBE_DELETED) {
        struct kube_place *p = find_pod(w, e->meta->name);
        if (p) *p = w->place[--w->count];
    } else {
        kube_workload_take(w, e->object);
    }
    w->changed(w->arg);
}

const struct kube_place *kube_workload_find(const struct kube_workload *w, const char *intent,
                                            const char *pod)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct kube_place *p = &w->place[i];
        if (strcmp(intent ? p->intent : p->meta.name, intent ? intent : pod) == 0) return p;
    }
    return NULL;
}

const struct kube_place *kube_workload_choose(const struct kube_workload *w,
                                              bool (*fn)(void *arg, const struct kube_place *p),
                                              void *arg)
{
    const struct kube_place *best = NULL;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct kube_place *p = &w->place[i];
        if (p->intent[0] || p->marked || !p->alive || !fn(arg, p)) continue;
        if (!best || p->ordinal < best->ordinal) best = p;
    }
    return best;
}

void kube_workload_each_free(const struct kube_workload *w, cloud_leftover_fn fn, void *arg)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct kube_place *p = &w->place[i];
        if (p->intent[0] || !p->alive) continue;
        fn(arg, &(struct cloud_leftover){
                    .name = p->meta.name,
                    .why = "a free place: its workload has more replicas than instances; the next "
                           "instance takes it, or scale the workload down" });
    }
}

uint32_t kube_workload_target(const struct kube_workload *w, uint32_t waiting)
{
    uint32_t bound = 0, least = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct kube_place *p = &w->place[i];
        if (!p->intent[0] || p->marked || !p->alive) continue;
        bound++;
        if (w->kind->ordinal && p->ordinal >= least) least = p->ordinal + 1;
    }
    return bound + waiting > least ? bound + waiting : least;
}

/* ---- patches ---- */

void kube_workload_put_bind(const struct kube_place *p, const char *intent, struct str fleet,
                            const struct launch_spec *spec, struct str launch, struct buf *out)
{
    struct json_writer w;
    char service[KUBE_LABEL_BYTES];
    kube_label(spec->service, service);
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "resourceVersion", p->meta.version);
    json_key(&w, "labels");
    json_object(&w);
    json_kv_str(&w, KUBE_LABEL_FLEET, fleet);
    json_kv_text(&w, KUBE_LABEL_SERVICE, service);
    json_object_end(&w);
    json_key(&w, "annotations");
    json_object(&w);
    json_kv_str(&w, INTENT_NOTE, str_from(intent));
    json_kv_str(&w, KUBE_DOMAIN "service", spec->service);
    json_kv_str(&w, KUBE_DOMAIN "pool", spec->pool);
    json_kv_str(&w, KUBE_DOMAIN "offer", spec->offer);
    json_kv_str(&w, KUBE_DOMAIN "launch", launch);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

void kube_workload_put_mark(struct buf *out)
{
    buf_text(out, "{\"metadata\":{\"annotations\":{\"" ENDING_NOTE "\":\"true\",\"" COST_NOTE
                  "\":\"" COST_LEAST "\"}}}");
}

void kube_workload_put_scale(uint32_t replicas, const char *version, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "resourceVersion", version);
    json_object_end(&w);
    json_key(&w, "spec");
    json_object(&w);
    json_kv_u64(&w, "replicas", replicas);
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- life ---- */

static void on_scale(void *arg, const struct kube_reply *r)
{
    struct kube_workload *w = arg;
    CLEANUP(buf_fini) struct buf selector = { .max = SELECTOR_BYTES };
    struct err err = { 0 };
    w->ask = NULL;
    w->missing = r->rc == -ENOENT;
    int rc = r->rc;
    if (rc < 0)
        err_set(&err, rc, "%s", r->problem);
    else if (json_path_text(r->body, "status.selector", &selector) < 0 || selector.len == 0)
        rc = err_set(&err, -EINVAL, "its scale names no selector of Pods");
    if (rc == 0) {
        const struct kube_watch_request req = { .resource = &pods,
                                                .ns = w->ns,
                                                .label_selector = buf_view(&selector),
                                                .on_event = on_pod,
                                                .arg = w };
        rc = kube_watch_start(w->client, &req, &w->watch, &err);
    }
    if (rc == 0) return;
    w->changed(w->arg);
    if (strcmp(w->problem, err.text) != 0)
        log_event(LOG_WARN, "workload_unknown", "workload=%s/%.*s error=%s", w->kind->name,
                  STR_ARG(w->name), err.text);
    snprintf(w->problem, sizeof w->problem, "%.380s", err.text);
}

void kube_workload_turn(struct kube_workload *w)
{
    int64_t now_us = loop_now_us(kube_client_loop(w->client));
    if (w->watch || w->ask || now_us < w->again_us) return;
    w->again_us = now_us + AGAIN_US;
    const struct kube_request req = { .verb = KUBE_GET,
                                      .resource = &w->kind->resource,
                                      .ns = w->ns,
                                      .name = w->name,
                                      .subresource = "scale",
                                      .on_end = on_scale,
                                      .arg = w };
    struct err err = { 0 };
    if (kube_start(w->client, &req, &w->ask, &err) < 0)
        snprintf(w->problem, sizeof w->problem, "%.380s", err.text);
}

bool kube_workload_synced(const struct kube_workload *w, const char **ret_why)
{
    *ret_why = w->problem[0] ? w->problem : "its Pods are not listed yet";
    return w->synced || w->missing;
}

int kube_workload_new(struct kube_client *client, struct str ns,
                      const struct kube_workload_kind *kind, struct str name,
                      void (*changed)(void *arg), void *arg, struct kube_workload **ret,
                      struct err *err)
{
    struct kube_workload *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "no memory for a workload");
    *w = (struct kube_workload){
        .client = client, .ns = ns, .name = name, .kind = kind, .changed = changed, .arg = arg
    };
    kube_workload_turn(w);
    *ret = w;
    return 0;
}

void kube_workload_free(struct kube_workload *w)
{
    if (!w) return;
    if (w->ask) kube_cancel(w->ask);
    kube_watch_stop(w->watch);
    free(w);
}
