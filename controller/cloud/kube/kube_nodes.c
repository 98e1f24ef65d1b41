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
    struct buf labels;     /* as JSON, for prices */
    char base[NAME_BYTES]; /* empty: it makes no offer */
    bool price_known;
    double price_h; /* of the node */
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

bool kube_nodes_synced(const struct kube_nodes *n)
{
    return n->synced;
}

/* ---- events ---- */

static void set_price(const struct kube_nodes *n, struct row *r)
{
    double price_h =
        kube_prices_of_node(n->config.prices, buf_view(&r->labels), r->node.spot != NULL);
    r->price_known = price_h >= 0;
    r->price_h = fmax(price_h, 0);
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
    log_event(LOG_WARN, "node_without_price", "node=%s error=\"no room for its labels\"",
              r->node.meta.name);
}

static void set_base(const struct kube_nodes *n, struct row *r)
{
    const struct kube_node *node = &r->node;
    char slug[KUBE_LABEL_BYTES];
    const char *name = node->product[0] ? node->product : node->device;
    if (!name || (!node->device && n->config.cores <= 0)) return;
    kube_slug(str_from(name), slug, BASE_BYTES);
    snprintf(r->base, sizeof r->base, "%s%.40s", node->device ? "" : "cpu-", slug);
}

static bool is_alike(const struct row *a, const struct row *b)
{
    return strcmp(a->base, b->base) == 0 && (a->node.spot != NULL) == (b->node.spot != NULL);
}

/* Logs an offer that no node makes yet: a pool may name it now. */
static void tell_new(const struct kube_nodes *n, const struct row *r)
{
    if (!r->base[0]) return;
    for (uint32_t i = 0; i < n->count; i++)
        if (is_alike(&n->row[i], r)) return;
    log_event(LOG_INFO, "nodes_make_offer", "offer=%s%s node=%s priced=%s", r->base,
              r->node.spot ? "-spot" : "", r->node.meta.name, r->price_known ? "yes" : "no");
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
    set_base(n, &next);
    if (n->config.tell_new) tell_new(n, &next);
    bool changed = !r || r->node.usable != next.node.usable || strcmp(r->base, next.base) != 0 ||
                   r->node.spot != next.node.spot || r->node.devices != next.node.devices;
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
    if (name_copy(f.base, sizeof f.base, name) < 0) return -EINVAL;
    *ret = f;
    return 0;
}

/* Sets what all nodes of the offer share, from one of them. */
static void describe(const struct kube_nodes *n, const struct row *r, struct kube_found *f)
{
    const struct kube_node *node = &r->node;
    f->known = true;
    f->device = node->device;
    f->product_label = node->product_label;
    f->spot_label = node->spot;
    memcpy(f->product, node->product, sizeof f->product);
    snprintf(f->hardware, sizeof f->hardware, "%.40s%s%.20s",
             node->product[0] ? node->product : f->base, node->memory[0] ? ", " : "", node->memory);
    if (node->device)
        snprintf(f->count, sizeof f->count, "%u", f->units);
    else
        snprintf(f->count, sizeof f->count, "%.0fm", n->config.cores * f->units * 1000);
}

/* Adds a node that holds an instance at all: the least memory and the highest price of them count. */
static bool add(const struct kube_nodes *n, const struct row *r, struct kube_found *f,
                double *memory_mib)
{
    const struct kube_node *node = &r->node;
    double cores = n->config.cores * f->units;
    double share = node->device      ? (double)f->units / node->devices
                   : node->cores > 0 ? cores / node->cores
                                     : 2;
    if (share > 1) return false; /* too small for an instance */
    if (node->usable) {
        f->nodes++;
        f->room += (uint32_t)(1 / share + 1e-9);
    }
    f->price_known = f->price_known && r->price_known;
    f->price_h = fmax(f->price_h, r->price_h * share);
    double mib = node->device ? 0 : node->memory_bytes * share * MEMORY_SHARE / MIB;
    *memory_mib = *memory_mib > 0 ? fmin(*memory_mib, mib) : mib;
    return true;
}

void kube_nodes_fill(const struct kube_nodes *n, struct kube_found *f)
{
    double memory_mib = 0, price_h = f->price_h;
    bool price_known = f->price_known, any = false;
    f->nodes = f->room = 0;
    f->price_h = 0;
    f->price_known = true;
    for (uint32_t i = 0; i < n->count; i++) {
        const struct row *r = &n->row[i];
        if ((r->node.spot != NULL) != f->spot || strcmp(r->base, f->base) != 0) continue;
        if (!add(n, r, f, &memory_mib)) continue;
        if (!any) describe(n, r, f);
        any = true;
    }
    if (!any) { /* what they cost and were, while they were there */
        f->price_h = price_h;
        f->price_known = price_known;
        return;
    }
    if (memory_mib >= 1) snprintf(f->memory, sizeof f->memory, "%.0fMi", memory_mib);
}

void kube_nodes_names(const struct kube_nodes *n, char *ret, size_t bytes)
{
    size_t used = 0;
    ret[0] = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        const struct row *r = &n->row[i];
        bool told = !r->base[0];
        for (uint32_t k = 0; k < i && !told; k++)
            told = is_alike(&n->row[k], r);
        if (told) continue;
        int len = snprintf(ret + used, bytes - used, "%s%s%s", used > 0 ? ", " : "", r->base,
                           r->node.spot ? "-spot" : "");
        if (len < 0 || (size_t)len >= bytes - used) {
            ret[used] = 0; /* the list ends before a name that does not fit */
            return;
        }
        used += (size_t)len;
    }
    if (used == 0) snprintf(ret, bytes, "none");
}
