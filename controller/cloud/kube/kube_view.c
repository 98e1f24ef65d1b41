/* kube_view.c - turns events of two watches, of Pods and of nodes, into a view that is listed without a call.
 *
 * Times of waiting and of leaving are taken from this process's clock when the event comes, because the
 * clocks of API servers, nodes and controllers need not agree. */
#include "controller/cloud/kube/kube_view.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/kube/kube_patience.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_MAX 256     /* uids of deleted Pods that are remembered */
#define TAKEN_US 60000000 /* a Pod that no list shows for so long after its create is gone */

static const struct kube_resource pods = { "", "v1", "pods", false };
static const struct kube_resource nodes = { "", "v1", "nodes", true };

struct seen_pod {
    struct kube_pod pod;
    int64_t waits_us;  /* since when it waits; 0: it does not */
    int64_t leaves_us; /* on the loop's clock, as the others; 0: it does not */
    int64_t taken_us;  /* from the reply of its create; 0: the watch has told it */
    struct lead lead;  /* of its launch */
    bool missed;       /* it was told as sold out */
};

struct offer_waits {
    char offer[NAME_BYTES];
    struct kube_patience patience;
};

struct notice {
    char node[KUBE_NAME_BYTES];
    const char *taint;
    int64_t leaves_us;
};

struct kube_view {
    struct loop *loop;
    struct kube_view_config config;
    struct kube_watch *pod_watch, *node_watch;
    struct seen_pod pod[CLOUD_LIST_MAX];
    uint32_t pod_count;
    uint64_t overflow; /* Pods that found no room, since the last list */
    bool news;
    struct notice notice[KUBE_NOTICES_MAX];
    uint32_t notice_count;
    struct offer_waits waits[CLOUD_PRICES_MAX];
    uint32_t waits_count;
    char ended[ENDED_MAX][KUBE_UID_BYTES]; /* a ring */
    uint32_t ended_next;
    void (*fn)(void *arg);
    void *arg;
};

static void wake(struct kube_view *v)
{
    if (v->fn) v->fn(v->arg);
}

/* ---- nodes ---- */

struct taint_row {
    const char *key;
    int64_t notice_s; /* -1: the grace of the Pods, which will be evicted */
};

static const struct taint_row taint_rows[] = {
    { "aws-node-termination-handler/spot-itn", 120 },
    { "cloud.google.com/impending-node-termination", 30 },
    { "node.cloudprovider.kubernetes.io/shutdown", 0 },
    { "node.kubernetes.io/out-of-service", 0 },
    { "ToBeDeletedByClusterAutoscaler", -1 },
    { "karpenter.sh/disrupted", -1 },
    { "karpenter.sh/disruption", -1 },
};

struct taint_search {
    const struct taint_row *found; /* the one with the shortest notice */
};

static int look_at_taint(void *ctx, struct str taint)
{
    struct taint_search *s = ctx;
    CLEANUP(buf_fini) struct buf key = { 0 };
    if (json_path_text(taint, "key", &key) < 0) return 0;
    for (size_t i = 0; i < COUNT_OF(taint_rows); i++) {
        const struct taint_row *row = &taint_rows[i];
        if (!str_eq(buf_view(&key), str_from(row->key))) continue;
        bool sooner = !s->found || s->found->notice_s < 0 ||
                      (row->notice_s >= 0 && row->notice_s < s->found->notice_s);
        if (sooner) s->found = row;
    }
    return 0;
}

int64_t kube_node_notice(struct str node, int64_t grace_us, const char **ret_taint)
{
    struct taint_search s = { 0 };
    (void)json_path_each(node, "spec.taints", look_at_taint, &s);
    if (!s.found) return -1;
    *ret_taint = s.found->key;
    return s.found->notice_s < 0 ? grace_us : s.found->notice_s * 1000000;
}

static struct notice *find_notice(struct kube_view *v, const char *node)
{
    for (uint32_t i = 0; i < v->notice_count; i++)
        if (strcmp(v->notice[i].node, node) == 0) return &v->notice[i];
    return NULL;
}

