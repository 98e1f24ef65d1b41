/* kube_cloud.c - turns the controller's calls into calls of the API server, and watched Pods into listings.
 *
 *     create:  POST Pod ──201──► POST Secret ──► (POST ResourceClaim) ──► made
 *                   └──409──► GET Pod (ours?) ──┘
 *     remove:  DELETE Pod ──► going; its Secret is collected with it
 *     list:    the watched Pods, at once
 *
 * Of an offer with a workload see kube_place.c.
 *
 * A Pod is taken into the view from the reply that made it, so that a watch that lags cannot make an
 * instance absent that was just made. */
#include "controller/cloud/kube/kube_cloud.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/kube/kube_config.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/cloud_call.h"
#include "controller/cloud/kube/kube_errand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_MARGIN_S 15 /* from the end of a drain to the kubelet's SIGKILL */
#define OWNER_AGAIN_US 5000000
#define NODES_US 10000000 /* that a request for prices waits for the first list of nodes */

const struct kube_resource errand_pods = { "", "v1", "pods", false };
static const struct kube_resource secrets = { "", "v1", "secrets", false };
static const struct kube_resource deployments = { "apps", "v1", "deployments", false };
static const struct kube_resource statefulsets = { "apps", "v1", "statefulsets", false };

/* ---- ends of calls ---- */

static struct cloud_event *put(struct kube_cloud *k, enum cloud_op op, uint64_t id)
{
    struct cloud_event *e = &k->done[(k->done_first + k->done_count++) % CLOUD_CALLS_MAX];
    *e = (struct cloud_event){ .id = id, .op = op };
    if (k->fn) k->fn(k->arg);
    return e;
}

/* Frees the slot of an errand and puts its event, which the caller completes. */
static struct cloud_event *finish(struct errand *er)
{
    struct kube_cloud *k = er->cloud;
    enum cloud_op op = er->kept.op;
    uint64_t id = er->kept.id;
    cloud_kept_fini(&er->kept);
    *er = (struct errand){ 0 };
    k->errand_count--;
    return put(k, op, id);
}

/* The API server has one status for a missing right and for what admission refuses: its words tell them apart. */
static const struct {
    const char *words;
    enum offer_error class;
} refusals[] = {
    { "exceeded quota", OFFER_QUOTA },
    { "error looking up service account", OFFER_TRANSIENT }, /* it is not made yet */
    { "no PriorityClass with name", OFFER_INVALID },
    { "violates PodSecurity", OFFER_INVALID },
};

static enum offer_error class_of_refusal(const char *message)
{
    for (size_t i = 0; i < COUNT_OF(refusals); i++)
        if (strstr(message, refusals[i].words)) return refusals[i].class;
    return OFFER_AUTH;
}

/* Says what a reply that is no success means for an offer. A reply that leaves open whether something was
 * made is transient, whatever its status. */
static enum offer_error class_of(const struct kube_reply *r)
{
    if (r->unsure) return OFFER_TRANSIENT;
    switch (r->rc) {
    case -EACCES:
        return OFFER_AUTH;
    case -EPERM:
        return class_of_refusal(r->status.message);
    case -EBUSY:
        return OFFER_THROTTLE;
    case -EINVAL:
    case -E2BIG:
    case -ENOENT: /* the namespace */
        return OFFER_INVALID;
    default:
        return OFFER_TRANSIENT;
    }
}

void errand_fail(struct errand *er, const struct kube_reply *r)
{
    struct cloud_event *e = finish(er);
    e->rc = r->rc;
    e->class = class_of(r);
    err_set(&e->err, r->rc, "%s", r->problem);
}

void errand_refuse(struct errand *er, enum offer_error class, const struct err *err, int rc)
{
    struct cloud_event *e = finish(er);
    e->rc = rc;
    e->class = class;
    e->err = *err;
}

void errand_succeed(struct errand *er)
{
    struct listed made = er->made;
    finish(er)->made = made;
}

/* ---- create ---- */

void errand_start(struct errand *er, struct kube_request *req,
                  void (*on_end)(void *arg, const struct kube_reply *reply))
{
    struct kube_cloud *k = er->cloud;
    struct err err = { 0 };
    if (!cloud_fence_holds(k->settings->fence, er->kept.epoch, clock_mono_us())) {
        enum cloud_op op = er->kept.op;
        uint64_t id = er->kept.id;
        cloud_refuse(op, id, finish(er));
        return;
    }
    req->ns = k->ns;
    req->on_end = on_end;
    req->arg = er;
    int rc = kube_start(k->client, req, &er->call, &err);
    if (rc < 0) errand_refuse(er, rc == -EAGAIN ? OFFER_THROTTLE : OFFER_TRANSIENT, &err, rc);
}

