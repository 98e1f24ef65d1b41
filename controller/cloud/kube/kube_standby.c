/* kube_standby.c - compares standby Pods that a watch tells with those that offers want, and makes the difference. */
#include "controller/cloud/kube/kube_standby.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/kube/kube_slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_US 5000000       /* after a call that failed */
#define GIVE_AGAIN_US 15000000 /* the scheduler's longest back-off, 10 s, and a margin */
#define CLAIM_AGAIN_US 1000000 /* doubled six times */

static const struct kube_resource pods = { "", "v1", "pods", false };

struct standby_call {
    struct kube_standby *standby;
    struct kube_call *call;
    const struct kube_resource *resource;
    char name[KUBE_NAME_BYTES];
};

/* A Pod that is there, if only until its deletion ends. */
struct standby_pod {
    char name[KUBE_NAME_BYTES], uid[KUBE_UID_BYTES];
    bool placed;          /* it has a node */
    bool going;           /* its deletion was asked for */
    bool claimed;         /* we have made its claim */
    uint32_t claim_tries; /* that met a claim of its name */
    int64_t claim_us;     /* the next try is not before */
};

/* Counts the standby Pods of an offer that were given up for instances that still wait. */
struct giving {
    uint32_t waiting, given;
    int64_t given_us; /* the last one */
};

struct kube_standby {
    struct kube_client *client;
    struct kube_standby_config config;
    struct kube_watch *watch;
    bool synced;
    struct standby_pod there[KUBE_STANDBY_MAX];
    uint32_t there_count;
    struct giving giving[KUBE_OFFERS_MAX]; /* parallel to settings->sold */
    struct standby_call call[KUBE_STANDBY_CALLS];
    int64_t again_us;
};

static struct standby_pod *find(struct kube_standby *s, const char *name)
{
    for (uint32_t i = 0; i < s->there_count; i++)
        if (strcmp(s->there[i].name, name) == 0) return &s->there[i];
    return NULL;
}

static void take(struct kube_standby *s, const struct kube_event *e)
{
    struct standby_pod *p = find(s, e->meta->name);
    CLEANUP(buf_fini) struct buf node = { 0 };
    if (e->type == KUBE_DELETED) {
        if (p) *p = s->there[--s->there_count];
        return;
    }
    if (!p && s->there_count == KUBE_STANDBY_MAX) return;
    if (!p) p = &s->there[s->there_count++];
    if (strcmp(p->uid, e->meta->uid) != 0) *p = (struct standby_pod){ 0 };
    snprintf(p->name, sizeof p->name, "%s", e->meta->name);
    snprintf(p->uid, sizeof p->uid, "%s", e->meta->uid);
    p->placed = json_path_text(e->object, "spec.nodeName", &node) == 0 && node.len > 0;
    p->going |= e->meta->deleting;
}

/* A Pod that has come wants its claim, and is scheduled no sooner. */
static void on_pod(void *arg, const struct kube_event *e)
{
    struct kube_standby *s = arg;
    if (e->type == KUBE_SYNCED)
        s->synced = true;
    else
        take(s, e);
    kube_standby_turn(s);
}

/* A claim of this name may be that of the Pod's predecessor, which is about to go. */
static void end_claim(struct kube_standby *s, struct standby_pod *p, const struct kube_reply *r)
{
    p->claimed = r->rc == 0;
    p->claim_us = loop_now_us(kube_client_loop(s->client)) +
                  ((int64_t)CLAIM_AGAIN_US << min_u32(p->claim_tries++, 6));
}

static void on_end(void *arg, const struct kube_reply *r)
{
    struct standby_call *c = arg;
    struct kube_standby *s = c->standby;
    struct standby_pod *p = find(s, c->name);
    bool fine = r->rc == 0 || r->rc == -ENOENT || r->status.reason == KUBE_ALREADY_EXISTS;
    c->call = NULL;
    if (p && c->resource == &kube_claims_resource) end_claim(s, p, r);
    if (fine) return;
    if (p && c->resource == &pods) p->going = false;
    s->again_us = loop_now_us(kube_client_loop(s->client)) + AGAIN_US;
    log_event(LOG_WARN, "standby_failed", "pod=%s error=%s", c->name, r->problem);
}

/* Returns a slot for a call about this Pod; NULL: one is under way, or as many as may be. */
static struct standby_call *slot_for(struct kube_standby *s, const char *name)
{
    struct standby_call *ret = NULL;
    for (uint32_t i = 0; i < KUBE_STANDBY_CALLS; i++) {
        struct standby_call *c = &s->call[i];
        if (c->call && strcmp(c->name, name) == 0) return NULL;
        if (!c->call && !ret) ret = c;
    }
    return ret;
}