static void on_node(void *arg, const struct kube_event *e)
{
    struct kube_view *v = arg;
    const char *taint = NULL;
    if (kube_nodes_take(v->config.nodes, e)) wake(v);
    if (e->type == KUBE_SYNCED || !v->config.notices) return;
    bool there = e->type != KUBE_DELETED;
    int64_t us = there ? kube_node_notice(e->object, v->config.grace_us, &taint) : -1;
    struct notice *n = find_notice(v, e->meta->name);
    if (us < 0) {
        if (n) *n = v->notice[--v->notice_count];
        return;
    }
    if (n && n->taint == taint) return; /* the time runs from the first sight of it */
    if (!n && v->notice_count == KUBE_NOTICES_MAX) {
        log_event(LOG_WARN, "node_notice_unheeded", "node=%s taint=%s", e->meta->name, taint);
        return;
    }
    if (!n) n = &v->notice[v->notice_count++];
    *n = (struct notice){ .taint = taint, .leaves_us = loop_now_us(v->loop) + us };
    snprintf(n->node, sizeof n->node, "%s", e->meta->name);
    log_event(LOG_INFO, "node_leaves", "node=%s taint=%s in_s=%lld", n->node, taint,
              (long long)(us / 1000000));
    v->news = true;
    wake(v);
}

/* ---- Pods ---- */

static struct seen_pod *find_pod(struct kube_view *v, const char *name)
{
    for (uint32_t i = 0; i < v->pod_count; i++)
        if (strcmp(v->pod[i].pod.meta.name, name) == 0) return &v->pod[i];
    return NULL;
}

static void forget_pod(struct kube_view *v, const struct kube_meta *meta)
{
    struct seen_pod *s = find_pod(v, meta->name);
    v->news |= s != NULL;
    if (s) *s = v->pod[--v->pod_count];
    snprintf(v->ended[v->ended_next++ % ENDED_MAX], KUBE_UID_BYTES, "%s", meta->uid);
}

static bool has_ended(const struct kube_view *v, const char *uid)
{
    for (uint32_t i = 0; i < ENDED_MAX; i++)
        if (strcmp(v->ended[i], uid) == 0) return true;
    return false;
}

static const struct offer_waits *find_waits(const struct kube_view *v, const char *offer)
{
    for (uint32_t i = 0; i < v->waits_count; i++)
        if (strcmp(v->waits[i].offer, offer) == 0) return &v->waits[i];
    return NULL;
}

/* Returns what is learned of the offer's waits; NULL: of too many offers. */
static struct kube_patience *patience_of(struct kube_view *v, const char *offer)
{
    const struct offer_waits *there = find_waits(v, offer);
    if (there) return &v->waits[there - v->waits].patience;
    if (v->waits_count == CLOUD_PRICES_MAX) return NULL;
    struct offer_waits *w = &v->waits[v->waits_count++];
    *w = (struct offer_waits){ 0 };
    snprintf(w->offer, sizeof w->offer, "%s", offer);
    return &w->patience;
}

uint32_t kube_view_count(const struct kube_view *v, const char *offer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->pod_count; i++)
        count += !v->pod[i].pod.listed.gone && strcmp(v->pod[i].pod.listed.offer, offer) == 0;
    return count;
}

uint32_t kube_view_waiting(const struct kube_view *v, const char *offer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->pod_count; i++) {
        const struct kube_pod *p = &v->pod[i].pod;
        count += p->wait == KUBE_WAIT_SCHEDULE && !p->listed.gone && !p->meta.deleting &&
                 strcmp(p->listed.offer, offer) == 0;
    }
    return count;
}

int64_t kube_view_patience_us(const struct kube_view *v, const char *offer)
{
    const struct offer_waits *w = find_waits(v, offer);
    return w ? kube_patience_us(&w->patience, v->config.wait_us) : v->config.wait_us;
}

static void set_phase(struct lead *l, enum lead_phase p, int64_t from_us, int64_t to_us)
{
    if (l->known[p] || from_us == 0 || to_us == 0) return;
    l->known[p] = true;
    l->s[p] = (double)max_i64(to_us - from_us, 0) / 1e6;
}

/* Reads phases from the times of the API server's clock, in whole seconds. A node that is younger than the Pod
 * was added for it, or for another one that waited beside it. */
static void see_phases(const struct kube_view *v, struct seen_pod *s)
{
    const struct kube_pod *p = &s->pod;
    int64_t created_us = p->listed.created_us;
    if (p->bound) return; /* its times are of the place, not of the launch */
    bool told = s->lead.known[LEAD_SCHEDULE] || s->lead.known[LEAD_NODE];
    if (!told && p->scheduled_us && p->node[0]) {
        int64_t node_us = v->config.nodes ? kube_nodes_created(v->config.nodes, p->node) : 0;
        set_phase(&s->lead, node_us > created_us ? LEAD_NODE : LEAD_SCHEDULE, created_us,
                  p->scheduled_us);
    }
    set_phase(&s->lead, LEAD_PULL, p->scheduled_us, p->started_us);
    if (p->started_us) set_phase(&s->lead, LEAD_LOAD, p->started_us, p->ready_us);
}

