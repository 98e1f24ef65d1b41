/* kube_node.c - finds in a node's object its devices, their labels and whether our Pods may run there. */
#include "controller/cloud/kube/kube_node.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LABELS_MAX 3 /* that may name a product, or its memory; the first that a node has counts */

struct device_row {
    const char *resource;
    const char *product[LABELS_MAX], *memory[LABELS_MAX];
};

static const struct device_row devices[] = {
    { "nvidia.com/gpu",
      { "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator",
        "karpenter.k8s.aws/instance-gpu-name" },
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

/* ---- labels and resources ---- */

struct reader {
    struct kube_node *node;
    const struct device_row *row;  /* of the device that was found, and its place in the table */
    size_t product_at, memory_at;  /* in the row's labels; LABELS_MAX: none was found yet */
    struct str tolerations;        /* of the template; empty: none */
    struct str key, value, effect; /* of the taint that is looked at */
    bool tolerated;
};

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
    for (size_t i = 0; amount >= 1 && i < COUNT_OF(devices); i++) {
        bool better = !r->row->resource || &devices[i] < r->row;
        if (!str_eq(name, str_from(devices[i].resource)) || !better) continue;
        r->row = &devices[i];
        r->node->devices = amount < 1e6 ? (uint32_t)amount : 1000000;
    }
    return 0;
}

/* Copies the label if it is an earlier one of the list than the one that was found. */
static void take_label(const char *const *list, size_t *at, struct str name, struct str value,
                       char ret[KUBE_LABEL_BYTES])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    for (size_t i = 0; i < *at && list[i]; i++) {
        if (!str_eq(name, str_from(list[i])) || json_path_text(value, "", &text) < 0) continue;
        if (text.len == 0 || text.len >= KUBE_LABEL_BYTES) return;
        snprintf(ret, KUBE_LABEL_BYTES, "%.*s", (int)text.len, text.data);
        *at = i;
        return;
    }
}

static int read_label(void *ctx, struct str name, struct str value)
{
    struct reader *r = ctx;
    struct kube_node *n = r->node;
    take_label(r->row->product, &r->product_at, name, value, n->product);
    take_label(r->row->memory, &r->memory_at, name, value, n->memory);
    if (r->product_at < LABELS_MAX) n->product_label = r->row->product[r->product_at];
    for (uint32_t i = 0; !n->spot && i < kube_spot_label_count; i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (!str_eq(name, kube_spot_labels[i].name) || json_path_text(value, "", &text) < 0)
            continue;
        if (str_eq(buf_view(&text), kube_spot_labels[i].value)) n->spot = &kube_spot_labels[i];
    }
    return 0;
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

/* A taint with the device's name is tolerated by each Pod that asks for the device, one of a spot node by each
 * Pod of a spot offer (kube_pod.c). */
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
    r->tolerated = r->row->resource && str_eq(r->key, str_from(r->row->resource));
    for (uint32_t i = 0; r->node->spot && i < kube_spot_label_count; i++)
        r->tolerated = r->tolerated || str_eq(r->key, kube_spot_labels[i].name);
    if (!r->tolerated && r->tolerations.len > 0)
        (void)json_path_each(r->tolerations, "", look_at_toleration, r);
    if (!r->tolerated) r->node->usable = false;
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
        (void)kube_time_parse(buf_view(&created), &n.created_us);
    (void)json_path_each_member(json, "status.allocatable", read_resource, &r);
    n.device = r.row->resource;
    (void)json_path_each_member(json, "metadata.labels", read_label, &r);
    (void)json_path_each(json, "status.conditions", look_at_condition, &n);
    (void)json_path_bool(json, "spec.unschedulable", &cordoned);
    if (cordoned || n.meta.deleting) n.usable = false;
    if (template.len > 0) (void)json_path(template, "spec.tolerations", &r.tolerations);
    (void)json_path_each(json, "spec.taints", look_at_taint, &r);
    *ret = n;
    return 0;
}