static void on_claim(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == 0 || r->status.reason == KUBE_ALREADY_EXISTS)
        errand_succeed(er);
    else
        errand_fail(er, r);
}

/* Claims the instance's devices. The Pod names the claim and is scheduled once it is there. */
static void make_claim(struct errand *er)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct cloud_kept *c = &er->kept;
    if (!er->claims) {
        errand_succeed(er);
        return;
    }
    int rc = kube_claim_write(er->claims, KUBE_INSTANCE, str_from(c->intent),
                              er->cloud->settings->section->fleet, str_from(er->uid), &body);
    if (rc < 0) {
        struct err err = { 0 };
        errand_refuse(er, OFFER_TRANSIENT, &err, err_set(&err, rc, "no memory for a claim"));
        return;
    }
    struct kube_request req = { .verb = KUBE_CREATE,
                                .resource = &kube_claims_resource,
                                .body = buf_view(&body) };
    errand_start(er, &req, on_claim);
}

static void on_secret(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == 0 || r->status.reason == KUBE_ALREADY_EXISTS)
        make_claim(er);
    else
        errand_fail(er, r);
}

static void make_secret(struct errand *er)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct cloud_kept *c = &er->kept;
    if (c->key.len == 0) {
        make_claim(er);
        return;
    }
    int rc = kube_secret_write(str_from(c->intent), er->cloud->settings->section->fleet,
                               str_from(er->uid), buf_view(&c->key), &body);
    if (rc < 0) {
        struct err err = { 0 };
        errand_refuse(er, OFFER_TRANSIENT, &err, err_set(&err, rc, "no memory for a Secret"));
        return;
    }
    struct kube_request req = { .verb = KUBE_CREATE,
                                .resource = &secrets,
                                .body = buf_view(&body) };
    errand_start(er, &req, on_secret);
    explicit_bzero(body.data, body.len);
}

/* Takes the Pod that was made, or found; goes on with its Secret. */
static void take_pod(struct errand *er, struct str json)
{
    struct kube_cloud *k = er->cloud;
    struct kube_pod pod;
    struct err err = { 0 };
    int rc = kube_pod_read(json, &pod, &err);
    if (rc == 0 && !kube_has_label(json, STR(KUBE_LABEL_FLEET), k->settings->section->fleet))
        rc = err_set(&err, -EEXIST, "the Pod %s exists and is not of this fleet", pod.meta.name);
    if (rc < 0) {
        errand_refuse(er, OFFER_INVALID, &err, rc);
        return;
    }
    kube_view_take(k->view, &pod);
    er->made = pod.listed;
    snprintf(er->uid, sizeof er->uid, "%s", pod.meta.uid);
    make_secret(er);
}

static void on_found(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == 0) {
        take_pod(er, r->body);
        return;
    }
    struct kube_reply again = *r;
    again.unsure = true; /* it was there and is gone: what becomes of the intent a listing tells */
    errand_fail(er, &again);
}

static void on_pod(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == 0) {
        take_pod(er, r->body);
    } else if (r->status.reason == KUBE_ALREADY_EXISTS) {
        struct kube_request req = { .verb = KUBE_GET,
                                    .resource = &errand_pods,
                                    .name = str_from(er->kept.intent) };
        errand_start(er, &req, on_found);
    } else {
        errand_fail(er, r);
    }
}

static struct kube_sold *find_sold(const struct kube_cloud *k, const char *name)
{
    for (uint32_t i = 0; i < k->settings->sold_count; i++)
        if (strcmp(k->settings->sold[i].offer.name, name) == 0) return &k->settings->sold[i];
    return NULL;
}

static bool owner_is_known(struct kube_cloud *k);

/* ---- offers that nodes make ---- */

/* Returns true once the nodes are known whose offers are asked for, or if none is made of nodes. */
static bool nodes_are_known(const struct kube_cloud *k)
{
    if (!kube_needs_nodes(k->settings)) return true;
    return kube_nodes_synced(k->nodes) && kube_nodepools_synced(k->nodepools) &&
           (!k->slices || kube_slices_synced(k->slices));
}