/* Learns from a Pod that waited for a node and has one now. */
static void learn_wait(struct kube_view *v, const struct seen_pod *before,
                       const struct kube_pod *now)
{
    bool waited = before->pod.wait == KUBE_WAIT_SCHEDULE && before->waits_us > 0;
    if (!waited || !now->node[0] || now->listed.gone) return;
    struct kube_patience *p = patience_of(v, now->listed.offer);
    if (p) kube_patience_learn(p, (double)(loop_now_us(v->loop) - before->waits_us) / 1e6);
}

static void put_pod(struct kube_view *v, const struct kube_pod *pod)
{
    int64_t now_us = loop_now_us(v->loop);
    struct seen_pod *s = find_pod(v, pod->meta.name), before = { 0 };
    if (!s && v->pod_count == CLOUD_LIST_MAX) {
        if (v->overflow++ == 0)
            log_event(LOG_ERROR, "too_many_pods", "pods=%d namespace=%.*s", CLOUD_LIST_MAX,
                      STR_ARG(v->config.ns));
        return;
    }
    if (s && strcmp(s->pod.meta.uid, pod->meta.uid) == 0) before = *s;
    if (!s) s = &v->pod[v->pod_count++];
    learn_wait(v, &before, pod);
    *s = (struct seen_pod){ .pod = *pod, .lead = before.lead, .missed = before.missed };
    see_phases(v, s);
    if (pod->wait != KUBE_WAIT_NONE)
        s->waits_us = before.pod.wait == pod->wait ? before.waits_us : now_us;
    if (pod->meta.deleting)
        s->leaves_us = before.leaves_us ? before.leaves_us : now_us + pod->grace_us;
    v->news |= (s->leaves_us && !before.leaves_us) || (pod->listed.gone && !before.pod.listed.gone);
}

bool kube_view_has_news(struct kube_view *v)
{
    bool news = v->news;
    v->news = false;
    return news;
}

/* Forgets Pods that the cluster has lost before the watch could tell them. */
static void drop_untold(struct kube_view *v)
{
    int64_t now_us = loop_now_us(v->loop);
    for (uint32_t i = 0; i < v->pod_count;) {
        int64_t taken_us = v->pod[i].taken_us;
        if (taken_us && now_us - taken_us > TAKEN_US)
            v->pod[i] = v->pod[--v->pod_count];
        else
            i++;
    }
}

/* Returns true if the controller should look at once: a Pod ended, waits, or is about to leave. */
static bool is_news(const struct kube_pod *p)
{
    return p->listed.gone || p->meta.deleting || p->wait != KUBE_WAIT_NONE || p->started_us > 0;
}

static void on_pod(void *arg, const struct kube_event *e)
{
    struct kube_view *v = arg;
    struct kube_pod pod;
    struct err err = { 0 };
    if (e->type == KUBE_SYNCED) {
        log_event(LOG_INFO, "pods_listed", "count=%u", v->pod_count);
        v->overflow = 0;
        drop_untold(v);
        wake(v);
    } else if (e->type == KUBE_DELETED) {
        forget_pod(v, e->meta);
        wake(v);
    } else if (kube_pod_read(e->object, &pod, &err) < 0) {
        log_event(LOG_WARN, "pod_unreadable", "pod=%s error=%s", e->meta->name, err.text);
    } else {
        put_pod(v, &pod);
        if (is_news(&pod)) wake(v);
    }
}

void kube_view_take(struct kube_view *v, const struct kube_pod *pod)
{
    if (find_pod(v, pod->meta.name) || has_ended(v, pod->meta.uid)) return;
    put_pod(v, pod);
    struct seen_pod *s = find_pod(v, pod->meta.name);
    if (s) s->taken_us = loop_now_us(v->loop);
}

/* ---- listings ---- */

static enum offer_error stuck_as(const struct kube_view *v, const struct seen_pod *s,
                                 int64_t mono_us)
{
    if (s->pod.wait == KUBE_WAIT_NONE) return OFFER_OK;
    bool node = s->pod.wait == KUBE_WAIT_SCHEDULE;
    int64_t limit_us =
        node ? kube_view_patience_us(v, s->pod.listed.offer) : v->config.image_wait_us;
    if (s->missed) return OFFER_CAPACITY; /* what raised the limit does not take it back */
    if (mono_us - s->waits_us < limit_us) return OFFER_OK;
    return node ? OFFER_CAPACITY : OFFER_INVALID;
}

