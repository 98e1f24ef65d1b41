/* kube_nodepools.c - keeps a row for each NodePool: the products that it may have, its limits and their use. */
#include "controller/cloud/kube/kube_nodepools.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY STR("karpenter.sh/capacity-type")
#define PER_NODE STR("karpenter.k8s.aws/instance-gpu-count")
#define BASE_BYTES 41 /* of a slug, as of nodes */

const struct kube_resource kube_nodepools_resource = { "karpenter.sh", "v1", "nodepools", true };

static const struct kube_pair spot_label = { { "karpenter.sh/capacity-type", 26 }, { "spot", 4 } };

struct product {
    char base[NAME_BYTES];
    char label[KUBE_RESOURCE_BYTES], value[KUBE_LABEL_BYTES];
    const char *resource; /* static */
};

struct limit {
    char resource[KUBE_RESOURCE_BYTES];
    double most, used;
};

struct nodepool {
    char name[KUBE_NAME_BYTES];
    bool spot, on_demand;
    const char *unusable; /* why it adds no node; static; NULL: it does */
    struct product product[KUBE_POOL_KINDS_MAX];
    uint32_t product_count;
    struct limit limit[KUBE_LIMITS_MAX];
    uint32_t limit_count;
    double per_node;   /* devices; 0: not said */
    struct buf labels; /* that all its nodes have, as JSON members; each with a ',' before it */
};

struct kube_nodepools {
    const struct kube_nodes *nodes;
    struct str template;
    struct kube_watch *watch;
    struct nodepool pool[KUBE_NODEPOOLS_MAX];
    uint32_t count;
    bool synced, full_told;
    void (*fn)(void *arg);
    void *arg;
};

struct kube_nodepools *kube_nodepools_new(const struct kube_nodes *nodes, struct str template)
{
    struct kube_nodepools *p = calloc(1, sizeof *p);
    must(p);
    p->nodes = nodes;
    p->template = template;
    return p;
}

void kube_nodepools_free(struct kube_nodepools *p)
{
    if (!p) return;
    kube_watch_stop(p->watch);
    for (uint32_t i = 0; i < p->count; i++)
        buf_fini(&p->pool[i].labels);
    free(p);
}

bool kube_nodepools_synced(const struct kube_nodepools *p)
{
    return p->synced;
}

/* ---- reading ---- */

struct reader {
    struct nodepool *pool;
    struct str key;  /* of the requirement that is looked at */
    uint32_t values; /* of it */
    char last[KUBE_LABEL_BYTES];
    bool in, capacity; /* a requirement on capacity types was seen */
};

static bool take_text(struct str value, char ret[KUBE_LABEL_BYTES])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0 || text.len == 0 || text.len >= KUBE_LABEL_BYTES)
        return false;
    snprintf(ret, KUBE_LABEL_BYTES, "%.*s", (int)text.len, text.data);
    return true;
}

static void add_product(struct nodepool *n, struct str key, const char *value)
{
    const char *resource = kube_product_resource(key);
    char slug[NAME_BYTES];
    if (!resource || n->product_count == KUBE_POOL_KINDS_MAX || key.len >= KUBE_RESOURCE_BYTES)
        return;
    struct product *x = &n->product[n->product_count++];
    *x = (struct product){ .resource = resource };
    kube_slug_product(value, slug, BASE_BYTES);
    snprintf(x->base, sizeof x->base, "%s", slug);
    snprintf(x->label, sizeof x->label, STR_FMT, STR_ARG(key));
    snprintf(x->value, sizeof x->value, "%s", value);
}

/* Keeps a label that all nodes have. */
static void add_label(struct nodepool *n, struct str key, const char *value)
{
    struct json_writer w;
    json_writer_init(&w, &n->labels);
    buf_byte(&n->labels, ',');
    json_put_str(&w, key);
    buf_byte(&n->labels, ':');
    json_writer_init(&w, &n->labels);
    json_put_str(&w, str_from(value));
}

static int read_value(void *ctx, struct str item)
{
    struct reader *r = ctx;
    struct nodepool *n = r->pool;
    if (!take_text(item, r->last)) return 0;
    r->values++;
    bool spot = strcmp(r->last, "spot") == 0;
    if (str_eq(r->key, CAPACITY)) {
        n->spot = spot ? r->in : n->spot;
        n->on_demand = spot ? n->on_demand : r->in;
    }
    if (r->in) add_product(n, r->key, r->last);
    return 0;
}

