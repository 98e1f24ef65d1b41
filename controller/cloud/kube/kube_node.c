/* kube_node.c - finds in a node's object its devices, their labels and whether our Pods may run there. */
#include "controller/cloud/kube/kube_node.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MIG_MARK "-MIG-"
#define GPU_PRODUCT KUBE_GPU ".product"
#define LABELS_MAX 3 /* that may name a product, or its memory; the first that a node has counts */

struct device_row {
    const char *resource;
    const char *product[LABELS_MAX], *memory[LABELS_MAX];
};

static const struct device_row devices[] = {
    { KUBE_GPU,
      { GPU_PRODUCT, "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name" },
      { "nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory" } },
    { "amd.com/gpu",
      { "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name" },
      { "amd.com/gpu.vram", "beta.amd.com/gpu.vram" } },
    { "gpu.intel.com/xe", { "gpu.intel.com/product" }, { "gpu.intel.com/memory.max" } },
    { "gpu.intel.com/i915", { "gpu.intel.com/product" }, { "gpu.intel.com/memory.max" } },
    { "habana.ai/gaudi", { "node.kubernetes.io/instance-type" }, { NULL } },
};
static const struct device_row machine = { NULL,
                                           { "node.kubernetes.io/instance-type",
                                             "beta.kubernetes.io/instance-type",
                                             "kubernetes.io/arch" },
                                           { NULL } };

#define PAIR(n, v)            \
    {                         \
        { n, sizeof(n) - 1 }, \
        {                     \
            v, sizeof(v) - 1  \
        }                     \
    }
const struct kube_pair kube_spot_labels[] = {
    PAIR("karpenter.sh/capacity-type", "spot"),
    PAIR("eks.amazonaws.com/capacityType", "SPOT"),
    PAIR("cloud.google.com/gke-spot", "true"),
    PAIR("cloud.google.com/gke-preemptible", "true"),
    PAIR("kubernetes.azure.com/scalesetpriority", "spot"),
    PAIR("node.kubernetes.io/lifecycle", "spot"),
};
const uint32_t kube_spot_label_count = COUNT_OF(kube_spot_labels);

#define TAINT(n) PAIR(n, "")
const struct kube_pair kube_device_taints[] = {
    TAINT(KUBE_GPU),           TAINT("amd.com/gpu"),
    TAINT("gpu.intel.com/xe"), TAINT("gpu.intel.com/i915"),
    TAINT("habana.ai/gaudi"),
};
const uint32_t kube_device_taint_count = COUNT_OF(kube_device_taints);

/* ---- quantities and names ---- */

int kube_quantity(struct str text, double *ret)
{
    static const struct {
        struct str suffix;
        double factor;
    } units[] = {
        { STR("Ki"), 1024.0 },
        { STR("Mi"), 1048576.0 },
        { STR("Gi"), 1073741824.0 },
        { STR("Ti"), 1099511627776.0 },
        { STR("Pi"), 1125899906842624.0 },
        { STR("n"), 1e-9 },
        { STR("u"), 1e-6 },
        { STR("m"), 1e-3 },
        { STR("k"), 1e3 },
        { STR("M"), 1e6 },
        { STR("G"), 1e9 },
        { STR("T"), 1e12 },
        { STR("P"), 1e15 },
    };
    double factor = 1, value;
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        if (!str_ends(text, units[i].suffix)) continue;
        factor = units[i].factor;
        text.len -= units[i].suffix.len;
        break;
    }
    int rc = str_to_f64(text, &value);
    if (rc < 0 || !(value >= 0)) return -EINVAL;
    *ret = value * factor;
    return 0;
}

void kube_slug(struct str text, char *ret, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len && n + 1 < bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (isalnum(c) && c < 128)
            ret[n++] = (char)tolower(c);
        else if (n > 0 && ret[n - 1] != '-')
            ret[n++] = '-';
    }
    while (n > 0 && ret[n - 1] == '-')
        n--;
    ret[n] = 0;
}

void kube_slug_product(const char *product, char *ret, size_t bytes)
{
    char profile[NAME_BYTES];
    struct str all = str_from(product);
    size_t at = str_find(all, STR(MIG_MARK));
    if (at == SIZE_MAX) {
        kube_slug(all, ret, bytes);
        return;
    }
    kube_slug(str_of(all.data + at, all.len - at), profile, min_size(sizeof profile, bytes - 2));
    size_t room = bytes - strlen(profile) - 1; /* and a '-' */
    kube_slug(str_of(all.data, at), ret, room);
    size_t used = strlen(ret);
    snprintf(ret + used, bytes - used, "%s%s", used > 0 ? "-" : "", profile);
}

