/* kube_slices.c - keeps a row for each ResourceSlice, with its devices counted by kind, and sums rows when asked. */
#include "controller/cloud/kube/kube_slices.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE_BYTES 37 /* of a slug: "dra-" stands before it, -xN and -spot may follow */

const struct kube_resource kube_slices_resource = { "resource.k8s.io", "v1", "resourceslices",
                                                    true };
const struct kube_resource kube_claims_resource = { "resource.k8s.io", "v1", "resourceclaims",
                                                    false };

/* Attributes that name a product; the first that a device has counts. */
static const char *const product_attributes[] = { "productName", "product", "model" };

/* Classes of drivers whose devices of some type have a class that is not called as the driver. */
static const struct {
    const char *driver, *type, *class;
} classes[] = { { "gpu.nvidia.com", "mig", "mig.nvidia.com" } };

/* An attribute of a device. */
struct attribute {
    char domain[KUBE_RESOURCE_BYTES], name[40], value[KUBE_LABEL_BYTES];
};

/* Like devices of a slice. */
struct group {
    struct attribute product, type, profile; /* value empty: it has none */
    char base[NAME_BYTES];
    double memory_bytes; /* of one; 0: not said */
    uint32_t count;
    bool parts; /* of another device in this slice: they share counters */
};

struct slice {
    char name[KUBE_NAME_BYTES], node[KUBE_NAME_BYTES], pool[KUBE_NAME_BYTES];
    char driver[KUBE_RESOURCE_BYTES];
    uint64_t generation;
    bool old; /* the pool has newer ones */
    struct group group[KUBE_GROUPS_MAX];
    uint32_t group_count;
    uint32_t at; /* where its node was found last */
};

struct kube_slices {
    const struct kube_nodes *nodes;
    const struct kube_pair *class;
    uint32_t class_count;
    struct kube_watch *watch;
    struct slice *slice; /* KUBE_SLICES_MAX; pages are touched as slices come */
    uint32_t count;
    bool synced, full_told;
    void (*fn)(void *arg);
    void *arg;
};

struct kube_slices *kube_slices_new(const struct kube_nodes *nodes, const struct kube_pair *class,
                                    uint32_t class_count)
{
    struct kube_slices *s = calloc(1, sizeof *s);
    must(s);
    s->nodes = nodes;
    s->class = class;
    s->class_count = class_count;
    s->slice = calloc(KUBE_SLICES_MAX, sizeof *s->slice);
    must(s->slice);
    return s;
}

void kube_slices_free(struct kube_slices *s)
{
    if (!s) return;
    kube_watch_stop(s->watch);
    free(s->slice);
    free(s);
}

bool kube_slices_synced(const struct kube_slices *s)
{
    return s->synced;
}

const char *kube_slices_missing(const struct kube_slices *s)
{
    struct kube_watch_state state = { 0 };
    if (s->watch) kube_watch_state_get(s->watch, &state);
    if (state.missing == 404) return "the API server has no resource.k8s.io/v1";
    return state.missing == 403 ? "this account may not list resourceslices" : NULL;
}

/* ---- devices ---- */

struct reader {
    struct slice *slice;
    struct group group; /* of the device that is looked at */
    size_t product_at;
    bool dropped; /* kinds for which there was no room */
};

/* Takes texts that stand in an expression as they are. */
static bool is_plain(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] < ' ' || text.data[i] == '"' || text.data[i] == '\\') return false;
    return text.len > 0;
}

static bool take(struct str domain, struct str name, struct str value, struct attribute *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "string", &text) < 0 || !is_plain(buf_view(&text))) return false;
    if (text.len >= sizeof ret->value || domain.len >= sizeof ret->domain ||
        name.len >= sizeof ret->name)
        return false;
    snprintf(ret->domain, sizeof ret->domain, STR_FMT, STR_ARG(domain));
    snprintf(ret->name, sizeof ret->name, STR_FMT, STR_ARG(name));
    snprintf(ret->value, sizeof ret->value, "%.*s", (int)text.len, text.data);
    return true;
}