static int read_requirement(void *ctx, struct str item)
{
    struct reader *r = ctx;
    CLEANUP(buf_fini) struct buf key = { 0 }, how = { 0 };
    double count;
    if (json_path_text(item, "key", &key) < 0 || json_path_text(item, "operator", &how) < 0)
        return 0;
    bool not_in = str_eq(buf_view(&how), STR("NotIn"));
    r->key = buf_view(&key);
    r->in = str_eq(buf_view(&how), STR("In"));
    r->values = 0;
    if (!r->in && !not_in) return 0;
    if (str_eq(r->key, CAPACITY)) { /* what is not named is there with NotIn alone */
        r->capacity = true;
        r->pool->spot = r->pool->on_demand = not_in;
    }
    (void)json_path_each(item, "values", read_value, r);
    if (!r->in || r->values != 1) return 0;
    if (!kube_product_resource(r->key)) add_label(r->pool, r->key, r->last);
    if (str_eq(r->key, PER_NODE) && kube_quantity(str_from(r->last), &count) == 0)
        r->pool->per_node = count;
    return 0;
}

static int read_label(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    char text[KUBE_LABEL_BYTES];
    if (!take_text(value, text)) return 0;
    if (kube_product_resource(name))
        add_product(r->pool, name, text);
    else
        add_label(r->pool, name, text);
    return 0;
}

static int read_limit(void *ctx, struct str name, struct str value)
{
    struct nodepool *n = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str raw = json_path_text(value, "", &text) == 0 ? buf_view(&text) : value;
    struct limit *l = &n->limit[n->limit_count];
    if (n->limit_count == KUBE_LIMITS_MAX || name.len >= sizeof l->resource) return 0;
    if (kube_quantity(raw, &l->most) < 0) return 0;
    snprintf(l->resource, sizeof l->resource, STR_FMT, STR_ARG(name));
    l->used = 0;
    n->limit_count++;
    return 0;
}

static int read_use(void *ctx, struct str name, struct str value)
{
    struct nodepool *n = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str raw = json_path_text(value, "", &text) == 0 ? buf_view(&text) : value;
    for (uint32_t i = 0; i < n->limit_count; i++)
        if (str_eq(name, str_from(n->limit[i].resource)))
            (void)kube_quantity(raw, &n->limit[i].used);
    return 0;
}

static int read_condition(void *ctx, struct str item)
{
    struct nodepool *n = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 }, status = { 0 };
    (void)json_path_text(item, "type", &type);
    (void)json_path_text(item, "status", &status);
    if (str_eq(buf_view(&type), STR("Ready")) && str_eq(buf_view(&status), STR("False")))
        n->unusable = "is not ready";
    return 0;
}

static void read_pool(const struct kube_nodepools *p, struct str json, const char *name,
                      struct nodepool *ret)
{
    struct str replicas;
    *ret = (struct nodepool){ .labels = { .max = KUBE_LABELS_BYTES_MAX } };
    struct reader r = { .pool = ret };
    snprintf(ret->name, sizeof ret->name, "%s", name);
    (void)json_path_each(json, "spec.template.spec.requirements", read_requirement, &r);
    (void)json_path_each_member(json, "spec.template.metadata.labels", read_label, &r);
    if (!r.capacity) ret->on_demand = true;
    (void)json_path_each_member(json, "spec.limits", read_limit, ret);
    (void)json_path_each_member(json, "status.resources", read_use, ret);
    (void)json_path_each(json, "status.conditions", read_condition, ret);
    if (!kube_taints_are_tolerated(json, "spec.template.spec.taints", p->template))
        ret->unusable = "has a taint that the Pods do not tolerate";
    if (json_path(json, "spec.replicas", &replicas) == 0)
        ret->unusable = "has a fixed number of nodes";
}

static struct nodepool *find(struct kube_nodepools *p, const char *name)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (strcmp(p->pool[i].name, name) == 0) return &p->pool[i];
    return NULL;
}

bool kube_nodepools_take(struct kube_nodepools *p, const struct kube_event *e)
{
    if (e->type == KUBE_SYNCED) {
        bool first = !p->synced;
        p->synced = true;
        return first;
    }
    struct nodepool *n = find(p, e->meta->name), next;
    if (e->type == KUBE_DELETED) {
        if (n) buf_fini(&n->labels);
        if (n) *n = p->pool[--p->count];
        return n != NULL;
    }
    if (!n && p->count == KUBE_NODEPOOLS_MAX) {
        if (!p->full_told)
            log_event(LOG_ERROR, "too_many_nodepools", "nodepools=%d", KUBE_NODEPOOLS_MAX);
        p->full_told = true;
        return false;
    }
    read_pool(p, e->object, e->meta->name, &next);
    if (n)
        buf_fini(&n->labels);
    else
        n = &p->pool[p->count++];
    *n = next;
    return true;
}

static void on_event(void *arg, const struct kube_event *e)
{
    struct kube_nodepools *p = arg;
    if (kube_nodepools_take(p, e)) p->fn(p->arg);
}

