/* kube_nodes.c - keeps a row for each node and sums rows of like nodes when somebody asks.
 *
 * Sums are made anew each time: nodes change rarely, offers are few, and a sum that is kept can go wrong. */
#include "controller/cloud/kube/kube_nodes.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/io/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_SHARE 0.9 /* of a node's memory over its cores: the rest is for Pods of the system */
#define MIB 1048576.0
#define BASE_BYTES 41 /* of a slug: -xN and -spot follow it in a name */

struct row {
    struct kube_node node;
    struct buf labels; /* as JSON, for prices */
    double price_h;    /* of the node; below 0: not known */
    struct made {
        char base[NAME_BYTES]; /* empty: this kind makes no offer */
        double price_h;        /* of a device, by a row of its own; below 0: none */
    } made[KUBE_KINDS_MAX];    /* parallel to node.kind */
};

struct kube_nodes {
    struct kube_nodes_config config;
    struct row *row; /* KUBE_NODES_MAX; pages are touched as nodes come */
    uint32_t count;
    bool synced, full_told;
};

struct kube_nodes *kube_nodes_new(const struct kube_nodes_config *config)
{
    struct kube_nodes *n = calloc(1, sizeof *n);
    must(n);
    n->config = *config;
    n->row = calloc(KUBE_NODES_MAX, sizeof *n->row);
    must(n->row);
    return n;
}

void kube_nodes_free(struct kube_nodes *n)
{
    if (!n) return;
    for (uint32_t i = 0; i < n->count; i++)
        buf_fini(&n->row[i].labels);
    free(n->row);
    free(n);
}

static struct row *find(const struct kube_nodes *n, const char *name)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (strcmp(n->row[i].node.meta.name, name) == 0) return &n->row[i];
    return NULL;
}

int64_t kube_nodes_created(const struct kube_nodes *n, const char *node)
{
    const struct row *r = find(n, node);
    return r ? r->node.created_us : 0;
}

bool kube_nodes_site(const struct kube_nodes *n, const char *node, struct str device, uint32_t *at,
                     struct kube_site *ret)
{
    const struct row *r = *at < n->count ? &n->row[*at] : NULL;
    if (!r || strcmp(r->node.meta.name, node) != 0) r = find(n, node);
    if (!r) return false;
    *at = (uint32_t)(r - n->row);
    bool spot = r->node.spot != NULL;
    *ret = (struct kube_site){ .usable = r->node.takes_claims,
                               .spot = r->node.spot,
                               .price_h = r->price_h,
                               .device_price_h = kube_prices_find(
                                   n->config.prices, buf_view(&r->labels), device, spot) };
    return true;
}

double kube_nodes_price(const struct kube_nodes *n, struct str labels, struct str device, bool spot)
{
    return kube_prices_find(n->config.prices, labels, device, spot);
}

bool kube_nodes_synced(const struct kube_nodes *n)
{
    return n->synced;
}

/* ---- events ---- */

static void set_price(const struct kube_nodes *n, struct row *r)
{
    const struct str labels = buf_view(&r->labels);
    bool spot = r->node.spot != NULL;
    r->price_h = kube_prices_find(n->config.prices, labels, (struct str){ 0 }, spot);
    for (uint32_t i = 0; i < r->node.kind_count; i++) {
        struct str device = str_from(r->node.kind[i].resource);
        r->made[i].price_h =
            device.len > 0 ? kube_prices_find(n->config.prices, labels, device, spot) : -1;
    }
}

/* Returns the price of so many devices, which are this share of the node; below 0: not known. */
static double price_of(const struct row *r, uint32_t kind, double units, double share)
{
    if (r->made[kind].price_h >= 0) return r->made[kind].price_h * units;
    return r->price_h >= 0 && share >= 0 ? r->price_h * share : -1;
}

void kube_nodes_reprice(struct kube_nodes *n, const struct kube_prices *prices)
{
    n->config.prices = prices;
    for (uint32_t i = 0; i < n->count; i++)
        set_price(n, &n->row[i]);
}

/* Keeps the labels: rows of prices may change later. */
static void keep_labels(struct str json, struct row *r)
{
    struct str labels;
    r->labels = (struct buf){ .max = KUBE_LABELS_BYTES_MAX };
    if (json_path(json, "metadata.labels", &labels) < 0) return;
    if (buf_str(&r->labels, labels) == 0) return;
    buf_clear(&r->labels);
    log_event(LOG_WARN, "node_without_price", "node=%s error=%s", r->node.meta.name,
              "no room for its labels");
}

static void set_bases(const struct kube_nodes *n, struct row *r)
{
    for (uint32_t i = 0; i < r->node.kind_count; i++) {
        const struct kube_kind *k = &r->node.kind[i];
        char slug[KUBE_LABEL_BYTES];
        const char *name = k->product[0] ? k->product : k->resource;
        bool devices = k->resource[0] != 0;
        /* Feature discovery says so of a node whose slices are not alike, though its strategy wants that. */
        bool invalid = str_ends(str_from(name), STR("-MIG-INVALID"));
        if (!name[0] || invalid || (!devices && n->config.cores <= 0)) continue;
        kube_slug_product(name, slug, BASE_BYTES);
        snprintf(r->made[i].base, NAME_BYTES, "%s%.40s", devices ? "" : "cpu-", slug);
    }
}