/* Brings an offer's price up to what its nodes cost; the default where no row says. */
static void price_sold(const struct kube_cloud *k, struct kube_sold *sold, bool *ret_default)
{
    double price_h = k->prices.default_h;
    struct kube_found *f = sold->found;
    *ret_default = false;
    if (!f) return;
    if (kube_found_is_claimed(f)) {
        kube_slices_fill(k->slices, f);
    } else {
        kube_nodes_fill(k->nodes, f);
        kube_nodepools_fill(k->nodepools, f);
    }
    if (sold->price_given) return;
    *ret_default = f->known && !f->price_known && price_h > 0;
    sold->offer.price_known = f->known && (f->price_known || *ret_default);
    sold->offer.price_h = *ret_default ? price_h : f->price_h;
}

/* Holds the requests of a Pod while it is written. */
struct asking {
    struct kube_pair resource[KUBE_PAIRS_MAX + 2], label[KUBE_PAIRS_MAX + 2], tolerate[16];
    struct kube_pod_ask ask;
};

/* Says that nothing makes the offer, and what there is. */
static int no_maker(const struct kube_cloud *k, const struct kube_sold *sold, struct err *err)
{
    char names[INTENT_WHY_BYTES / 2] = "";
    bool claimed = kube_found_is_claimed(sold->found);
    const char *missing = claimed ? kube_slices_missing(k->slices) : NULL;
    if (missing)
        return err_set(err, -ENOSPC, "no node makes the offer %s: %s", sold->offer.name, missing);
    kube_nodes_names(k->nodes, names, sizeof names);
    if (k->slices) kube_slices_names(k->slices, names, sizeof names);
    kube_nodepools_names(k->nodepools, names, sizeof names);
    return err_set(err, -ENOSPC, "no node makes the offer %s; nodes make: %s", sold->offer.name,
                   names[0] ? names : "none");
}

/* Returns true if no NodePool may add a node, and the nodes that there are hold as many of our Pods as they can: a
 * Pod more would wait in vain. Pods of others may leave even less. */
static bool is_full(const struct kube_cloud *k, const struct kube_found *f)
{
    uint64_t used = 0;
    if (f->grows || !f->full[0]) return false;
    for (uint32_t i = 0; i < k->settings->sold_count; i++) {
        const struct kube_sold *s = &k->settings->sold[i];
        if (!s->found || s->found->spot != f->spot || strcmp(s->found->base, f->base) != 0)
            continue;
        used += (uint64_t)kube_view_count(k->view, s->offer.name) * s->found->units;
    }
    return used + f->units > (uint64_t)f->room * f->units;
}

static void tolerate(struct asking *a, const struct kube_pair *taint, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        must(a->ask.tolerate_count < COUNT_OF(a->tolerate)); /* two tables of kube_node.c */
        a->tolerate[a->ask.tolerate_count++] = taint[i];
    }
}

/* Writes what a Pod asks for on the nodes of its offer. -ENOSPC: no node makes it; -EINVAL: it has no price. */
static int ask_of_nodes(const struct kube_cloud *k, struct kube_sold *sold, struct asking *a,
                        struct err *err)
{
    const struct kube_found *f = sold->found;
    struct kube_pod_ask *ask = &a->ask;
    bool is_default;
    price_sold(k, sold, &is_default);
    if (!f->known) return no_maker(k, sold, err);
    if (!sold->offer.price_known)
        return err_set(err, -EINVAL,
                       "no row of kubernetes.prices has the %slabels of the nodes of %s; add one, "
                       "or set price_default",
                       f->spot ? "spot price or the " : "", sold->offer.name);
    if (is_full(k, f))
        return err_set(err, -ENOSPC, "%s, and nodes have no room for %s", f->full,
                       sold->offer.name);
    if (f->driver[0])
        tolerate(a, kube_device_taints, kube_device_taint_count);
    else
        a->resource[ask->resource_count++] =
            (struct kube_pair){ str_from(f->device[0] ? f->device : "cpu"), str_from(f->count) };
    if (f->memory[0])
        a->resource[ask->resource_count++] =
            (struct kube_pair){ STR("memory"), str_from(f->memory) };
    if (f->label[0])
        a->label[ask->node_label_count++] =
            (struct kube_pair){ str_from(f->label), str_from(f->value) };
    if (f->spot_label) a->label[ask->node_label_count++] = *f->spot_label;
    if (f->spot) tolerate(a, kube_spot_labels, kube_spot_label_count);
    ask->avoid = kube_spot_labels;
    ask->avoid_count = f->spot ? 0 : kube_spot_label_count;
    return 0;
}

