/* kube_check.c - asks the API server what this account may do and what there is, one call after the other. */
#include "controller/cloud/kube/kube_check.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/kube/kube_config.h"
#include "base/io/kube/kube_list.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/kube/kube_nodepools.h"
#include "controller/cloud/kube/kube_slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_US 20000
#define DRA "resource.k8s.io"

static const struct kube_resource reviews = { "authorization.k8s.io", "v1",
                                              "selfsubjectaccessreviews", true };
static const struct kube_resource quotas = { "", "v1", "resourcequotas", false };
static const struct kube_resource nodes = { "", "v1", "nodes", true };

/* When a right is needed. */
enum needed { ALWAYS, FOR_OWNER, FOR_NODES, FOR_NOTICES, FOR_WORKLOADS, FOR_CLAIMS, FOR_DISCOVERY };

static const struct right {
    enum needed needed;
    const char *verb, *group, *resource, *subresource;
    struct str name; /* of the one object; empty: all */
} rights[] = {
    { ALWAYS, "create", "", "pods", "", { 0 } },
    { ALWAYS, "get", "", "pods", "", { 0 } },
    { ALWAYS, "list", "", "pods", "", { 0 } },
    { ALWAYS, "watch", "", "pods", "", { 0 } },
    { ALWAYS, "delete", "", "pods", "", { 0 } },
    { ALWAYS, "create", "", "secrets", "", { 0 } },
    { FOR_OWNER, "get", "apps", NULL, "", { 0 } }, /* the owner's own resource */
    { FOR_NODES, "list", "", "nodes", "", { 0 } },
    { FOR_NODES, "watch", "", "nodes", "", { 0 } },
    { FOR_NOTICES, "list", "", "nodes", "", { 0 } },
    { FOR_NOTICES, "watch", "", "nodes", "", { 0 } },
    { FOR_WORKLOADS, "patch", "", "pods", "", { 0 } },
    { FOR_CLAIMS, "list", DRA, "resourceslices", "", { 0 } },
    { FOR_CLAIMS, "watch", DRA, "resourceslices", "", { 0 } },
    { FOR_CLAIMS, "create", DRA, "resourceclaims", "", { 0 } },
    { FOR_DISCOVERY, "list", DRA, "resourceslices", "", { 0 } },
    { FOR_DISCOVERY, "watch", DRA, "resourceslices", "", { 0 } },
};

struct check {
    const struct kube_settings *settings;
    struct loop *loop;
    struct kube_config *cluster;
    struct kube_client *client;
    struct str ns;
    cloud_finding_fn fn;
    void *arg;
    /* of the call under way */
    bool done;
    int rc;
    struct buf body;
    char problem[KUBE_REPLY_PROBLEM_BYTES];
    /* of the walk over a list */
    struct kube_nodes *nodes;
    struct kube_slices *slices;
    struct kube_nodepools *nodepools;
    uint32_t count, asked, denied;
};

static void say(struct check *c, const char *what, enum cloud_health health, const char *next,
                const char *why)
{
    struct cloud_finding f = { .what = what, .health = health, .next = next };
    snprintf(f.why, sizeof f.why, "%s", why);
    c->fn(c->arg, &f);
}

/* ---- calls ---- */

static void on_end(void *arg, const struct kube_reply *r)
{
    struct check *c = arg;
    c->done = true;
    c->rc = r->rc;
    snprintf(c->problem, sizeof c->problem, "%s", r->problem);
    c->body.len = 0;
    buf_str(&c->body, r->body);
}

static void wait(struct check *c)
{
    while (!c->done)
        if (loop_turn(c->loop, TURN_US) < 0) break;
}

static int ask(struct check *c, struct kube_request req)
{
    struct kube_call *call;
    struct err err = { 0 };
    c->done = false;
    req.deadline_us = loop_now_us(c->loop) + KUBE_CHECK_US;
    req.on_end = on_end;
    req.arg = c;
    int rc = kube_start(c->client, &req, &call, &err);
    if (rc < 0) {
        snprintf(c->problem, sizeof c->problem, "%s", err.text);
        return rc;
    }
    wait(c);
    return c->rc;
}

/* ---- rights ---- */

static bool is_of_cluster(const char *resource)
{
    static const char *const all[] = { "nodes", "resourceslices" };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (strcmp(resource, all[i]) == 0) return true;
    return false;
}