/* ---- resources ---- */

struct reader {
    struct kube_node *node;
    const struct device_row *row;  /* of the device that was found, and its place in the table */
    uint32_t count;                /* of that one */
    size_t product_at, memory_at;  /* in the row's labels; LABELS_MAX: none was found yet */
    char gpu[KUBE_LABEL_BYTES];    /* what whole GPUs are, whose slices are sold */
    struct str tolerations;        /* of the template; empty: none */
    struct str key, value, effect; /* of the taint that is looked at */
    bool tolerated;
};

/* Returns the kind of a resource, or of a label ".member" of it; NULL: there is none. */
static struct kube_kind *find_slice(struct kube_node *n, struct str name)
{
    for (uint32_t i = 0; i < n->kind_count; i++)
        if (str_eq(name, str_from(n->kind[i].resource))) return &n->kind[i];
    return NULL;
}

static uint32_t whole(double amount)
{
    return amount < 1e6 ? (uint32_t)amount : 1000000;
}

static void add_slice(struct kube_node *n, struct str name, double amount)
{
    uint64_t gb;
    if (n->kind_count == KUBE_KINDS_MAX - 1 || name.len >= KUBE_RESOURCE_BYTES) return;
    struct kube_kind *k = &n->kind[n->kind_count++];
    *k = (struct kube_kind){ .count = whole(amount) };
    snprintf(k->resource, sizeof k->resource, STR_FMT, STR_ARG(name));
    /* 1g.10gb, 1c.3g.40gb, 1g.10gb.me: the memory is what "gb" ends. */
    size_t end = str_find(name, STR("gb")), digits = 0;
    while (end != SIZE_MAX && digits < end && isdigit((unsigned char)name.data[end - digits - 1]))
        digits++;
    if (digits > 0 && str_to_u64(str_of(name.data + end - digits, digits), &gb) == 0)
        k->weight = (double)gb;
}

static int read_resource(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    double amount;
    /* A quantity is a string; a number is read all the same. */
    struct str raw = value;
    if (json_path_text(value, "", &text) == 0) raw = buf_view(&text);
    if (kube_quantity(raw, &amount) < 0) return 0;
    if (str_eq(name, STR("cpu"))) r->node->cores = amount;
    if (str_eq(name, STR("memory"))) r->node->memory_bytes = amount;
    if (amount >= 1 && str_starts(name, STR(KUBE_MIG))) add_slice(r->node, name, amount);
    for (size_t i = 0; amount >= 1 && i < COUNT_OF(devices); i++) {
        bool better = !r->row->resource || &devices[i] < r->row;
        if (!str_eq(name, str_from(devices[i].resource)) || !better) continue;
        r->row = &devices[i];
        r->count = whole(amount);
    }
    return 0;
}

/* Adds the device that was found, or the machine where there is none: also no slice. */
static void add_whole(struct reader *r)
{
    struct kube_node *n = r->node;
    if (!r->row->resource && n->kind_count > 0) return;
    struct kube_kind *k = &n->kind[n->kind_count++]; /* add_slice leaves room */
    *k = (struct kube_kind){ .count = r->count };
    if (r->row->resource) snprintf(k->resource, sizeof k->resource, "%s", r->row->resource);
}

/* ---- labels ---- */

static bool take_text(struct str value, char ret[KUBE_LABEL_BYTES])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0 || text.len == 0 || text.len >= KUBE_LABEL_BYTES)
        return false;
    snprintf(ret, KUBE_LABEL_BYTES, "%.*s", (int)text.len, text.data);
    return true;
}

/* Takes the label if it is an earlier one of the list than the one that was found. */
static bool take_label(const char *const *list, size_t *at, struct str name, struct str value,
                       char ret[KUBE_LABEL_BYTES])
{
    for (size_t i = 0; i < *at && list[i]; i++) {
        if (!str_eq(name, str_from(list[i]))) continue;
        if (!take_text(value, ret)) return false;
        *at = i;
        return true;
    }
    return false;
}

