/* t_kube_nodepools.c - tests which offers Karpenter's NodePools may add nodes for, at what price, and when not. */
#include "base/core/bits.h"
#include "controller/cloud/kube/kube_nodepools.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

struct scene {
    struct kube_nodes *nodes;
    struct kube_nodepools *pools;
};

static const struct kube_pair l4 = { { "nvidia.com/gpu.product", 22 }, { "NVIDIA-L4", 9 } };
static const struct kube_pair g6 = { { "node.kubernetes.io/instance-type", 32 },
                                     { "g6.48xlarge", 11 } };
static const struct kube_price rows[] = {
    { &l4, 1, { "nvidia.com/gpu", 14 }, 2, 0.5 },
    { &g6, 1, { 0 }, 16, 4 },
};
static const struct kube_prices prices = { rows, 2, 0 };

static struct scene scene_open(void)
{
    struct scene s = { .nodes = kube_nodes_new(&(struct kube_nodes_config){ .prices = &prices }) };
    s.pools = kube_nodepools_new(
        s.nodes, STR("{\"spec\":{\"tolerations\":[{\"key\":\"team\",\"operator\":\"Exists\"}]}}"));
    return s;
}

static void scene_close(struct scene *s)
{
    kube_nodepools_free(s->pools);
    kube_nodes_free(s->nodes);
}

/* Tells a NodePool: requirements, further members of the template and of the spec, and its status. */
static void tell(struct scene *s, enum kube_event_type type, const char *requirements,
                 const char *template, const char *spec, const char *status)
{
    char json[4096];
    struct kube_meta meta;
    snprintf(json, sizeof json,
             "{\"metadata\":{\"name\":\"gpu\",\"uid\":\"u\",\"resourceVersion\":\"1\"},\"spec\":{"
             "\"template\":{\"spec\":{\"requirements\":[%s]%s}}%s},\"status\":{%s}}",
             requirements, template, spec, status);
    assert_int_equal(kube_meta_read(str_from(json), &meta, NULL), 0);
    assert_true(kube_nodepools_take(s->pools, &(struct kube_event){ type, &meta, str_from(json) }));
}

static struct kube_found found(struct scene *s, const char *name)
{
    struct kube_found f;
    assert_int_equal(kube_found_name(str_from(name), &f), 0);
    kube_nodes_fill(s->nodes, &f);
    kube_nodepools_fill(s->pools, &f);
    return f;
}

static bool is_near(double a, double b)
{
    return a > b - 1e-6 && a < b + 1e-6;
}

#define IN(key, values) "{\"key\":\"" key "\",\"operator\":\"In\",\"values\":[" values "]}"
#define NOT_IN(key, values) "{\"key\":\"" key "\",\"operator\":\"NotIn\",\"values\":[" values "]}"
#define PRODUCTS IN("nvidia.com/gpu.product", "\"NVIDIA-L4\",\"NVIDIA-L40S\"")
#define BOTH IN("karpenter.sh/capacity-type", "\"spot\",\"on-demand\"")
#define L4_AWS                                          \
    IN("karpenter.k8s.aws/instance-gpu-name", "\"l4\"") \
    "," IN("node.kubernetes.io/instance-type",          \
           "\"g6.48xlarge\"") "," IN("karpenter.k8s.aws/instance-gpu-count", "\"8\"")

/* A cluster without a node sells what a NodePool may add, with its label and price, on demand and spot. */
static void products_are_offers_without_a_node(void **state)
{
    (void)state;
    struct scene s = scene_open();
    tell(&s, KUBE_ADDED, PRODUCTS "," BOTH, "", "", "");
    struct kube_found f = found(&s, "nvidia-l4-x2");
    assert_true(f.known && f.grows && f.price_known && is_near(f.price_h, 4));
    assert_int_equal(f.nodes, 0);
    assert_string_equal(f.device, "nvidia.com/gpu");
    assert_string_equal(f.label, "nvidia.com/gpu.product");
    assert_string_equal(f.value, "NVIDIA-L4");
    assert_string_equal(f.hardware, "NVIDIA-L4, NodePool gpu");
    f = found(&s, "nvidia-l4-spot");
    assert_true(f.grows && is_near(f.price_h, 0.5) && f.spot_label);
    f = found(&s, "nvidia-l40s");
    assert_true(f.known && !f.price_known); /* no row: no price */
    assert_false(found(&s, "nvidia-h100").known);
    char names[200] = "";
    kube_nodepools_names(s.pools, names, sizeof names);
    assert_string_equal(names, "nvidia-l4, nvidia-l4-spot, nvidia-l40s, nvidia-l40s-spot");
    tell(&s, KUBE_DELETED, "", "", "", "");
    assert_false(found(&s, "nvidia-l4").known);
    scene_close(&s);
}