int kube_nodepools_watch(struct kube_nodepools *p, struct kube_client *client,
                         void (*fn)(void *arg), void *arg, struct err *err)
{
    const struct kube_watch_request req = { .resource = &kube_nodepools_resource,
                                            .objects_max = KUBE_NODEPOOLS_MAX,
                                            .optional = true,
                                            .on_event = on_event,
                                            .arg = p };
    p->fn = fn;
    p->arg = arg;
    return kube_watch_start(client, &req, &p->watch, err);
}

/* ---- offers ---- */

static const struct product *product_of(const struct nodepool *n, const struct kube_found *f)
{
    for (uint32_t i = 0; i < n->product_count; i++)
        if ((f->spot ? n->spot : n->on_demand) && strcmp(n->product[i].base, f->base) == 0)
            return &n->product[i];
    return NULL;
}

/* Returns the limit that leaves no room for so many devices; NULL: none. Of other resources it is not known how
 * much a node needs: what is used up counts. */
static const struct limit *limit_reached(const struct nodepool *n, const struct product *x,
                                         uint32_t units)
{
    for (uint32_t i = 0; i < n->limit_count; i++) {
        const struct limit *l = &n->limit[i];
        double need = strcmp(l->resource, x->resource) == 0 ? units : 0;
        if (need > 0 ? l->used + need > l->most : l->used >= l->most) return l;
    }
    return NULL;
}

/* Says why the NodePool adds no node; false: it may. */
static bool is_full(const struct nodepool *n, const struct product *x, struct kube_found *f)
{
    const struct limit *l = limit_reached(n, x, f->units);
    if (n->unusable)
        snprintf(f->full, sizeof f->full, "NodePool %.40s %s", n->name, n->unusable);
    else if (l)
        snprintf(f->full, sizeof f->full, "NodePool %.40s is at its limit, %.40s=%.6g of %.6g",
                 n->name, l->resource, l->used, l->most);
    return n->unusable || l;
}

/* Returns the price of an instance on nodes that do not exist yet; below 0: no row says. */
static double price_of(const struct kube_nodepools *p, const struct nodepool *n,
                       const struct product *x, const struct kube_found *f)
{
    CLEANUP(buf_fini) struct buf labels = { 0 };
    struct json_writer w;
    json_writer_init(&w, &labels);
    buf_byte(&labels, '{');
    json_put_str(&w, str_from(x->label));
    buf_byte(&labels, ':');
    json_writer_init(&w, &labels);
    json_put_str(&w, str_from(x->value));
    buf_str(&labels, buf_view(&n->labels));
    buf_byte(&labels, '}');
    if (labels.rc < 0 || n->labels.rc < 0) return -1;
    double price_h = kube_nodes_price(p->nodes, buf_view(&labels), str_from(x->resource), f->spot);
    if (price_h >= 0) return price_h * f->units;
    price_h = kube_nodes_price(p->nodes, buf_view(&labels), (struct str){ 0 }, f->spot);
    return price_h >= 0 && n->per_node >= f->units ? price_h * f->units / n->per_node : -1;
}

/* Sets what a Pod asks for, while no node says it. */
static void describe(const struct nodepool *n, const struct product *x, struct kube_found *f)
{
    f->known = true;
    snprintf(f->device, sizeof f->device, "%s", x->resource);
    memcpy(f->label, x->label, sizeof f->label);
    memcpy(f->value, x->value, sizeof f->value);
    snprintf(f->count, sizeof f->count, "%u", f->units);
    snprintf(f->hardware, sizeof f->hardware, "%.36s, NodePool %.14s", x->value, n->name);
    f->memory[0] = 0;
    f->spot_label = f->spot ? &spot_label : NULL;
}

void kube_nodepools_fill(const struct kube_nodepools *p, struct kube_found *f)
{
    bool described = f->nodes > 0, priced = false, any = false;
    double dearest = -1;
    f->grows = false;
    f->full[0] = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct nodepool *n = &p->pool[i];
        const struct product *x = product_of(n, f);
        if (!x) continue;
        if (!described) describe(n, x, f);
        double price_h = described && f->nodes > 0 ? -1 : price_of(p, n, x, f);
        priced = any ? priced && price_h >= 0 : price_h >= 0;
        dearest = fmax(dearest, price_h);
        described = any = true;
        if (!is_full(n, x, f)) f->grows = true;
    }
    if (!any || f->nodes > 0) return;
    if (priced || !f->price_known) {
        f->price_known = priced;
        f->price_h = fmax(dearest, 0);
    }
    kube_nodes_count(p->nodes,
                     f); /* of nodes that have another label for products before this one */
}

void kube_nodepools_names(const struct kube_nodepools *p, char *ret, size_t bytes)
{
    for (uint32_t i = 0; i < p->count; i++)
        for (uint32_t k = 0; k < p->pool[i].product_count; k++)
            for (int spot = 0; spot < 2; spot++)
                if ((spot ? p->pool[i].spot : p->pool[i].on_demand) &&
                    !kube_names_put(ret, bytes, p->pool[i].product[k].base, spot))
                    return;
}