/* Reads what the labels nvidia.com/mig-PROFILE.product and .memory say of a slice. */
static void read_slice_label(struct kube_node *n, struct str name, struct str value)
{
    struct str resource = name;
    if (str_ends(name, STR(".product"))) {
        resource.len -= sizeof ".product" - 1;
        struct kube_kind *k = find_slice(n, resource);
        if (!k || name.len >= sizeof k->label || !take_text(value, k->value)) return;
        snprintf(k->label, sizeof k->label, STR_FMT, STR_ARG(name));
    } else if (str_ends(name, STR(".memory"))) {
        resource.len -= sizeof ".memory" - 1;
        struct kube_kind *k = find_slice(n, resource);
        if (k) (void)take_text(value, k->memory);
    }
}

static int read_label(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    struct kube_node *n = r->node;
    struct kube_kind *k = &n->kind[n->kind_count - 1]; /* see add_whole; a slice keeps its own */
    if (strcmp(k->resource, r->row->resource ? r->row->resource : "") == 0) {
        if (take_label(r->row->product, &r->product_at, name, value, k->value))
            snprintf(k->label, sizeof k->label, "%s", r->row->product[r->product_at]);
        (void)take_label(r->row->memory, &r->memory_at, name, value, k->memory);
    }
    if (str_eq(name, STR(GPU_PRODUCT))) (void)take_text(value, r->gpu);
    if (str_starts(name, STR(KUBE_MIG))) read_slice_label(n, name, value);
    for (uint32_t i = 0; !n->spot && i < kube_spot_label_count; i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (!str_eq(name, kube_spot_labels[i].name) || json_path_text(value, "", &text) < 0)
            continue;
        if (str_eq(buf_view(&text), kube_spot_labels[i].value)) n->spot = &kube_spot_labels[i];
    }
    return 0;
}

/* Names the kinds. A slice without a label of its own is found by that of its GPU. */
static void name_kinds(struct reader *r)
{
    struct kube_node *n = r->node;
    for (uint32_t i = 0; i < n->kind_count; i++) {
        struct kube_kind *k = &n->kind[i];
        double mib;
        memcpy(k->product, k->value, sizeof k->value); /* and there is more room */
        if (str_starts(str_from(k->resource), STR(KUBE_MIG))) {
            if (k->label[0] || !r->gpu[0]) continue;
            snprintf(k->label, sizeof k->label, GPU_PRODUCT);
            memcpy(k->value, r->gpu, sizeof k->value);
            char profile[KUBE_LABEL_BYTES];
            snprintf(profile, sizeof profile, "%s", k->resource + sizeof KUBE_MIG - 1);
            snprintf(k->product, sizeof k->product, "%.60s" MIG_MARK "%.60s", r->gpu, profile);
        } else if (kube_quantity(str_from(k->memory), &mib) == 0) {
            k->weight =
                mib / 1024; /* as the label of NVIDIA counts, whose GPUs alone have slices */
        }
    }
}

double kube_node_share(const struct kube_node *n, const struct kube_kind *k, uint32_t units)
{
    double all = 0;
    if (units > k->count) return 2;
    if (n->kind_count == 1) return (double)units / k->count;
    for (uint32_t i = 0; i < n->kind_count; i++) {
        if (n->kind[i].weight <= 0) return -1;
        all += n->kind[i].weight * n->kind[i].count;
    }
    return k->weight * units / all;
}

/* ---- may our Pods run there? ---- */

/* Returns true if the member is absent, or is this text. */
static bool absent_or(struct str json, const char *member, struct str want)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, member, &text) < 0) return true;
    return text.len == 0 || str_eq(buf_view(&text), want);
}

static int look_at_toleration(void *ctx, struct str item)
{
    struct reader *r = ctx;
    CLEANUP(buf_fini) struct buf how = { 0 }, value = { 0 };
    (void)json_path_text(item, "operator", &how);
    (void)json_path_text(item, "value", &value);
    bool exists = str_eq(buf_view(&how), STR("Exists"));
    if (!absent_or(item, "key", r->key) || !absent_or(item, "effect", r->effect)) return 0;
    r->tolerated = r->tolerated || exists || str_eq(buf_view(&value), r->value);
    return 0;
}

/* A taint with the device's name is tolerated by each Pod that asks for the device, that of GPUs by each that asks
 * for a slice of one, one of a spot node by each Pod of a spot offer (kube_pod.c). */