/* A name without a domain is of the driver's own. */
static int read_attribute(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    struct str domain = str_from(r->slice->driver);
    size_t slash = str_find(name, STR("/"));
    if (slash != SIZE_MAX) {
        domain = str_of(name.data, slash);
        name = str_of(name.data + slash + 1, name.len - slash - 1);
    }
    if (str_eq(name, STR("type"))) (void)take(domain, name, value, &r->group.type);
    if (str_eq(name, STR("profile"))) (void)take(domain, name, value, &r->group.profile);
    for (size_t i = 0; i < r->product_at; i++)
        if (str_eq(name, str_from(product_attributes[i])) &&
            take(domain, name, value, &r->group.product))
            r->product_at = i;
    return 0;
}

static int read_capacity(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str own = str_from(r->slice->driver), bare = name;
    if (str_starts(name, own) && name.len > own.len && name.data[own.len] == '/')
        bare = str_of(name.data + own.len + 1, name.len - own.len - 1);
    if (str_eq(bare, STR("memory")) && json_path_text(value, "value", &text) == 0)
        (void)kube_quantity(buf_view(&text), &r->group.memory_bytes);
    return 0;
}

static bool is_same(const struct attribute *a, const struct attribute *b)
{
    return strcmp(a->value, b->value) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->domain, b->domain) == 0;
}

static void count_device(struct reader *r)
{
    struct slice *s = r->slice;
    struct group *g = &r->group;
    for (uint32_t i = 0; i < s->group_count; i++) {
        struct group *h = &s->group[i];
        if (!is_same(&g->product, &h->product) || !is_same(&g->type, &h->type) ||
            !is_same(&g->profile, &h->profile))
            continue;
        h->memory_bytes = h->count > 0 ? fmin(h->memory_bytes, g->memory_bytes) : g->memory_bytes;
        h->count++;
        return;
    }
    if (s->group_count == KUBE_GROUPS_MAX) {
        r->dropped = true;
        return;
    }
    char product[KUBE_PRODUCT_BYTES], slug[NAME_BYTES];
    snprintf(product, sizeof product, "%s%s%s", g->product.value,
             g->profile.value[0] ? "-MIG-" : "", g->profile.value);
    kube_slug_product(product, slug, BASE_BYTES);
    snprintf(g->base, sizeof g->base, KUBE_DRA "%.40s", slug);
    g->count = 1;
    s->group[s->group_count++] = *g;
}

static int read_device(void *ctx, struct str device)
{
    struct reader *r = ctx;
    struct str counters;
    r->group = (struct group){ 0 };
    r->product_at = COUNT_OF(product_attributes);
    (void)json_path_each_member(device, "attributes", read_attribute, r);
    (void)json_path_each_member(device, "capacity", read_capacity, r);
    r->group.parts =
        r->group.profile.value[0] && json_path(device, "consumesCounters", &counters) == 0;
    bool passed_through = strcmp(r->group.type.value, "vfio") == 0;
    if (r->group.product.value[0] && !passed_through) count_device(r);
    return 0;
}

/* ---- events ---- */

static void read_name(struct str json, const char *path, char *ret, size_t bytes)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    ret[0] = 0;
    if (json_path_text(json, path, &text) == 0 && text.len < bytes)
        snprintf(ret, bytes, "%.*s", (int)text.len, text.data);
}

static void read_slice(struct str json, const char *name, struct slice *ret)
{
    *ret = (struct slice){ 0 };
    struct reader r = { .slice = ret };
    snprintf(ret->name, sizeof ret->name, "%s", name);
    read_name(json, "spec.nodeName", ret->node, sizeof ret->node);
    read_name(json, "spec.driver", ret->driver, sizeof ret->driver);
    read_name(json, "spec.pool.name", ret->pool, sizeof ret->pool);
    (void)json_path_u64(json, "spec.pool.generation", &ret->generation);
    if (!ret->node[0] || !ret->driver[0] || !is_plain(str_from(ret->driver))) return;
    (void)json_path_each(json, "spec.devices", read_device, &r);
    if (r.dropped)
        log_event(LOG_WARN, "devices_unsold", "slice=%s driver=%s kinds_max=%d", name, ret->driver,
                  KUBE_GROUPS_MAX);
}

