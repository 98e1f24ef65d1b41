/* t_kube_nodes.c - tests what nodes of several makers and clouds make of offers, and how long Pods may wait. */
#include "base/core/bits.h"
#include "controller/cloud/kube/kube_nodes.h"
#include "controller/cloud/kube/kube_patience.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void quantities_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want; /* below 0: refused */
    } rows[] = {
        { "8", 8 },      { "1930m", 1.93 },  { "2048Gi", 2048.0 * (1 << 30) },
        { "1e3", 1000 }, { "64k", 64000 },   { "1Ti", 1099511627776.0 },
        { "", -1 },      { "eight", -1 },    { "-1", -1 },
        { "Gi", -1 },    { "100000u", 0.1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double got = -1;
        int rc = kube_quantity(str_from(rows[i].text), &got);
        assert_int_equal(rc, rows[i].want < 0 ? -EINVAL : 0);
        if (rc == 0 && !(got > rows[i].want * 0.999999 && got < rows[i].want * 1.000001))
            fail_msg("%s: %g", rows[i].text, got);
    }
}

static void names_are_split(void **state)
{
    (void)state;
    static const struct {
        const char *name, *base;
        uint32_t units;
        bool spot;
    } rows[] = {
        { "nvidia-l4", "nvidia-l4", 1, false },
        { "nvidia-l4-spot", "nvidia-l4", 1, true },
        { "nvidia-h100-80gb-hbm3-x8", "nvidia-h100-80gb-hbm3", 8, false },
        { "amd-instinct-mi300x-oam-x4-spot", "amd-instinct-mi300x-oam", 4, true },
        { "cpu-m5-2xlarge", "cpu-m5-2xlarge", 1, false },
        { "nvidia-a30-mig-1g-6gb-spot", "nvidia-a30-mig-1g-6gb", 1, true },
        { "nvidia-a30-mig-1g-6gb-x2", NULL, 0, false }, /* a process sees one slice */
        { "nvidia-l4-x0", NULL, 0, false },
        { "nvidia-l4-x65", NULL, 0, false },
        { "NVIDIA-L4", NULL, 0, false },
        { "-spot", NULL, 0, false },
        { "", NULL, 0, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_found f;
        int rc = kube_found_name(str_from(rows[i].name), &f);
        assert_int_equal(rc, rows[i].base ? 0 : -EINVAL);
        if (rc < 0) continue;
        assert_string_equal(f.base, rows[i].base);
        assert_int_equal(f.units, rows[i].units);
        assert_int_equal(f.spot, rows[i].spot);
    }
}

/* Writes a node. `taint` is a whole object, or empty. */
static const char *node(const char *name, const char *labels, const char *allocatable,
                        const char *taint)
{
    static char text[4096];
    snprintf(text, sizeof text,
             "{\"metadata\":{\"name\":\"%s\",\"uid\":\"u-%s\",\"resourceVersion\":\"7\","
             "\"creationTimestamp\":\"2026-03-01T12:00:00Z\",\"labels\":{%s}},"
             "\"spec\":{\"taints\":[%s]},\"status\":{\"allocatable\":{%s},"
             "\"conditions\":[{\"type\":\"MemoryPressure\",\"status\":\"False\"},"
             "{\"type\":\"Ready\",\"status\":\"True\"}]}}",
             name, name, labels, taint, allocatable);
    return text;
}

static bool tell(struct kube_nodes *n, enum kube_event_type type, const char *json)
{
    struct kube_meta meta;
    assert_int_equal(kube_meta_read(str_from(json), &meta, NULL), 0);
    return kube_nodes_take(
        n, &(struct kube_event){ .type = type, .meta = &meta, .object = str_from(json) });
}

static struct kube_found found(const struct kube_nodes *n, const char *name)
{
    struct kube_found f;
    assert_int_equal(kube_found_name(str_from(name), &f), 0);
    kube_nodes_fill(n, &f);
    return f;
}

#define MI300 \
    "\"amd.com/gpu.product-name\":\"AMD_Instinct_MI300X_OAM\",\"amd.com/gpu.vram\":\"192G\""
#define FLEX "\"gpu.intel.com/product\":\"Flex_170\",\"eks.amazonaws.com/capacityType\":\"SPOT\""

static const struct kube_pair mi300 = { { "amd.com/gpu.product-name", 24 },
                                        { "AMD_Instinct_MI300X_OAM", 23 } };
static const struct kube_pair flex = { { "gpu.intel.com/product", 21 }, { "Flex_170", 8 } };
static const struct kube_price price_rows[] = { { &mi300, 1, { 0 }, 40, -1 },
                                                { &flex, 1, { 0 }, 9, 3 } };
static const struct kube_prices prices = { price_rows, 2, 0 };

static void makers_have_labels_of_their_own(void **state)
{
    (void)state;
    struct kube_nodes *n =
        kube_nodes_new(&(struct kube_nodes_config){ .prices = &prices, .cores = 4 });
    assert_true(tell(n, KUBE_ADDED, node("a", MI300, "\"amd.com/gpu\":\"8\"", "")));
    assert_true(tell(n, KUBE_ADDED,
                     node("i", FLEX, "\"gpu.intel.com/i915\":\"3\",\"gpu.intel.com/tiles\":\"3\"",
                          "{\"key\":\"eks.amazonaws.com/capacityType\",\"value\":\"SPOT\","
                          "\"effect\":\"NoSchedule\"}")));
    assert_true(tell(n, KUBE_ADDED,
                     node("c", "\"node.kubernetes.io/instance-type\":\"m7.4xlarge\"",
                          "\"cpu\":\"15500m\",\"memory\":\"62Gi\"", "")));
    struct kube_found f = found(n, "amd-instinct-mi300x-oam-x4");
    assert_true(f.known && f.price_known);
    assert_string_equal(f.device, "amd.com/gpu");
    assert_string_equal(f.hardware, "AMD_Instinct_MI300X_OAM, 192G");
    assert_string_equal(f.count, "4");
    assert_int_equal(f.room, 2);
    assert_true(f.price_h > 19.99 && f.price_h < 20.01);
    f = found(n, "flex-170-spot");
    assert_true(f.known && f.price_known && f.price_h > 0.99 && f.price_h < 1.01);
    assert_int_equal(f.room, 3); /* its taint is that of spot nodes */
    assert_ptr_equal(f.spot_label, &kube_spot_labels[1]);
    assert_false(found(n, "flex-170").known);
    f = found(n, "cpu-m7-4xlarge");
    assert_true(f.known && !f.price_known); /* no row: no price, which is not 0 */
    assert_int_equal(f.room, 3);
    assert_string_equal(f.count, "4000m");
    assert_string_equal(f.memory, "14746Mi"); /* 62 Gi, 4 of 15.5 cores, nine tenths */
    char names[128] = "";
    kube_nodes_names(n, names, sizeof names);
    assert_string_equal(names, "amd-instinct-mi300x-oam, flex-170-spot, cpu-m7-4xlarge");
    names[0] = 0;
    kube_nodes_names(n, names, 30);
    assert_string_equal(names, "amd-instinct-mi300x-oam");
    assert_true(kube_nodes_created(n, "a") > 0);
    assert_int_equal(kube_nodes_created(n, "b"), 0);
    kube_nodes_free(n);
}

static void an_offer_outlives_its_nodes(void **state)
{
    (void)state;
    struct kube_nodes *n = kube_nodes_new(&(struct kube_nodes_config){ .prices = &prices });
    (void)tell(n, KUBE_ADDED, node("a", MI300, "\"amd.com/gpu\":\"8\"", ""));
    struct kube_found f = found(n, "amd-instinct-mi300x-oam");
    assert_int_equal(f.room, 8);
    assert_true(tell(n, KUBE_MODIFIED,
                     node("a", MI300, "\"amd.com/gpu\":\"8\"",
                          "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoSchedule\"}")));
    kube_nodes_fill(n, &f);
    assert_int_equal(f.room, 0);
    assert_false(tell(n, KUBE_MODIFIED,
                      node("a", MI300, "\"amd.com/gpu\":\"8\"",
                           "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoSchedule\"}")));
    assert_true(tell(n, KUBE_DELETED, node("a", MI300, "", "")));
    kube_nodes_fill(n, &f);
    assert_true(f.known && f.price_known && f.price_h > 4.99);
    assert_int_equal(f.nodes, 0);
    assert_false(found(n, "amd-instinct-mi300x-oam").known); /* nobody remembers it there */
    kube_nodes_free(n);
}

#define H100 "\"nvidia.com/gpu.product\":\"NVIDIA-H100-80GB-HBM3\""
static const struct kube_pair h100 = { { "nvidia.com/gpu.product", 22 },
                                       { "NVIDIA-H100-80GB-HBM3", 21 } };
static const struct kube_price h100_row[] = { { &h100, 1, { 0 }, 64, -1 } };
static const struct kube_prices h100_prices = { h100_row, 1, 0 };

static bool is_near(double a, double b)
{
    return a > b - 1e-6 && a < b + 1e-6;
}

/* The plug-in's strategy `mixed`: each profile is an offer with a resource of its own, and a share by memory. */
static void slices_of_unlike_size(void **state)
{
    (void)state;
    struct kube_nodes *n = kube_nodes_new(&(struct kube_nodes_config){ .prices = &h100_prices });
    (void)tell(n, KUBE_ADDED,
               node("a",
                    H100
                    ",\"nvidia.com/gpu.memory\":\"81920\",\"nvidia.com/mig.strategy\":\"mixed\","
                    "\"nvidia.com/mig-1g.10gb.product\":\"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb\","
                    "\"nvidia.com/mig-1g.10gb.memory\":\"9984\","
                    "\"nvidia.com/mig-3g.40gb.memory\":\"40320\"",
                    "\"nvidia.com/gpu\":\"6\",\"nvidia.com/mig-1g.10gb\":\"8\","
                    "\"nvidia.com/mig-3g.40gb\":\"2\",\"nvidia.com/mig-7g.80gb\":\"0\"",
                    "{\"key\":\"nvidia.com/gpu\",\"effect\":\"NoSchedule\"}"));
    struct kube_found f = found(n, "nvidia-h100-80gb-hbm3-mig-1g-10gb");
    assert_true(f.known && f.price_known && is_near(f.price_h, 1)); /* 64 dollars for 640 GB */
    assert_string_equal(f.device, "nvidia.com/mig-1g.10gb");
    assert_string_equal(f.label, "nvidia.com/mig-1g.10gb.product");
    assert_string_equal(f.value, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb");
    assert_string_equal(f.hardware, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb, 9984");
    assert_int_equal(f.room, 8);                       /* and the taint of GPUs is tolerated */
    f = found(n, "nvidia-h100-80gb-hbm3-mig-3g-40gb"); /* without a label of its product */
    assert_true(f.price_known && is_near(f.price_h, 4));
    assert_string_equal(f.label, "nvidia.com/gpu.product");
    assert_string_equal(f.value, "NVIDIA-H100-80GB-HBM3");
    assert_int_equal(f.room, 2);
    f = found(n, "nvidia-h100-80gb-hbm3-x2");
    assert_true(f.price_known && is_near(f.price_h, 16));
    assert_int_equal(f.room, 3);
    char names[200] = "";
    kube_nodes_names(n, names, sizeof names);
    assert_string_equal(names,
                        "nvidia-h100-80gb-hbm3-mig-1g-10gb, nvidia-h100-80gb-hbm3-mig-3g-40gb, "
                        "nvidia-h100-80gb-hbm3");
    /* A row for the profile goes before the share; without the GPU's memory there is no share. */
    static const struct kube_price rows[] = {
        { &h100, 1, { 0 }, 64, -1 }, { &h100, 1, { "nvidia.com/mig-1g.10gb", 22 }, 1.5, -1 }
    };
    static const struct kube_prices by_profile = { rows, 2, 0 };
    kube_nodes_reprice(n, &by_profile);
    assert_true(is_near(found(n, "nvidia-h100-80gb-hbm3-mig-1g-10gb").price_h, 1.5));
    assert_true(is_near(found(n, "nvidia-h100-80gb-hbm3-mig-3g-40gb").price_h, 4));
    (void)tell(n, KUBE_MODIFIED,
               node("a", H100, "\"nvidia.com/gpu\":\"6\",\"nvidia.com/mig-3g.40gb\":\"2\"", ""));
    f = found(n, "nvidia-h100-80gb-hbm3-mig-3g-40gb");
    assert_true(f.known && !f.price_known);
    /* All GPUs are cut, into 1g.10gb.me and 1c.3g.40gb: the slices bear the whole price. */
    (void)tell(n, KUBE_MODIFIED,
               node("a", H100,
                    "\"nvidia.com/gpu\":\"0\",\"nvidia.com/mig-1g.10gb.me\":\"4\","
                    "\"nvidia.com/mig-1c.3g.40gb\":\"7\"",
                    ""));
    assert_true(is_near(found(n, "nvidia-h100-80gb-hbm3-mig-1g-10gb-me").price_h, 2));
    assert_true(is_near(found(n, "nvidia-h100-80gb-hbm3-mig-1c-3g-40gb").price_h, 8));
    assert_false(found(n, "nvidia-h100-80gb-hbm3").known);
    kube_nodes_free(n);
}

/* The strategy `single`: all slices of a node are nvidia.com/gpu. A name that is too long keeps its profile. */
static void slices_of_one_size(void **state)
{
    (void)state;
    static const struct kube_pair a100 = { { "nvidia.com/mig.config", 21 }, { "all-1g.5gb", 10 } };
    static const struct kube_price rows[] = { { &a100, 1, { 0 }, 28, -1 } };
    static const struct kube_prices single = { rows, 1, 0 };
    struct kube_nodes *n = kube_nodes_new(&(struct kube_nodes_config){ .prices = &single });
    (void)tell(
        n, KUBE_ADDED,
        node("a",
             "\"nvidia.com/gpu.product\":\"A100-SXM4-40GB-MIG-1g.5gb\",\"nvidia.com/gpu.memory\":"
             "\"4864\",\"nvidia.com/mig.strategy\":\"single\",\"nvidia.com/"
             "mig.config\":\"all-1g.5gb\"",
             "\"nvidia.com/gpu\":\"56\"", ""));
    (void)tell(n, KUBE_ADDED,
               node("b",
                    "\"nvidia.com/"
                    "gpu.product\":\"NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb\"",
                    "\"nvidia.com/gpu\":\"4\"", ""));
    (void)tell(n, KUBE_ADDED,
               node("c", "\"nvidia.com/gpu.product\":\"A100-SXM4-40GB-MIG-INVALID\"",
                    "\"nvidia.com/gpu\":\"4\"", ""));
    struct kube_found f = found(n, "a100-sxm4-40gb-mig-1g-5gb");
    assert_true(f.price_known && is_near(f.price_h, 0.5));
    assert_string_equal(f.device, "nvidia.com/gpu");
    assert_string_equal(f.hardware, "A100-SXM4-40GB-MIG-1g.5gb, 4864");
    assert_int_equal(f.room, 56);
    assert_int_equal(found(n, "nvidia-rtx-pro-6000-blackwel-mig-1g-24gb").room, 4);
    char names[200] = "";
    kube_nodes_names(n, names, sizeof names);
    assert_string_equal(names,
                        "a100-sxm4-40gb-mig-1g-5gb, nvidia-rtx-pro-6000-blackwel-mig-1g-24gb");
    kube_nodes_free(n);
}

/* Nodes that were seen before get the price of the new rows. */
static void prices_are_replaced(void **state)
{
    (void)state;
    static const struct kube_price dearer[] = { { &mi300, 1, { 0 }, 80, -1 } };
    static const struct kube_prices second = { dearer, 1, 0 }, none = { NULL, 0, 0 };
    struct kube_nodes *n = kube_nodes_new(&(struct kube_nodes_config){ .prices = &prices });
    (void)tell(n, KUBE_ADDED, node("a", MI300, "\"amd.com/gpu\":\"8\"", ""));
    (void)tell(n, KUBE_ADDED, node("b", MI300, "\"amd.com/gpu\":\"8\"", ""));
    assert_true(tell(n, KUBE_DELETED, node("a", MI300, "", "")));
    struct kube_found f = found(n, "amd-instinct-mi300x-oam");
    assert_true(f.price_known && f.price_h > 4.99 && f.price_h < 5.01);
    kube_nodes_reprice(n, &second);
    kube_nodes_fill(n, &f);
    assert_true(f.price_known && f.price_h > 9.99 && f.price_h < 10.01);
    kube_nodes_reprice(n, &none);
    kube_nodes_fill(n, &f);
    assert_false(f.price_known);
    kube_nodes_free(n);
}

static void a_templates_tolerations_count(void **state)
{
    (void)state;
    static const struct {
        const char *why, *toleration, *taint;
        bool usable;
    } rows[] = {
        { "the same value", "{\"key\":\"team\",\"value\":\"x\"}",
          "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoSchedule\"}", true },
        { "another value", "{\"key\":\"team\",\"value\":\"y\"}",
          "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoSchedule\"}", false },
        { "any value", "{\"key\":\"team\",\"operator\":\"Exists\"}",
          "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoExecute\"}", true },
        { "another effect", "{\"key\":\"team\",\"operator\":\"Exists\",\"effect\":\"NoSchedule\"}",
          "{\"key\":\"team\",\"value\":\"x\",\"effect\":\"NoExecute\"}", false },
        { "everything", "{\"operator\":\"Exists\"}",
          "{\"key\":\"other\",\"effect\":\"NoSchedule\"}", true },
        { "a wish alone", "", "{\"key\":\"other\",\"effect\":\"PreferNoSchedule\"}", true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char template[256];
        struct kube_node got;
        snprintf(template, sizeof template, "{\"spec\":{\"tolerations\":[%s]}}",
                 rows[i].toleration);
        const char *json = node("a", MI300, "\"amd.com/gpu\":\"8\"", rows[i].taint);
        assert_int_equal(kube_node_read(str_from(json), str_from(template), &got, NULL), 0);
        if (got.usable != rows[i].usable) fail_msg("%s", rows[i].why);
    }
}

static void patience_follows_what_nodes_took(void **state)
{
    (void)state;
    const int64_t wait_us = 120000000;
    struct kube_patience p = { 0 };
    kube_patience_miss(&p); /* before anything is learned it changes nothing */
    assert_int_equal(kube_patience_us(&p, wait_us), wait_us);
    for (int i = 0; i < 8; i++)
        kube_patience_learn(&p, 60);
    int64_t learned_us = kube_patience_us(&p, wait_us);
    assert_true(learned_us >= 60000000 && learned_us < 90000000);
    kube_patience_miss(&p);
    assert_true(kube_patience_us(&p, wait_us) == 2 * learned_us);
    for (int i = 0; i < 10; i++)
        kube_patience_miss(&p);
    assert_int_equal(kube_patience_us(&p, wait_us), 4 * wait_us);
    kube_patience_learn(&p, 60);
    assert_true(kube_patience_us(&p, wait_us) < 90000000);
    for (int i = 0; i < 40; i++)
        kube_patience_learn(&p, 0.5);
    assert_int_equal(kube_patience_us(&p, wait_us), wait_us / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_are_read),
        cmocka_unit_test(names_are_split),
        cmocka_unit_test(makers_have_labels_of_their_own),
        cmocka_unit_test(an_offer_outlives_its_nodes),
        cmocka_unit_test(slices_of_unlike_size),
        cmocka_unit_test(slices_of_one_size),
        cmocka_unit_test(prices_are_replaced),
        cmocka_unit_test(a_templates_tolerations_count),
        cmocka_unit_test(patience_follows_what_nodes_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