static bool tolerates(const struct kube_kind *k, struct str taint)
{
    struct str resource = str_from(k->resource);
    if (resource.len == 0) return false;
    return str_eq(taint, resource) ||
           (str_starts(resource, STR(KUBE_MIG)) && str_eq(taint, STR(KUBE_GPU)));
}

static int look_at_taint(void *ctx, struct str taint)
{
    struct reader *r = ctx;
    CLEANUP(buf_fini) struct buf key = { 0 }, value = { 0 }, effect = { 0 };
    if (json_path_text(taint, "key", &key) < 0) return 0;
    (void)json_path_text(taint, "value", &value);
    (void)json_path_text(taint, "effect", &effect);
    if (str_eq(buf_view(&effect), STR("PreferNoSchedule"))) return 0;
    r->key = buf_view(&key);
    r->value = buf_view(&value);
    r->effect = buf_view(&effect);
    r->tolerated = false;
    for (uint32_t i = 0; i < r->node->kind_count; i++)
        r->tolerated = r->tolerated || tolerates(&r->node->kind[i], r->key);
    for (uint32_t i = 0; r->node->spot && i < kube_spot_label_count; i++)
        r->tolerated = r->tolerated || str_eq(r->key, kube_spot_labels[i].name);
    if (!r->tolerated && r->tolerations.len > 0)
        (void)json_path_each(r->tolerations, "", look_at_toleration, r);
    if (r->tolerated) return 0;
    r->node->usable = false;
    for (uint32_t i = 0; i < kube_device_taint_count; i++)
        if (str_eq(r->key, kube_device_taints[i].name)) return 0;
    r->node->takes_claims = false;
    return 0;
}

static int look_at_condition(void *ctx, struct str item)
{
    struct kube_node *n = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 }, status = { 0 };
    if (json_path_text(item, "type", &type) < 0 || !str_eq(buf_view(&type), STR("Ready"))) return 0;
    (void)json_path_text(item, "status", &status);
    n->usable = str_eq(buf_view(&status), STR("True"));
    return 0;
}

const char *kube_product_resource(struct str label)
{
    for (size_t i = 0; i < COUNT_OF(devices); i++)
        for (size_t k = 0; k < LABELS_MAX && devices[i].product[k]; k++) {
            bool shared = strcmp(devices[i].product[k], machine.product[0]) == 0;
            if (!shared && str_eq(label, str_from(devices[i].product[k])))
                return devices[i].resource;
        }
    return NULL;
}

bool kube_taints_are_tolerated(struct str json, const char *path, struct str template)
{
    /* A spot offer tolerates the labels of spot nodes as taints, and NodePools are of such nodes or not. */
    struct kube_node n = { .usable = true, .takes_claims = true, .spot = &kube_spot_labels[0] };
    struct reader r = { .node = &n, .row = &machine };
    if (template.len > 0) (void)json_path(template, "spec.tolerations", &r.tolerations);
    (void)json_path_each(json, path, look_at_taint, &r);
    return n.takes_claims;
}

int kube_node_read(struct str json, struct str template, struct kube_node *ret, struct err *err)
{
    struct kube_node n = { 0 };
    struct reader r = {
        .node = &n, .row = &machine, .product_at = LABELS_MAX, .memory_at = LABELS_MAX
    };
    CLEANUP(buf_fini) struct buf created = { 0 };
    bool cordoned = false;
    int rc = kube_meta_read(json, &n.meta, err);
    if (rc < 0) return rc;
    if (!n.meta.name[0]) return err_set(err, -EINVAL, "a node without a name");
    if (json_path_text(json, "metadata.creationTimestamp", &created) == 0)
        (void)date_parse(buf_view(&created), &n.created_us);
    (void)json_path_each_member(json, "status.allocatable", read_resource, &r);
    add_whole(&r);
    (void)json_path_each_member(json, "metadata.labels", read_label, &r);
    name_kinds(&r);
    (void)json_path_each(json, "status.conditions", look_at_condition, &n);
    (void)json_path_bool(json, "spec.unschedulable", &cordoned);
    if (cordoned || n.meta.deleting) n.usable = false;
    n.takes_claims = n.usable;
    if (template.len > 0) (void)json_path(template, "spec.tolerations", &r.tolerations);
    (void)json_path_each(json, "spec.taints", look_at_taint, &r);
    *ret = n;
    return 0;
}