/* Marks the slices of a pool that are older than its newest. */
static void mark_pool(struct kube_slices *s, const char *driver, const char *pool)
{
    uint64_t newest = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->count; i++) {
            struct slice *x = &s->slice[i];
            if (strcmp(x->driver, driver) != 0 || strcmp(x->pool, pool) != 0) continue;
            if (pass == 0)
                newest = max_u64(newest, x->generation);
            else
                x->old = x->generation < newest;
        }
}

static struct slice *find(struct kube_slices *s, const char *name)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (strcmp(s->slice[i].name, name) == 0) return &s->slice[i];
    return NULL;
}

bool kube_slices_take(struct kube_slices *s, const struct kube_event *e)
{
    if (e->type == KUBE_SYNCED) {
        bool first = !s->synced;
        s->synced = true;
        return first;
    }
    struct slice *x = find(s, e->meta->name), next;
    if (e->type == KUBE_DELETED) {
        if (!x) return false;
        struct slice was = *x;
        *x = s->slice[--s->count];
        mark_pool(s, was.driver, was.pool);
        return true;
    }
    if (!x && s->count == KUBE_SLICES_MAX) {
        if (!s->full_told) log_event(LOG_ERROR, "too_many_slices", "slices=%d", KUBE_SLICES_MAX);
        s->full_told = true;
        return false;
    }
    read_slice(e->object, e->meta->name, &next);
    if (!x) x = &s->slice[s->count++];
    *x = next;
    mark_pool(s, next.driver, next.pool);
    return true;
}

static void on_event(void *arg, const struct kube_event *e)
{
    struct kube_slices *s = arg;
    if (kube_slices_take(s, e)) s->fn(s->arg);
}

int kube_slices_watch(struct kube_slices *s, struct kube_client *client, void (*fn)(void *arg),
                      void *arg, struct err *err)
{
    const struct kube_watch_request req = { .resource = &kube_slices_resource,
                                            .objects_max = KUBE_SLICES_MAX,
                                            .optional = true,
                                            .on_event = on_event,
                                            .arg = s };
    s->fn = fn;
    s->arg = arg;
    return kube_watch_start(client, &req, &s->watch, err);
}

/* ---- offers ---- */

/* Returns the part of its node's devices of this driver that so many are; below 0: not known. */
static double share_of(const struct kube_slices *s, const struct slice *x, const struct group *g,
                       uint32_t units)
{
    double memory = 0, others = 0, count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct slice *y = &s->slice[i];
        if (y != x &&
            (y->old || strcmp(y->driver, x->driver) != 0 || strcmp(y->node, x->node) != 0))
            continue;
        for (uint32_t k = 0; k < y->group_count; k++) {
            const struct group *h = &y->group[k];
            if (h->parts) continue;
            if (h->memory_bytes <= 0) others += h->count;
            memory += h->memory_bytes * h->count;
            if (strcmp(h->base, g->base) == 0) count += h->count;
        }
    }
    if (others == 0 && memory > 0 && g->memory_bytes > 0) return g->memory_bytes * units / memory;
    return memory <= 0 && count > 0 && count == others ? units / count : -1;
}

static void put_class(const struct kube_slices *s, const struct slice *x, const struct group *g,
                      struct kube_found *f)
{
    snprintf(f->class, sizeof f->class, "%s", x->driver);
    for (size_t i = 0; i < COUNT_OF(classes); i++)
        if (strcmp(x->driver, classes[i].driver) == 0 &&
            strcmp(g->type.value, classes[i].type) == 0)
            snprintf(f->class, sizeof f->class, "%s", classes[i].class);
    for (uint32_t i = 0; i < s->class_count; i++)
        if (str_eq(s->class[i].name, str_from(x->driver)))
            snprintf(f->class, sizeof f->class, "%.*s",
                     (int)min_size(s->class[i].value.len, sizeof f->class - 1),
                     s->class[i].value.data);
}

/* An attribute that a device lacks is an error of the expression, which would end the whole Pod's scheduling. */
static void put_attribute(struct buf *out, const struct attribute *a)
{
    if (!a->value[0]) return;
    buf_printf(out,
               " && \"%s\" in device.attributes[\"%s\"] && device.attributes[\"%s\"].%s == \"%s\"",
               a->name, a->domain, a->domain, a->name, a->value);
}