static void capacity_types_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *requirement;
        bool spot, on_demand;
    } types[] = {
        { "", false, true }, /* Karpenter takes the dearer one, if nobody says */
        { "," IN("karpenter.sh/capacity-type", "\"spot\""), true, false },
        { "," IN("karpenter.sh/capacity-type", "\"on-demand\",\"reserved\""), false, true },
        { "," NOT_IN("karpenter.sh/capacity-type", "\"spot\""), false, true },
        { "," NOT_IN("karpenter.sh/capacity-type", "\"on-demand\""), true, false },
    };
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct scene s = scene_open();
        char text[512];
        snprintf(text, sizeof text, PRODUCTS "%s", types[i].requirement);
        tell(&s, KUBE_ADDED, text, "", "", "");
        if (found(&s, "nvidia-l4").known != types[i].on_demand ||
            found(&s, "nvidia-l4-spot").known != types[i].spot)
            fail_msg("row %zu", i);
        scene_close(&s);
    }
}

/* What stops a NodePool is told; the offer is known all the same. */
static void limits_and_others_stop_it(void **state)
{
    (void)state;
    static const struct {
        const char *template, *spec, *status, *full; /* NULL: it grows */
    } stops[] = {
        { "", ",\"limits\":{\"nvidia.com/gpu\":\"16\"}", "\"resources\":{\"nvidia.com/gpu\":\"8\"}",
          NULL },
        { "", ",\"limits\":{\"nvidia.com/gpu\":\"16\"}",
          "\"resources\":{\"nvidia.com/gpu\":\"16\"}",
          "NodePool gpu is at its limit, nvidia.com/gpu=16 of 16" },
        { "", ",\"limits\":{\"nvidia.com/gpu\":1}", "",
          "NodePool gpu is at its limit, nvidia.com/gpu=0 of 1" },
        { "", ",\"limits\":{\"cpu\":\"1000\"}", "\"resources\":{\"cpu\":\"999500m\"}", NULL },
        { "", ",\"limits\":{\"cpu\":\"1000\"}", "\"resources\":{\"cpu\":\"1000\"}",
          "NodePool gpu is at its limit, cpu=1000 of 1000" },
        { "", "", "\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\"}]",
          "NodePool gpu is not ready" },
        { "", ",\"replicas\":2", "", "NodePool gpu has a fixed number of nodes" },
        { ",\"taints\":[{\"key\":\"other\",\"effect\":\"NoSchedule\"}]", "", "",
          "NodePool gpu has a taint that the Pods do not tolerate" },
        { ",\"taints\":[{\"key\":\"team\",\"effect\":\"NoSchedule\"},{\"key\":\"nvidia.com/gpu\","
          "\"value\":\"true\",\"effect\":\"NoSchedule\"}]",
          "", "", NULL },
        { ",\"startupTaints\":[{\"key\":\"other\",\"effect\":\"NoSchedule\"}]", "", "", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(stops); i++) {
        struct scene s = scene_open();
        tell(&s, KUBE_ADDED, PRODUCTS, stops[i].template, stops[i].spec, stops[i].status);
        struct kube_found f = found(&s, "nvidia-l4-x2");
        assert_true(f.known);
        if (f.grows != (stops[i].full == NULL)) fail_msg("row %zu: %s", i, f.full);
        if (stops[i].full) assert_string_equal(f.full, stops[i].full);
        scene_close(&s);
    }
}

/* A cloud's own label is chosen by; nodes that have it count, though their offer has another name. */
static void a_clouds_label_counts_nodes(void **state)
{
    (void)state;
    struct scene s = scene_open();
    static const char node[] =
        "{\"metadata\":{\"name\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"1\",\"labels\":{"
        "\"nvidia.com/gpu.product\":\"NVIDIA-L4\",\"karpenter.k8s.aws/instance-gpu-name\":\"l4\"}},"
        "\"spec\":{},\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\"},\"conditions\":[{"
        "\"type\":\"Ready\",\"status\":\"True\"}]}}";
    struct kube_meta meta;
    tell(&s, KUBE_ADDED, L4_AWS, "", "", "");
    struct kube_found f = found(&s, "l4-x4");
    assert_true(f.known && f.price_known && is_near(f.price_h, 8)); /* half of the node */
    assert_string_equal(f.label, "karpenter.k8s.aws/instance-gpu-name");
    assert_int_equal(kube_meta_read(str_from(node), &meta, NULL), 0);
    (void)kube_nodes_take(s.nodes, &(struct kube_event){ KUBE_ADDED, &meta, str_from(node) });
    f = found(&s, "l4-x4");
    assert_int_equal(f.nodes, 1);
    assert_int_equal(f.room, 2);
    assert_int_equal(found(&s, "nvidia-l4").room, 8);
    assert_false(found(&s, "nvidia-l4").grows); /* Karpenter does not know that label */
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_offers_without_a_node),
        cmocka_unit_test(capacity_types_are_read),
        cmocka_unit_test(limits_and_others_stop_it),
        cmocka_unit_test(a_clouds_label_counts_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