/* Writes what Pods of an offer have in common: resources, nodes, owner. */
static int ask_of_offer(const struct kube_cloud *k, struct kube_sold *sold, struct asking *a,
                        struct err *err)
{
    struct kube_pod_ask *ask = &a->ask;
    ask->resource = a->resource;
    ask->node_label = a->label;
    ask->tolerate = a->tolerate;
    int rc = sold->found ? ask_of_nodes(k, sold, a, err) : 0;
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < sold->resource_count; i++)
        a->resource[ask->resource_count++] = sold->resource[i];
    for (uint32_t i = 0; i < sold->node_label_count; i++)
        a->label[ask->node_label_count++] = sold->node_label[i];
    ask->fleet = k->settings->section->fleet;
    ask->template = sold->template;
    ask->owner = buf_view(&k->owner);
    return 0;
}

/* Returns true if its Pods claim their devices; what there is to claim is known. */
static bool is_claimed(const struct kube_sold *sold)
{
    return sold->found && sold->found->driver[0];
}

/* Writes a Pod that holds a place; a kube_standby_write_fn. */
static int write_standby(void *ctx, struct kube_sold *sold, const char *name, struct buf *out,
                         struct err *err)
{
    struct kube_cloud *k = ctx;
    const struct kube_section *s = k->settings->section;
    struct asking a = { .ask = { .priority = s->standby_class } };
    if (!nodes_are_known(k) || !owner_is_known(k)) return -EAGAIN;
    int rc = ask_of_offer(k, sold, &a, err);
    if (rc < 0) return rc;
    if (is_claimed(sold)) a.ask.claim = str_from(name);
    return kube_standby_write(&a.ask, name, s->standby_image, out, err);
}

static int write_pod(const struct kube_cloud *k, const struct cloud_kept *c, struct buf *out,
                     struct err *err)
{
    const struct kube_section *s = k->settings->section;
    struct kube_sold *sold = find_sold(k, c->offer.name);
    CLEANUP(arena_fini) struct arena arena;
    struct launch_spec spec;
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    if (!sold) return err_set(err, -EINVAL, "there is no offer %s", c->offer.name);
    int rc = launch_spec_decode(buf_view(&c->spec), &arena, &spec, err);
    if (rc < 0) return rc;
    struct asking a = { 0 };
    struct kube_pod_ask *ask = &a.ask;
    rc = ask_of_offer(k, sold, &a, err);
    if (rc < 0) return rc;
    spec.engine_host = STR("0.0.0.0"); /* MUSTER_AGENT_ENGINE_HOST holds the Pod's address */
    spec.created_us = c->asked_us;
    const struct cloud_request request = {
        .intent = c->intent, .offer = &sold->offer, .spec = &spec, .key = buf_view(&c->key)
    };
    ask->request = &request;
    ask->image = s->image;
    ask->pull_policy = k->settings->pull_policy;
    ask->grace_s = k->grace_s;
    ask->priority = s->priority_class;
    if (is_claimed(sold)) ask->claim = str_from(c->intent);
    return kube_pod_write(ask, out, err);
}

static void create(struct errand *er)
{
    CLEANUP(buf_fini) struct buf body = { .max = KUBE_POD_BYTES_MAX };
    struct err err = { 0 };
    int rc = write_pod(er->cloud, &er->kept, &body, &err);
    if (rc < 0) {
        enum offer_error class = rc == -ENOMEM   ? OFFER_TRANSIENT
                                 : rc == -ENOSPC ? OFFER_CAPACITY
                                                 : OFFER_INVALID;
        errand_refuse(er, class, &err, rc);
        return;
    }
    struct kube_sold *sold = find_sold(er->cloud, er->kept.offer.name);
    if (sold && is_claimed(sold)) er->claims = sold->found;
    struct kube_request req = { .verb = KUBE_CREATE,
                                .resource = &errand_pods,
                                .body = buf_view(&body) };
    errand_start(er, &req, on_pod);
}

/* ---- remove ---- */