static void describe(const struct kube_slices *s, const struct slice *x, const struct group *g,
                     struct kube_found *f)
{
    CLEANUP(buf_fini) struct buf cel = { .max = sizeof f->selector - 1 };
    f->known = true;
    f->device[0] = f->label[0] = f->memory[0] = 0;
    snprintf(f->count, sizeof f->count, "%u", f->units);
    snprintf(f->driver, sizeof f->driver, "%s", x->driver);
    put_class(s, x, g, f);
    buf_printf(&cel, "device.driver == \"%s\"", x->driver);
    put_attribute(&cel, &g->product);
    put_attribute(&cel, &g->type);
    put_attribute(&cel, &g->profile);
    if (cel.rc == 0)
        snprintf(f->selector, sizeof f->selector, "%.*s", (int)cel.len, cel.data);
    else
        f->known = false;
    int len = snprintf(f->hardware, sizeof f->hardware, "%.30s%s%.12s", g->product.value,
                       g->profile.value[0] ? " MIG " : "", g->profile.value);
    if (g->memory_bytes > 0 && len > 0 && (size_t)len < sizeof f->hardware)
        snprintf(f->hardware + len, sizeof f->hardware - (size_t)len, ", %.0f MiB",
                 g->memory_bytes / 1048576);
}

static bool is_like(const struct kube_found *f, const struct slice *x)
{
    return strcmp(f->driver, x->driver) == 0;
}

static void add(const struct kube_slices *s, struct slice *x, const struct group *g,
                struct kube_found *f, bool *any)
{
    struct kube_site site;
    if (x->old || g->count < f->units || (*any && !is_like(f, x))) return;
    if (!kube_nodes_site(s->nodes, x->node, str_from(x->driver), &x->at, &site)) return;
    if ((site.spot != NULL) != f->spot) return;
    if (site.usable) {
        f->nodes++;
        f->room += g->count / f->units;
    }
    double share = share_of(s, x, g, f->units), price_h = -1;
    if (site.device_price_h >= 0)
        price_h = site.device_price_h * f->units;
    else if (site.price_h >= 0 && share >= 0)
        price_h = site.price_h * share;
    f->price_known = f->price_known && price_h >= 0;
    f->price_h = fmax(f->price_h, price_h);
    if (*any) return;
    *any = true;
    describe(s, x, g, f);
    f->spot_label = site.spot;
}

void kube_slices_fill(struct kube_slices *s, struct kube_found *f)
{
    double price_h = f->price_h;
    bool price_known = f->price_known, any = false;
    f->nodes = f->room = 0;
    f->price_h = 0;
    f->price_known = true;
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->slice[i].group_count; k++)
            if (strcmp(s->slice[i].group[k].base, f->base) == 0)
                add(s, &s->slice[i], &s->slice[i].group[k], f, &any);
    if (any) return;
    f->price_h = price_h;
    f->price_known = price_known;
}

void kube_slices_names(struct kube_slices *s, char *ret, size_t bytes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct slice *x = &s->slice[i];
        struct kube_site site;
        if (x->old || !kube_nodes_site(s->nodes, x->node, str_from(x->driver), &x->at, &site))
            continue;
        for (uint32_t k = 0; k < x->group_count; k++)
            if (!kube_names_put(ret, bytes, x->group[k].base, site.spot != NULL)) return;
    }
}

/* ---- claims ---- */

int kube_claim_write(const struct kube_found *f, const char *component, struct str name,
                     struct str fleet, struct str pod_uid, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "resource.k8s.io/v1");
    json_kv_text(&w, "kind", "ResourceClaim");
    json_key(&w, "metadata");
    kube_owned_write(&w, component, name, fleet, pod_uid);
    json_key(&w, "spec");
    json_object(&w);
    json_key(&w, "devices");
    json_object(&w);
    json_key(&w, "requests");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "name", "devices");
    json_key(&w, "exactly");
    json_object(&w);
    json_kv_text(&w, "deviceClassName", f->class);
    json_kv_text(&w, "allocationMode", "ExactCount");
    json_kv_i64(&w, "count", f->units);
    json_key(&w, "selectors");
    json_array(&w);
    json_object(&w);
    json_key(&w, "cel");
    json_object(&w);
    json_kv_text(&w, "expression", f->selector);
    json_object_end(&w);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