/* Asks for one right. 1: allowed, 0: denied, or a negative errno. */
static int is_allowed(struct check *c, const struct right *r, const char *resource)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    bool allowed = false;
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "spec");
    json_object(&w);
    json_key(&w, "resourceAttributes");
    json_object(&w);
    if (!is_of_cluster(resource)) json_kv_str(&w, "namespace", c->ns);
    json_kv_text(&w, "verb", r->verb);
    json_kv_text(&w, "group", r->group);
    json_kv_text(&w, "resource", resource);
    if (r->subresource[0]) json_kv_text(&w, "subresource", r->subresource);
    if (r->name.len > 0) json_kv_str(&w, "name", r->name);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    int rc = ask(c, (struct kube_request){
                        .verb = KUBE_CREATE, .resource = &reviews, .body = buf_view(&body) });
    if (rc < 0) return rc;
    (void)json_path_bool(buf_view(&c->body), "status.allowed", &allowed);
    return allowed;
}

/* Tells a right that is missing. Returns a negative errno when nobody can be asked. */
static int check_right(struct check *c, const struct right *r, const char *resource)
{
    int rc = is_allowed(c, r, resource);
    if (rc < 0) return rc;
    c->asked++;
    if (rc) return 0;
    c->denied++;
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "this account may not %s %s%s%s in namespace %.*s", r->verb, resource,
             r->subresource[0] ? "/" : "", r->subresource, STR_ARG(c->ns));
    bool notice = r->needed == FOR_NOTICES, extra = r->needed == FOR_DISCOVERY;
    say(c, "rights", notice || extra ? CLOUD_DOUBTFUL : CLOUD_BROKEN,
        notice  ? "grant it, or set kubernetes.watch_nodes: false; drains then start late"
        : extra ? "grant it by a Role (docs/kubernetes.md); without it such offers are not found"
                : "grant it by a Role (docs/kubernetes.md)",
        why);
    return 0;
}

static bool is_needed(const struct check *c, enum needed needed)
{
    const struct kube_settings *s = c->settings;
    bool nodes_needed = kube_needs_nodes(s);
    switch (needed) {
    case ALWAYS:
        return true;
    case FOR_OWNER:
        return s->owner_name.len > 0;
    case FOR_NODES:
        return nodes_needed;
    case FOR_NOTICES:
        return s->section->watch_nodes && !nodes_needed;
    case FOR_CLAIMS:
        return kube_needs_claims(s);
    case FOR_DISCOVERY:
        return s->section->discover && !kube_needs_claims(s);
    case FOR_WORKLOADS:
        for (uint32_t i = 0; i < s->sold_count; i++)
            if (s->sold[i].workload) return true;
        return false;
    }
    return false;
}

/* Returns a negative errno when the API server cannot be asked at all, which is told. */
static int check_rights(struct check *c)
{
    char why[INTENT_WHY_BYTES];
    for (size_t i = 0; i < COUNT_OF(rights); i++) {
        struct right one = rights[i];
        const struct right *r = &one;
        if (!is_needed(c, r->needed)) continue;
        if (r->needed == FOR_OWNER) one.name = c->settings->owner_name;
        bool deployment = str_eq(c->settings->owner_resource, STR("deployments"));
        const char *owner = deployment ? "deployments" : "statefulsets";
        int rc = check_right(c, r, r->resource ? r->resource : owner);
        if (rc < 0) {
            snprintf(why, sizeof why, "%.*s: %.120s", (int)min_size(c->cluster->server.len, 60),
                     c->cluster->server.data, c->problem);
            say(c, rc == -EACCES ? "credentials" : "API server", CLOUD_BROKEN,
                rc == -EACCES ? "renew the token, or name another kubeconfig or context"
                              : "see that it runs and that this machine reaches it",
                why);
            return rc;
        }
    }
    for (uint32_t i = 0; i < c->settings->sold_count; i++) {
        const struct kube_workload_kind *kind = c->settings->sold[i].workload;
        for (int v = 0; kind && v < 2; v++) {
            const struct right r = { ALWAYS,
                                     v == 0 ? "get" : "patch",
                                     kind->resource.group,
                                     kind->resource.plural,
                                     "scale",
                                     c->settings->sold[i].workload_name };
            int rc = check_right(c, &r, r.resource);
            if (rc < 0) return rc;
        }
    }
    snprintf(why, sizeof why, "%.*s takes our credentials",
             (int)min_size(c->cluster->server.len, 90), c->cluster->server.data);
    say(c, "API server", CLOUD_FINE, NULL, why);
    if (c->denied > 0) return 0;
    snprintf(why, sizeof why, "this account has the %u rights that it needs in namespace %.*s",
             c->asked, STR_ARG(c->ns));
    say(c, "rights", CLOUD_FINE, NULL, why);
    return 0;
}

/* ---- quota ---- */