static void on_deleted(void *arg, const struct kube_reply *r)
{
    struct errand *er = arg;
    er->call = NULL;
    if (r->rc == 0 || r->rc == -ENOENT)
        errand_succeed(er);
    else
        errand_fail(er, r);
}

void errand_delete(struct errand *er, const char *name)
{
    struct kube_request req = {
        .verb = KUBE_DELETE,
        .resource = &errand_pods,
        .name = str_from(name),
        .del = { .propagation = KUBE_BACKGROUND, .grace_s = -1 },
    };
    errand_start(er, &req, on_deleted);
}

static void delete_pod(struct errand *er)
{
    errand_delete(er, er->kept.handle[0] ? er->kept.handle : er->kept.intent);
}

/* ---- the owner of the Pods ---- */

static void on_owner(void *arg, const struct kube_reply *r)
{
    struct kube_cloud *k = arg;
    const struct kube_settings *s = k->settings;
    struct kube_meta meta;
    k->owner_call = NULL;
    if (r->rc < 0 || kube_meta_read(r->body, &meta, NULL) < 0) {
        log_event(LOG_WARN, "owner_unknown", "owner=%.*s/%.*s error=%s", STR_ARG(s->owner_resource),
                  STR_ARG(s->owner_name), r->rc < 0 ? r->problem : "an object without metadata");
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &k->owner);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "apps/v1");
    json_kv_text(&w, "kind",
                 str_eq(s->owner_resource, STR("deployments")) ? "Deployment" : "StatefulSet");
    json_kv_str(&w, "name", s->owner_name);
    json_kv_text(&w, "uid", meta.uid);
    json_object_end(&w);
    if (k->fn) k->fn(k->arg); /* creates wait for it */
}

/* Returns true once the owner is known, or none is wanted; asks for it otherwise. */
static bool owner_is_known(struct kube_cloud *k)
{
    const struct kube_settings *s = k->settings;
    if (s->owner_name.len == 0 || k->owner.len > 0) return true;
    int64_t now_us = loop_now_us(k->loop);
    if (k->owner_call || now_us < k->owner_again_us) return false;
    k->owner_again_us = now_us + OWNER_AGAIN_US;
    bool deployment = str_eq(s->owner_resource, STR("deployments"));
    struct kube_request req = { .verb = KUBE_GET,
                                .resource = deployment ? &deployments : &statefulsets,
                                .ns = k->ns,
                                .name = s->owner_name,
                                .on_end = on_owner,
                                .arg = k };
    struct err err = { 0 };
    if (kube_start(k->client, &req, &k->owner_call, &err) < 0)
        log_event(LOG_WARN, "owner_unknown", "error=%s", err.text);
    return false;
}

/* ---- the driver ---- */

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    const struct kube_settings *s = ((struct kube_cloud *)ctx)->settings;
    if (s->sold_count > max)
        return err_set(err, -E2BIG, "kubernetes has %u offers; %u fit", s->sold_count, max);
    for (uint32_t i = 0; i < s->sold_count; i++)
        ret[i] = s->sold[i].offer;
    *ret_count = s->sold_count;
    return 0;
}

static void list(struct kube_cloud *k, uint64_t id, int64_t now_us)
{
    struct err err = { 0 };
    uint32_t count = 0;
    int rc = kube_view_list(k->view, now_us, k->room, &count, &err);
    struct cloud_event *e = put(k, CLOUD_LIST, id);
    e->rc = rc;
    e->err = err;
    e->item = k->room;
    e->count = count;
}

static void tell_prices(struct kube_cloud *k, uint64_t id)
{
    struct cloud_event *e = put(k, CLOUD_PRICES, id);
    e->count = k->settings->sold_count;
    for (uint32_t i = 0; i < e->count; i++) {
        struct kube_sold *sold = &k->settings->sold[i];
        const struct kube_found *f = sold->found;
        bool is_default;
        price_sold(k, sold, &is_default);
        struct cloud_price *p = &e->price[i];
        *p = (struct cloud_price){ .known = sold->offer.price_known,
                                   .price_h = sold->offer.price_h,
                                   .is_default = is_default,
                                   .room_known = f && nodes_are_known(k),
                                   .nodes = f ? f->nodes : 0,
                                   .room = f ? f->room : 0 };
        must(name_copy(p->offer, NAME_BYTES, str_from(sold->offer.name)) == 0);
        if (f) memcpy(p->hardware, f->hardware, sizeof p->hardware);
    }
}