/* Writes when the Pod leaves, and why, in fleet time. */
static void put_leaving(const struct kube_view *v, const struct seen_pod *s, int64_t ahead_us,
                        struct listed *ret)
{
    ret->leaves_us = s->leaves_us ? s->leaves_us + ahead_us : 0;
    if (s->leaves_us && !ret->why[0]) snprintf(ret->why, sizeof ret->why, "its Pod is deleted");
    for (uint32_t i = 0; i < v->notice_count && s->pod.node[0]; i++) {
        const struct notice *n = &v->notice[i];
        int64_t at_us = n->leaves_us + ahead_us;
        if (strcmp(n->node, s->pod.node) != 0 || (ret->leaves_us && ret->leaves_us <= at_us))
            continue;
        ret->leaves_us = at_us;
        snprintf(ret->why, sizeof ret->why, "node %.80s has the taint %s", n->node, n->taint);
    }
}

static int check_step(const struct kube_view *v, int64_t mono_us, struct err *err)
{
    struct kube_watch_state state;
    kube_watch_state_get(v->pod_watch, &state);
    bool fresh = state.connected || mono_us - state.confirmed_us < KUBE_OUT_OF_REACH_US;
    if (v->overflow > 0)
        return err_set(err, -E2BIG, "more than %d Pods of fleet " STR_FMT, CLOUD_LIST_MAX,
                       STR_ARG(v->config.fleet));
    if (state.synced && fresh) return 0;
    const char *why = state.problem && state.problem[0] ? state.problem : "the list is under way";
    return err_set(err, -EAGAIN, "the Pods are not known: %s", why);
}

/* Counts a stock-out against the offer's patience, and says in `why` how long the Pod has waited. */
static void put_stuck(struct kube_view *v, struct seen_pod *s, int64_t mono_us, struct listed *ret)
{
    ret->stuck = stuck_as(v, s, mono_us);
    if (ret->stuck != OFFER_CAPACITY) return;
    struct kube_patience *p = s->missed ? NULL : patience_of(v, s->pod.listed.offer);
    if (p) kube_patience_miss(p);
    s->missed = true;
    snprintf(ret->why, sizeof ret->why, "no node for %lld s: %.150s",
             (long long)((mono_us - s->waits_us) / 1000000), s->pod.listed.why);
}

int kube_view_list(struct kube_view *v, int64_t now_us, struct listed *ret, uint32_t *ret_count,
                   struct err *err)
{
    int64_t mono_us = loop_now_us(v->loop), ahead_us = now_us - mono_us;
    int rc = check_step(v, mono_us, err);
    if (rc < 0) return rc;
    int64_t date_us = clock_wall_us();
    for (uint32_t i = 0; i < v->pod_count; i++) {
        struct seen_pod *s = &v->pod[i];
        ret[i] = s->pod.listed;
        ret[i].lead = s->lead;
        int64_t age_us = max_i64(date_us - s->pod.listed.created_us, 0);
        ret[i].created_us = s->pod.listed.created_us ? max_i64(now_us - age_us, 1) : 0;
        put_stuck(v, s, mono_us, &ret[i]);
        put_leaving(v, s, ahead_us, &ret[i]);
    }
    *ret_count = v->pod_count;
    return 0;
}

/* ---- life ---- */

static int start_watches(struct kube_view *v, struct kube_client *client, struct err *err)
{
    char selector[128];
    snprintf(selector, sizeof selector, KUBE_LABEL_FLEET "=" STR_FMT, STR_ARG(v->config.fleet));
    struct kube_watch_request req = { .resource = &pods,
                                      .ns = v->config.ns,
                                      .label_selector = str_from(selector),
                                      .on_event = on_pod,
                                      .arg = v };
    int rc = kube_watch_start(client, &req, &v->pod_watch, err);
    if (rc < 0 || !v->config.nodes) return rc; /* kube_nodes is fed only by this watch */
    req = (struct kube_watch_request){ .resource = &nodes, .on_event = on_node, .arg = v };
    return kube_watch_start(client, &req, &v->node_watch, err);
}

int kube_view_new(struct kube_client *client, const struct kube_view_config *config,
                  struct kube_view **ret, struct err *err)
{
    struct kube_view *v = calloc(1, sizeof *v);
    must(v);
    v->loop = kube_client_loop(client);
    v->config = *config;
    int rc = start_watches(v, client, err);
    if (rc < 0) {
        kube_view_free(v);
        return rc;
    }
    *ret = v;
    return 0;
}

void kube_view_free(struct kube_view *v)
{
    if (!v) return;
    kube_watch_stop(v->pod_watch);
    kube_watch_stop(v->node_watch);
    free(v);
}

void kube_view_watch(struct kube_view *v, void (*fn)(void *arg), void *arg)
{
    v->fn = fn;
    v->arg = arg;
}
