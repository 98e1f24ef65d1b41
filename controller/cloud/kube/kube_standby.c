/* kube_standby.c - compares standby Pods that a watch tells with those that offers want, and makes the difference. */
#include "controller/cloud/kube/kube_standby.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_US 5000000 /* after a call that failed */

static const struct kube_resource pods = { "", "v1", "pods", false };

struct standby_call {
    struct kube_standby *standby;
    struct kube_call *call;
    char name[KUBE_NAME_BYTES];
};

struct kube_standby {
    struct kube_client *client;
    struct str ns;
    const struct kube_settings *settings;
    kube_standby_write_fn write;
    void *ctx;
    struct kube_watch *watch;
    bool synced;
    char there[KUBE_STANDBY_MAX][KUBE_NAME_BYTES]; /* those that are being deleted too */
    uint32_t there_count;
    struct standby_call call[KUBE_STANDBY_CALLS];
    int64_t again_us;
};

static uint32_t find(const struct kube_standby *s, const char *name)
{
    for (uint32_t i = 0; i < s->there_count; i++)
        if (strcmp(s->there[i], name) == 0) return i;
    return UINT32_MAX;
}

static void on_pod(void *arg, const struct kube_event *e)
{
    struct kube_standby *s = arg;
    if (e->type == KUBE_SYNCED) {
        s->synced = true;
        return;
    }
    uint32_t at = find(s, e->meta->name);
    if (e->type == KUBE_DELETED && at != UINT32_MAX)
        memcpy(s->there[at], s->there[--s->there_count], KUBE_NAME_BYTES);
    else if (e->type != KUBE_DELETED && at == UINT32_MAX && s->there_count < KUBE_STANDBY_MAX)
        snprintf(s->there[s->there_count++], KUBE_NAME_BYTES, "%s", e->meta->name);
}

static void on_end(void *arg, const struct kube_reply *r)
{
    struct standby_call *c = arg;
    bool fine = r->rc == 0 || r->rc == -ENOENT || r->status.reason == KUBE_ALREADY_EXISTS;
    c->call = NULL;
    if (fine) return;
    c->standby->again_us = loop_now_us(kube_client_loop(c->standby->client)) + AGAIN_US;
    log_event(LOG_WARN, "standby_failed", "pod=%s error=%s", c->name, r->problem);
}

/* Returns true if a call about this Pod is under way; else *ret_free is a slot for one, or NULL. */
static bool is_busy(struct kube_standby *s, const char *name, struct standby_call **ret_free)
{
    *ret_free = NULL;
    for (uint32_t i = 0; i < KUBE_STANDBY_CALLS; i++) {
        struct standby_call *c = &s->call[i];
        if (c->call && strcmp(c->name, name) == 0) return true;
        if (!c->call && !*ret_free) *ret_free = c;
    }
    return false;
}

static void go(struct kube_standby *s, struct standby_call *c, const char *name,
               struct kube_request req)
{
    struct err err = { 0 };
    *c = (struct standby_call){ .standby = s };
    snprintf(c->name, sizeof c->name, "%s", name);
    req.resource = &pods;
    req.ns = s->ns;
    req.on_end = on_end;
    req.arg = c;
    if (kube_start(s->client, &req, &c->call, &err) == 0) return;
    s->again_us = loop_now_us(kube_client_loop(s->client)) + AGAIN_US;
    log_event(LOG_WARN, "standby_failed", "pod=%s error=%s", name, err.text);
}

static void name_of(const struct kube_sold *sold, uint32_t index, char ret[KUBE_NAME_BYTES])
{
    char slug[NAME_BYTES];
    kube_slug(str_from(sold->offer.name), slug, sizeof slug);
    snprintf(ret, KUBE_NAME_BYTES, "standby-%s-%u", slug, index);
}

static bool is_wanted(const struct kube_standby *s, const char *name)
{
    char wanted[KUBE_NAME_BYTES];
    for (uint32_t i = 0; i < s->settings->sold_count; i++)
        for (uint32_t k = 0; k < s->settings->sold[i].standby; k++) {
            name_of(&s->settings->sold[i], k, wanted);
            if (strcmp(name, wanted) == 0) return true;
        }
    return false;
}

static void make(struct kube_standby *s, struct kube_sold *sold, uint32_t index)
{
    CLEANUP(buf_fini) struct buf body = { .max = KUBE_POD_BYTES_MAX };
    char name[KUBE_NAME_BYTES];
    struct standby_call *c;
    struct err err = { 0 };
    name_of(sold, index, name);
    if (find(s, name) != UINT32_MAX || is_busy(s, name, &c) || !c) return;
    int rc = s->write(s->ctx, sold, name, &body, &err);
    if (rc < 0) {
        s->again_us = loop_now_us(kube_client_loop(s->client)) + AGAIN_US;
        if (rc != -EAGAIN) log_event(LOG_WARN, "standby_failed", "pod=%s error=%s", name, err.text);
        return;
    }
    go(s, c, name, (struct kube_request){ .verb = KUBE_CREATE, .body = buf_view(&body) });
}

static bool in_term(const struct cloud_fence *f)
{
    return !f || (atomic_load(&f->epoch) != 0 && clock_mono_us() < atomic_load(&f->until_us));
}

void kube_standby_turn(struct kube_standby *s)
{
    int64_t now_us = loop_now_us(kube_client_loop(s->client));
    if (!s->synced || now_us < s->again_us || !in_term(s->settings->fence)) return;
    for (uint32_t i = 0; i < s->there_count; i++) {
        struct standby_call *c;
        if (is_wanted(s, s->there[i]) || is_busy(s, s->there[i], &c) || !c) continue;
        go(s, c, s->there[i],
           (struct kube_request){
               .verb = KUBE_DELETE, .name = str_from(s->there[i]), .del = { .grace_s = -1 } });
    }
    for (uint32_t i = 0; i < s->settings->sold_count; i++)
        for (uint32_t k = 0; k < s->settings->sold[i].standby && now_us >= s->again_us; k++)
            make(s, &s->settings->sold[i], k);
}

int kube_standby_new(struct kube_client *client, struct str ns,
                     const struct kube_settings *settings, kube_standby_write_fn write, void *ctx,
                     struct kube_standby **ret, struct err *err)
{
    struct kube_standby *s = calloc(1, sizeof *s);
    char selector[128];
    if (!s) return err_set(err, -ENOMEM, "no memory for standby Pods");
    *s = (struct kube_standby){
        .client = client, .ns = ns, .settings = settings, .write = write, .ctx = ctx
    };
    snprintf(selector, sizeof selector, KUBE_LABEL_STANDBY "=" STR_FMT,
             STR_ARG(settings->section->fleet));
    const struct kube_watch_request req = { .resource = &pods,
                                            .ns = ns,
                                            .label_selector = str_from(selector),
                                            .on_event = on_pod,
                                            .arg = s };
    int rc = kube_watch_start(client, &req, &s->watch, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void kube_standby_free(struct kube_standby *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < KUBE_STANDBY_CALLS; i++)
        if (s->call[i].call) kube_cancel(s->call[i].call);
    kube_watch_stop(s->watch);
    free(s);
}