/* Returns the row's kind that makes an offer of this name; KUBE_KINDS_MAX: none does. */
static uint32_t kind_of(const struct row *r, const char *base, bool spot)
{
    for (uint32_t i = 0; i < r->node.kind_count; i++)
        if (base[0] && strcmp(r->made[i].base, base) == 0 && (r->node.spot != NULL) == spot)
            return i;
    return KUBE_KINDS_MAX;
}

/* Returns true if one of the first `count` nodes makes the offer. */
static bool is_made(const struct kube_nodes *n, uint32_t count, const char *base, bool spot)
{
    for (uint32_t i = 0; i < count; i++)
        if (kind_of(&n->row[i], base, spot) < KUBE_KINDS_MAX) return true;
    return false;
}

/* Logs offers that no node makes yet: a pool may name them now. */
static void tell_new(const struct kube_nodes *n, const struct row *r)
{
    bool spot = r->node.spot != NULL;
    for (uint32_t i = 0; i < r->node.kind_count; i++) {
        const char *base = r->made[i].base;
        if (!base[0] || is_made(n, n->count, base, spot)) continue;
        double price_h = price_of(r, i, 1, kube_node_share(&r->node, &r->node.kind[i], 1));
        log_event(LOG_INFO, "nodes_make_offer", "offer=%s%s node=%s priced=%s", base,
                  spot ? "-spot" : "", r->node.meta.name, price_h >= 0 ? "yes" : "no");
    }
}

/* Returns true if offers of the two differ. */
static bool differs(const struct row *a, const struct row *b)
{
    const struct kube_node *x = &a->node, *y = &b->node;
    if (x->usable != y->usable || x->takes_claims != y->takes_claims || x->spot != y->spot ||
        x->kind_count != y->kind_count)
        return true;
    for (uint32_t i = 0; i < x->kind_count; i++)
        if (x->kind[i].count != y->kind[i].count || strcmp(a->made[i].base, b->made[i].base) != 0)
            return true;
    return false;
}

bool kube_nodes_take(struct kube_nodes *n, const struct kube_event *e)
{
    if (e->type == KUBE_SYNCED) {
        bool first = !n->synced;
        n->synced = true;
        return first;
    }
    struct row *r = find(n, e->meta->name), next = { 0 };
    if (e->type == KUBE_DELETED) {
        if (r) buf_fini(&r->labels);
        if (r) *r = n->row[--n->count];
        return r != NULL;
    }
    struct err err = { 0 };
    if (kube_node_read(e->object, n->config.template, &next.node, &err) < 0) {
        log_event(LOG_WARN, "node_unreadable", "node=%s error=%s", e->meta->name, err.text);
        return false;
    }
    if (!r && n->count == KUBE_NODES_MAX) {
        if (!n->full_told) log_event(LOG_ERROR, "too_many_nodes", "nodes=%d", KUBE_NODES_MAX);
        n->full_told = true;
        return false;
    }
    keep_labels(e->object, &next);
    set_price(n, &next);
    set_bases(n, &next);
    if (n->config.tell_new) tell_new(n, &next);
    bool changed = !r || differs(r, &next);
    if (r)
        buf_fini(&r->labels);
    else
        r = &n->row[n->count++];
    *r = next;
    return changed;
}

/* ---- offers ---- */

int kube_found_name(struct str name, struct kube_found *ret)
{
    struct kube_found f = { .units = 1 };
    if (str_ends(name, STR("-spot"))) {
        f.spot = true;
        name.len -= 5;
    }
    size_t digits = 0;
    while (digits < name.len && name.data[name.len - digits - 1] >= '0' &&
           name.data[name.len - digits - 1] <= '9')
        digits++;
    size_t rest = name.len - digits;
    if (digits > 0 && rest > 2 && name.data[rest - 1] == 'x' && name.data[rest - 2] == '-') {
        uint64_t units;
        if (str_to_u64(str_of(name.data + rest, digits), &units) < 0 || units == 0 ||
            units > KUBE_DEVICES_MAX)
            return -EINVAL;
        f.units = (uint32_t)units;
        name.len = rest - 2;
    }
    char slug[NAME_BYTES];
    kube_slug(name, slug, sizeof slug);
    if (name.len == 0 || !str_eq(name, str_from(slug))) return -EINVAL;
    if (f.units > 1 && str_find(name, STR("-mig-")) != SIZE_MAX) return -EINVAL;
    if (name_copy(f.base, sizeof f.base, name) < 0) return -EINVAL;
    *ret = f;
    return 0;
}