/* Tells prices once nodes are known; without the right to list them, when the wait is over: offers of nodes
 * then have none. */
static void tell_prices_due(struct kube_cloud *k)
{
    if (!k->price_call) return;
    if (!nodes_are_known(k) && loop_now_us(k->loop) < k->price_until_us) return;
    uint64_t id = k->price_call;
    k->price_call = 0;
    tell_prices(k, id);
}

static struct errand *free_errand(struct kube_cloud *k)
{
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++)
        if (k->errand[i].kept.op == CLOUD_NONE) return &k->errand[i];
    return NULL;
}

static int submit(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err)
{
    struct kube_cloud *k = ctx;
    if (k->errand_count + k->done_count + (k->price_call != 0) == CLOUD_CALLS_MAX)
        return err_set(err, -EBUSY, "%d calls to the API server are under way", CLOUD_CALLS_MAX);
    if (call->op == CLOUD_LIST) {
        list(k, call->id, now_us);
        return 0;
    }
    if (call->op == CLOUD_PRICES) {
        k->price_call = call->id;
        k->price_until_us = loop_now_us(k->loop) + NODES_US;
        tell_prices_due(k);
        return 0;
    }
    if (call->op == CLOUD_CREATE && !nodes_are_known(k))
        return err_set(err, -EBUSY, "the nodes of the cluster are not listed yet");
    if (call->op == CLOUD_CREATE && !owner_is_known(k))
        return err_set(err, -EBUSY, "kubernetes.owner is not found yet");
    if (!kube_place_all_known(k, call, err)) return -EBUSY;
    struct errand *er = free_errand(k);
    must(er);
    int rc = cloud_keep(call, now_us, &er->kept, err);
    if (rc < 0) return rc;
    er->cloud = k;
    k->errand_count++;
    const struct kube_sold *sold = find_sold(k, er->kept.offer.name);
    const char *pod = NULL;
    if (call->op == CLOUD_CREATE && sold && sold->workload) {
        er->workload = k->workload[sold - k->settings->sold];
        er->until_us = loop_now_us(k->loop) + PLACE_US;
        kube_place_take(er);
    } else if (call->op == CLOUD_CREATE) {
        create(er);
    } else if ((er->workload = kube_place_find(k, &er->kept, &pod))) {
        snprintf(er->place, sizeof er->place, "%s", pod);
        kube_place_mark(er);
    } else {
        delete_pod(er);
    }
    return 0;
}

static bool next(void *ctx, int64_t now_us, struct cloud_event *ret)
{
    struct kube_cloud *k = ctx;
    (void)now_us;
    tell_prices_due(k);
    kube_place_serve(k);
    if (k->standby) kube_standby_turn(k->standby);
    if (k->done_count == 0) return false;
    *ret = k->done[k->done_first];
    k->done_first = (k->done_first + 1) % CLOUD_CALLS_MAX;
    k->done_count--;
    return true;
}

static void watch(void *ctx, void (*fn)(void *arg), void *arg)
{
    struct kube_cloud *k = ctx;
    k->fn = fn;
    k->arg = arg;
    kube_view_watch(k->view, fn, arg);
}

static bool has_news(void *ctx)
{
    return kube_view_has_news(((struct kube_cloud *)ctx)->view);
}

/* Tells free places: replicas beyond the instances, which hold what they ask for. */
static int leftovers(void *ctx, bool remove, cloud_leftover_fn fn, void *arg, struct err *err)
{
    struct kube_cloud *k = ctx;
    (void)remove, (void)err;
    for (uint32_t i = 0; i < k->settings->sold_count; i++) {
        struct kube_workload *w = k->workload[i];
        if (w && kube_place_waiting(k, w) == 0) kube_workload_each_free(w, fn, arg);
    }
    return 0;
}

static void close_cloud(void *ctx)
{
    struct kube_cloud *k = ctx;
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) {
        if (k->errand[i].call) kube_cancel(k->errand[i].call);
        cloud_kept_fini(&k->errand[i].kept);
    }
    if (k->owner_call) kube_cancel(k->owner_call);
    for (uint32_t i = 0; i < KUBE_OFFERS_MAX; i++)
        kube_workload_free(k->workload[i]);
    kube_standby_free(k->standby);
    kube_view_free(k->view);
    kube_slices_free(k->slices);
    kube_nodepools_free(k->nodepools);
    kube_nodes_free(k->nodes);
    kube_prices_drop(k->prices_arena);
    kube_client_free(k->client);
    kube_config_free(k->cluster);
    buf_fini(&k->owner);
    free(k);
}