static void go(struct kube_standby *s, struct standby_call *c, const char *name,
               struct kube_request req)
{
    struct err err = { 0 };
    *c = (struct standby_call){ .standby = s, .resource = req.resource };
    snprintf(c->name, sizeof c->name, "%s", name);
    req.ns = s->config.ns;
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

/* Returns the offer that wants a standby Pod of this name; NULL: none does. */
static const struct kube_sold *wanted_by(const struct kube_standby *s, const char *name)
{
    char wanted[KUBE_NAME_BYTES];
    const struct kube_settings *settings = s->config.settings;
    for (uint32_t i = 0; i < settings->sold_count; i++)
        for (uint32_t k = 0; k < settings->sold[i].standby; k++) {
            name_of(&settings->sold[i], k, wanted);
            if (strcmp(name, wanted) == 0) return &settings->sold[i];
        }
    return NULL;
}

/* Returns true if the call is under way. */
static bool drop(struct kube_standby *s, struct standby_pod *p)
{
    struct standby_call *c = p->going ? NULL : slot_for(s, p->name);
    if (!c) return false;
    go(s, c, p->name,
       (struct kube_request){ .verb = KUBE_DELETE,
                              .resource = &pods,
                              .name = str_from(p->name),
                              .del = { .grace_s = -1 } });
    p->going = c->call != NULL;
    return p->going;
}

static bool is_claimed(const struct kube_sold *sold)
{
    return sold->found && kube_found_is_claimed(sold->found);
}

/* ---- claimed devices ---- */

static void claim(struct kube_standby *s, struct standby_pod *p, const struct kube_sold *sold)
{
    CLEANUP(buf_fini) struct buf body = { .max = KUBE_POD_BYTES_MAX };
    bool due = loop_now_us(kube_client_loop(s->client)) >= p->claim_us;
    if (p->placed || p->going || p->claimed || !due || !sold->found->known) return;
    struct standby_call *c = slot_for(s, p->name);
    if (!c) return;
    int rc = kube_claim_write(sold->found, KUBE_STANDBY, str_from(p->name),
                              s->config.settings->section->fleet, str_from(p->uid), &body);
    if (rc == 0)
        go(s, c, p->name,
           (struct kube_request){
               .verb = KUBE_CREATE, .resource = &kube_claims_resource, .body = buf_view(&body) });
}

/* Deletes standby Pods of an offer whose instances wait for a node: one for each of them, and those without a place. */
static void give_way(struct kube_standby *s, const struct kube_sold *sold, struct giving *g)
{
    int64_t now_us = loop_now_us(kube_client_loop(s->client));
    g->waiting = kube_view_waiting(s->config.view, sold->offer.name);
    g->given = now_us - g->given_us > GIVE_AGAIN_US ? 0 : min_u32(g->given, g->waiting);
    if (g->waiting == 0) return;
    for (uint32_t i = 0; i < s->there_count; i++) {
        struct standby_pod *p = &s->there[i];
        bool due = !p->placed || g->given < g->waiting;
        if (!due || wanted_by(s, p->name) != sold || !drop(s, p) || !p->placed) continue;
        g->given++;
        g->given_us = now_us;
        log_event(LOG_INFO, "standby_gives_way", "pod=%s offer=%s", p->name, sold->offer.name);
    }
}

/* ---- all of them ---- */

static void make(struct kube_standby *s, struct kube_sold *sold, uint32_t index)
{
    CLEANUP(buf_fini) struct buf body = { .max = KUBE_POD_BYTES_MAX };
    char name[KUBE_NAME_BYTES];
    struct err err = { 0 };
    name_of(sold, index, name);
    struct standby_call *c = find(s, name) ? NULL : slot_for(s, name);
    if (!c) return;
    int rc = s->config.write(s->config.ctx, sold, name, &body, &err);
    if (rc < 0) {
        s->again_us = loop_now_us(kube_client_loop(s->client)) + AGAIN_US;
        if (rc != -EAGAIN) log_event(LOG_WARN, "standby_failed", "pod=%s error=%s", name, err.text);
        return;
    }
    go(s, c, name,
       (struct kube_request){ .verb = KUBE_CREATE, .resource = &pods, .body = buf_view(&body) });
}

static bool in_term(const struct cloud_fence *f)
{
    return !f || (atomic_load(&f->epoch) != 0 && clock_mono_us() < atomic_load(&f->until_us));
}

void kube_standby_turn(struct kube_standby *s)
{
    const struct kube_settings *settings = s->config.settings;
    int64_t now_us = loop_now_us(kube_client_loop(s->client));
    if (!s->synced || now_us < s->again_us || !in_term(settings->fence)) return;
    for (uint32_t i = 0; i < settings->sold_count; i++)
        if (settings->sold[i].standby > 0 && is_claimed(&settings->sold[i]))
            give_way(s, &settings->sold[i], &s->giving[i]);
    for (uint32_t i = 0; i < s->there_count; i++) {
        const struct kube_sold *sold = wanted_by(s, s->there[i].name);
        if (!sold)
            (void)drop(s, &s->there[i]);
        else if (is_claimed(sold))
            claim(s, &s->there[i], sold);
    }
    for (uint32_t i = 0; i < settings->sold_count; i++)
        for (uint32_t k = 0; k < settings->sold[i].standby && now_us >= s->again_us; k++)
            if (s->giving[i].waiting == 0) make(s, &settings->sold[i], k);
}

int kube_standby_new(struct kube_client *client, const struct kube_standby_config *config,
                     struct kube_standby **ret, struct err *err)
{
    struct kube_standby *s = calloc(1, sizeof *s);
    char selector[128];
    if (!s) return err_set(err, -ENOMEM, "no memory for standby Pods");
    *s = (struct kube_standby){ .client = client, .config = *config };
    snprintf(selector, sizeof selector, KUBE_LABEL_STANDBY "=" STR_FMT,
             STR_ARG(config->settings->section->fleet));
    const struct kube_watch_request req = { .resource = &pods,
                                            .ns = config->ns,
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