struct used {
    struct check *c;
    struct str quota; /* the whole object */
    const char *name;
};

struct member {
    struct str name;
    struct buf *text;
};

static int find_member(void *ctx, struct str name, struct str value)
{
    struct member *m = ctx;
    return str_eq(name, m->name) ? (json_path_text(value, "", m->text), 1) : 0;
}

static int look_at_used(void *ctx, struct str name, struct str value)
{
    struct used *u = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    double hard = 0, used = 0;
    char key[KUBE_NAME_BYTES];
    if (json_path_text(value, "", &text) < 0 || kube_quantity(buf_view(&text), &used) < 0) return 0;
    snprintf(key, sizeof key, "%.*s", (int)min_size(name.len, sizeof key - 1), name.data);
    CLEANUP(buf_fini) struct buf limit = { 0 };
    struct member m = { name, &limit };
    /* Names of resources have dots, so that no path leads there. */
    (void)json_path_each_member(u->quota, "status.hard", find_member, &m);
    if (limit.len == 0 || kube_quantity(buf_view(&limit), &hard) < 0) return 0;
    u->c->count++;
    if (used < hard) return 0;
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "ResourceQuota %.50s has no more %.50s: %.*s of %.*s used", u->name,
             key, (int)min_size(text.len, 20), text.data, (int)min_size(limit.len, 20), limit.data);
    say(u->c, "quota", CLOUD_DOUBTFUL, "raise it, or end what uses it", why);
    return 0;
}

static void on_quota(void *arg, struct str object)
{
    struct kube_meta meta;
    if (kube_meta_read(object, &meta, NULL) < 0) return;
    struct used u = { arg, object, meta.name };
    (void)json_path_each_member(object, "status.used", look_at_used, &u);
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct check *c = arg;
    c->done = true;
    c->rc = end->rc;
    snprintf(c->problem, sizeof c->problem, "%s", end->problem ? end->problem : "");
}

static int list(struct check *c, const struct kube_resource *resource,
                void (*on_item)(void *arg, struct str object))
{
    struct kube_list *l;
    struct err err = { 0 };
    const struct kube_list_request req = { .resource = resource,
                                           .ns = resource->cluster ? (struct str){ 0 } : c->ns,
                                           .deadline_us = KUBE_CHECK_US,
                                           .on_item = on_item,
                                           .on_end = on_list_end,
                                           .arg = c };
    c->done = false;
    int rc = kube_list_start(c->client, &req, &l, &err);
    if (rc < 0) return rc;
    wait(c);
    return c->rc;
}

static void check_quota(struct check *c)
{
    c->count = 0;
    int rc = list(c, &quotas, on_quota);
    if (rc < 0)
        say(c, "quota", CLOUD_FINE, NULL,
            "not looked at: this account may not list ResourceQuotas");
    else if (c->count == 0)
        say(c, "quota", CLOUD_FINE, NULL, "the namespace has none");
}

/* ---- nodes and workloads ---- */

static void on_node(void *arg, struct str object)
{
    struct check *c = arg;
    struct kube_meta meta;
    if (kube_meta_read(object, &meta, NULL) < 0) return;
    (void)kube_nodes_take(
        c->nodes, &(struct kube_event){ .type = KUBE_ADDED, .meta = &meta, .object = object });
}

static void on_slice(void *arg, struct str object)
{
    struct check *c = arg;
    struct kube_meta meta;
    if (kube_meta_read(object, &meta, NULL) < 0) return;
    (void)kube_slices_take(
        c->slices, &(struct kube_event){ .type = KUBE_ADDED, .meta = &meta, .object = object });
}

static void on_nodepool(void *arg, struct str object)
{
    struct check *c = arg;
    struct kube_meta meta;
    if (kube_meta_read(object, &meta, NULL) < 0) return;
    (void)kube_nodepools_take(
        c->nodepools, &(struct kube_event){ .type = KUBE_ADDED, .meta = &meta, .object = object });
}

static void check_offer_of_nodes(struct check *c, const struct kube_sold *sold)
{
    char why[INTENT_WHY_BYTES];
    struct kube_found f = *sold->found;
    if (kube_found_is_claimed(&f)) {
        kube_slices_fill(c->slices, &f);
    } else {
        kube_nodes_fill(c->nodes, &f);
        kube_nodepools_fill(c->nodepools, &f);
    }
    if (!f.known) {
        snprintf(why, sizeof why, "no node makes the offer %s", sold->offer.name);
        say(c, "nodes", CLOUD_DOUBTFUL, "name an offer that nodes make", why);
    } else if (!f.price_known && !sold->price_given && c->settings->section->price_default_h <= 0) {
        snprintf(why, sizeof why, "nodes of %s have no row in kubernetes.prices", sold->offer.name);
        say(c, "nodes", CLOUD_BROKEN, "add one, or set price_default", why);
    }
}