static const struct cloud_driver kube_driver = {
    .name = "kubernetes",
    .about = "Pods of a Kubernetes cluster",
    .close = close_cloud,
    .offers = offers,
    .submit = submit,
    .next = next,
    .watch = watch,
    .has_news = has_news,
    .leftovers = leftovers,
};

static void makers_changed(void *arg)
{
    struct kube_cloud *k = arg;
    if (k->fn) k->fn(k->arg);
}

static int watch_nodepools(struct kube_cloud *k, struct err *err)
{
    k->nodepools = kube_nodepools_new(k->nodes, k->settings->template);
    return kube_nodepools_watch(k->nodepools, k->client, makers_changed, k, err);
}

static int watch_slices(struct kube_cloud *k, struct err *err)
{
    k->slices = kube_slices_new(k->nodes, k->settings->class, k->settings->class_count);
    return kube_slices_watch(k->slices, k->client, makers_changed, k, err);
}

static int connect_cluster(struct kube_cloud *k, const char *const *environment, uint64_t seed,
                           struct err *err)
{
    const struct kube_section *s = k->settings->section;
    const struct kube_source source = { .path = s->kubeconfig.len > 0 ? s->kubeconfig.data : NULL,
                                        .context = s->context,
                                        .environ = environment };
    int rc = kube_config_load(&source, &k->cluster, err);
    if (rc < 0) return rc;
    k->ns = s->namespace.len > 0 ? s->namespace : k->cluster->ns;
    const struct kube_client_config client = { .calls_per_s = s->calls_per_s,
                                               .seed = seed,
                                               .meters = k->settings->meters,
                                               .environ = environment };
    rc = kube_client_new(k->loop, k->cluster, &client, &k->client, err);
    if (rc < 0) return rc;
    const struct kube_nodes_config nodes = { .prices = &k->prices,
                                             .cores = s->cores,
                                             .tell_new = s->discover,
                                             .template = k->settings->template };
    if (s->watch_nodes || kube_needs_nodes(k->settings)) k->nodes = kube_nodes_new(&nodes);
    const struct kube_view_config view = { .ns = k->ns,
                                           .fleet = s->fleet,
                                           .wait_us = s->wait_us,
                                           .image_wait_us = s->image_wait_us,
                                           .grace_us = k->grace_s * 1000000,
                                           .notices = s->watch_nodes,
                                           .nodes = k->nodes };
    rc = kube_view_new(k->client, &view, &k->view, err);
    bool slices = kube_needs_claims(k->settings) || s->discover;
    if (rc == 0 && slices) rc = watch_slices(k, err);
    if (rc == 0 && kube_needs_nodes(k->settings)) rc = watch_nodepools(k, err);
    if (rc == 0) rc = kube_place_open(k, err);
    bool standby = s->standby_class.len > 0; /* none are wanted any more: those that are there go */
    if (rc < 0 || !standby) return rc;
    const struct kube_standby_config config = {
        .ns = k->ns, .settings = k->settings, .view = k->view, .write = write_standby, .ctx = k
    };
    return kube_standby_new(k->client, &config, &k->standby, err);
}

int kube_cloud_open(struct loop *l, struct kube_settings *settings, int64_t drain_us,
                    const char *const *environment, uint64_t seed, struct cloud *ret,
                    struct err *err)
{
    struct kube_cloud *k = calloc(1, sizeof *k);
    must(k);
    k->loop = l;
    k->settings = settings;
    k->prices = settings->prices;
    k->driver = kube_driver;
    k->grace_s = drain_us / 1000000 + DRAIN_MARGIN_S;
    int rc = connect_cluster(k, environment, seed, err);
    if (rc < 0) {
        close_cloud(k);
        return err_prefix(err, rc, "kubernetes");
    }
    log_event(LOG_INFO, "cluster_opened", "server=%.*s namespace=%.*s source=%.*s",
              STR_ARG(k->cluster->server), STR_ARG(k->ns), STR_ARG(k->cluster->source));
    *ret = (struct cloud){ .driver = &k->driver,
                           .ctx = k,
                           .lag_us = KUBE_LAG_US,
                           .poll_us = settings->section->poll_us,
                           .in_parts = true };
    return 0;
}