/* Sets what all nodes of the offer share, from one of them. */
static void describe(const struct kube_nodes *n, const struct kube_kind *k, struct kube_found *f)
{
    f->known = true;
    memcpy(f->device, k->resource, sizeof f->device);
    memcpy(f->label, k->label, sizeof f->label);
    memcpy(f->value, k->value, sizeof f->value);
    snprintf(f->hardware, sizeof f->hardware, "%.40s%s%.20s", k->product[0] ? k->product : f->base,
             k->memory[0] ? ", " : "", k->memory);
    if (k->resource[0])
        snprintf(f->count, sizeof f->count, "%u", f->units);
    else
        snprintf(f->count, sizeof f->count, "%.0fm", n->config.cores * f->units * 1000);
}

/* The sum over nodes of an offer. */
struct sum {
    const struct kube_kind *first; /* of the node that was found first; others must be like it */
    double memory_mib;             /* the least */
};

static bool is_like(const struct kube_kind *a, const struct kube_kind *b)
{
    return strcmp(a->resource, b->resource) == 0 && strcmp(a->label, b->label) == 0 &&
           strcmp(a->value, b->value) == 0;
}

/* Adds a node that holds an instance at all: the least memory and the highest price of them count. */
static void add(const struct kube_nodes *n, const struct row *r, uint32_t kind,
                struct kube_found *f, struct sum *sum)
{
    const struct kube_node *node = &r->node;
    const struct kube_kind *k = &node->kind[kind];
    bool devices = k->resource[0] != 0;
    double cores = n->config.cores * f->units;
    double share =
        devices ? kube_node_share(node, k, f->units) : (node->cores > 0 ? cores / node->cores : 2);
    if (share > 1 || (sum->first && !is_like(sum->first, k)))
        return; /* it is too small, or unlike */
    if (node->usable) {
        f->nodes++;
        f->room += devices ? k->count / f->units : (uint32_t)(1 / share + 1e-9);
    }
    double price_h = price_of(r, kind, f->units, share);
    f->price_known = f->price_known && price_h >= 0;
    f->price_h = fmax(f->price_h, price_h);
    double mib = devices ? 0 : node->memory_bytes * share * MEMORY_SHARE / MIB;
    sum->memory_mib = sum->memory_mib > 0 ? fmin(sum->memory_mib, mib) : mib;
    if (sum->first) return;
    sum->first = k;
    describe(n, k, f);
    f->spot_label = node->spot;
}

void kube_nodes_fill(const struct kube_nodes *n, struct kube_found *f)
{
    struct sum sum = { 0 };
    double price_h = f->price_h;
    bool price_known = f->price_known;
    f->nodes = f->room = 0;
    f->price_h = 0;
    f->price_known = true;
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t kind = kind_of(&n->row[i], f->base, f->spot);
        if (kind < KUBE_KINDS_MAX) add(n, &n->row[i], kind, f, &sum);
    }
    if (!sum.first) { /* what they cost and were, while they were there */
        f->price_h = price_h;
        f->price_known = price_known;
        return;
    }
    if (sum.memory_mib >= 1) snprintf(f->memory, sizeof f->memory, "%.0fMi", sum.memory_mib);
}

void kube_nodes_count(const struct kube_nodes *n, struct kube_found *f)
{
    const struct kube_pair label = { str_from(f->label), str_from(f->value) };
    for (uint32_t i = 0; i < n->count; i++) {
        const struct row *r = &n->row[i];
        if ((r->node.spot != NULL) != f->spot || !kube_labels_have(buf_view(&r->labels), &label))
            continue;
        for (uint32_t k = 0; k < r->node.kind_count; k++) {
            const struct kube_kind *kind = &r->node.kind[k];
            if (strcmp(kind->resource, f->device) != 0 || kind->count < f->units) continue;
            double price_h = price_of(r, k, f->units, kube_node_share(&r->node, kind, f->units));
            f->price_known = f->price_known || price_h >= 0;
            f->price_h = fmax(f->price_h, price_h);
            if (!r->node.usable) continue;
            f->nodes++;
            f->room += kind->count / f->units;
        }
    }
}

bool kube_names_put(char *ret, size_t bytes, const char *base, bool spot)
{
    char name[NAME_BYTES + 8];
    snprintf(name, sizeof name, "%s%s", base, spot ? "-spot" : "");
    struct str rest = str_from(ret);
    while (rest.len > 0) {
        struct str one = str_cut(&rest, ',');
        if (str_eq(one, str_from(name))) return true;
        if (rest.len > 0) rest = str_of(rest.data + 1, rest.len - 1); /* the blank */
    }
    size_t used = strlen(ret);
    int len = snprintf(ret + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
    if (len >= 0 && (size_t)len < bytes - used) return true;
    ret[used] = 0;
    return false;
}

void kube_nodes_names(const struct kube_nodes *n, char *ret, size_t bytes)
{
    for (uint32_t i = 0; i < n->count; i++) {
        const struct row *r = &n->row[i];
        for (uint32_t k = 0; k < r->node.kind_count; k++)
            if (r->made[k].base[0] &&
                !kube_names_put(ret, bytes, r->made[k].base, r->node.spot != NULL))
                return;
    }
}