/* Checks the right to list NodePools. Without it the list is refused also where the cluster has no Karpenter. */
static void check_nodepools(struct check *c)
{
    if (list(c, &kube_nodepools_resource, on_nodepool) == -EPERM)
        say(c, "rights", CLOUD_DOUBTFUL,
            "where there is Karpenter, grant list and watch by a ClusterRole (docs/kubernetes.md)",
            "this account may not list nodepools of karpenter.sh: what it may add is not known");
}

/* A missing right was told among the rights. */
static void check_slices(struct check *c)
{
    if (!kube_needs_claims(c->settings) && !c->settings->section->discover) return;
    if (list(c, &kube_slices_resource, on_slice) == -ENOENT && kube_needs_claims(c->settings))
        say(c, "devices", CLOUD_BROKEN, "take Kubernetes 1.34 or later, or other offers",
            "the API server has no " DRA "/v1");
}

static void check_nodes(struct check *c)
{
    char names[INTENT_WHY_BYTES - 40] = "", why[INTENT_WHY_BYTES];
    if (!kube_needs_nodes(c->settings)) return;
    const struct kube_nodes_config config = { .prices = &c->settings->prices,
                                              .cores = c->settings->section->cores,
                                              .template = c->settings->template };
    c->nodes = kube_nodes_new(&config);
    c->slices = kube_slices_new(c->nodes, c->settings->class, c->settings->class_count);
    c->nodepools = kube_nodepools_new(c->nodes, c->settings->template);
    if (list(c, &nodes, on_node) == 0) {
        check_slices(c);
        check_nodepools(c);
        kube_nodes_names(c->nodes, names, sizeof names);
        kube_slices_names(c->slices, names, sizeof names);
        kube_nodepools_names(c->nodepools, names, sizeof names);
        snprintf(why, sizeof why, "they make the offers %s", names[0] ? names : "none");
        say(c, "nodes", CLOUD_FINE, NULL, why);
        for (uint32_t i = 0; i < c->settings->sold_count; i++)
            if (c->settings->sold[i].found) check_offer_of_nodes(c, &c->settings->sold[i]);
    }
    kube_slices_free(c->slices);
    kube_nodepools_free(c->nodepools);
    kube_nodes_free(c->nodes);
}

static void check_workloads(struct check *c)
{
    char why[INTENT_WHY_BYTES];
    for (uint32_t i = 0; i < c->settings->sold_count; i++) {
        const struct kube_sold *sold = &c->settings->sold[i];
        if (!sold->workload) continue;
        int rc = ask(c, (struct kube_request){ .verb = KUBE_GET,
                                               .resource = &sold->workload->resource,
                                               .ns = c->ns,
                                               .name = sold->workload_name,
                                               .subresource = "scale" });
        snprintf(why, sizeof why, "%s %.60s of offer %.40s%s%.60s", sold->workload->name,
                 sold->workload_name.data, sold->offer.name, rc < 0 ? ": " : " is there",
                 rc < 0 ? c->problem : "");
        say(c, "workload", rc < 0 ? CLOUD_BROKEN : CLOUD_FINE,
            rc < 0 ? "make it, or name another" : NULL, why);
    }
}

int kube_check(const struct kube_settings *settings, const char *const *environment,
               cloud_finding_fn fn, void *arg, struct err *err)
{
    struct check c = { .settings = settings, .fn = fn, .arg = arg };
    const struct kube_section *s = settings->section;
    const struct kube_source source = { .path = s->kubeconfig.len > 0 ? s->kubeconfig.data : NULL,
                                        .context = s->context,
                                        .environ = environment };
    const struct kube_client_config client = { .calls_per_s = 100, .environ = environment };
    int rc = kube_config_load(&source, &c.cluster, err);
    if (rc == 0) rc = loop_new(&c.loop, err);
    if (rc == 0) rc = kube_client_new(c.loop, c.cluster, &client, &c.client, err);
    if (rc == 0) {
        c.ns = s->namespace.len > 0 ? s->namespace : c.cluster->ns;
        if (check_rights(&c) == 0) {
            check_quota(&c);
            check_nodes(&c);
            check_workloads(&c);
        }
    }
    kube_client_free(c.client);
    if (c.loop) loop_free(c.loop);
    kube_config_free(c.cluster);
    buf_fini(&c.body);
    return rc;
}
