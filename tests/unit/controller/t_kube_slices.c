/* t_kube_slices.c - tests what ResourceSlices of several drivers make of offers, and what claims ask for. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/kube/kube_slices.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

struct scene {
    struct kube_nodes *nodes;
    struct kube_slices *slices;
};

static const struct kube_pair big = { { "size", 4 }, { "big", 3 } };
static const struct kube_price rows[] = { { &big, 1, { 0 }, 64, 16 } };
static const struct kube_prices prices = { rows, 1, 0 };
static const struct kube_pair class = { { "gpu.example.com", 15 }, { "example", 7 } };

static struct scene scene_open(void)
{
    struct scene s = { .nodes = kube_nodes_new(&(struct kube_nodes_config){ .prices = &prices }) };
    s.slices = kube_slices_new(s.nodes, &class, 1);
    return s;
}

static void scene_close(struct scene *s)
{
    kube_slices_free(s->slices);
    kube_nodes_free(s->nodes);
}

static void add_node(struct scene *s, const char *name, const char *taint)
{
    char json[512];
    struct kube_meta meta;
    snprintf(json, sizeof json,
             "{\"metadata\":{\"name\":\"%s\",\"uid\":\"u\",\"resourceVersion\":\"1\",\"labels\":{"
             "\"size\":\"big\"}},\"spec\":{\"taints\":[%s]},\"status\":{\"conditions\":[{\"type\":"
             "\"Ready\",\"status\":\"True\"}]}}",
             name, taint);
    assert_int_equal(kube_meta_read(str_from(json), &meta, NULL), 0);
    (void)kube_nodes_take(s->nodes, &(struct kube_event){ KUBE_ADDED, &meta, str_from(json) });
}

static void add_slice(struct scene *s, enum kube_event_type type, const char *name,
                      const char *driver, int generation, const char *devices)
{
    char json[4096];
    struct kube_meta meta;
    snprintf(json, sizeof json,
             "{\"metadata\":{\"name\":\"%s\",\"uid\":\"u\",\"resourceVersion\":\"1\"},\"spec\":{"
             "\"driver\":\"%s\",\"nodeName\":\"a\",\"pool\":{\"name\":\"a\",\"generation\":%d},"
             "\"devices\":[%s]}}",
             name, driver, generation, devices);
    assert_int_equal(kube_meta_read(str_from(json), &meta, NULL), 0);
    assert_true(kube_slices_take(s->slices, &(struct kube_event){ type, &meta, str_from(json) }));
}

static struct kube_found found(struct scene *s, const char *name)
{
    struct kube_found f;
    assert_int_equal(kube_found_name(str_from(name), &f), 0);
    assert_true(kube_found_is_claimed(&f));
    kube_slices_fill(s->slices, &f);
    return f;
}

static bool is_near(double a, double b)
{
    return a > b - 1e-6 && a < b + 1e-6;
}

/* A device with attributes and capacity as members of JSON objects, and more after them. */
#define DEVICE(attributes, capacity, more) \
    "{\"name\":\"d\",\"attributes\":{" attributes "},\"capacity\":{" capacity "}" more "}"
#define TEXT(name, value) "\"" name "\":{\"string\":\"" value "\"}"
#define MEMORY(value) "\"memory\":{\"value\":\"" value "\"}"
#define COUNTERS ",\"consumesCounters\":[{\"counterSet\":\"c\"}]"
#define GPU \
    DEVICE(TEXT("type", "gpu") "," TEXT("productName", "NVIDIA H100"), MEMORY("80Gi"), COUNTERS)
#define MIG(profile, memory)                                                                     \
    DEVICE(                                                                                      \
        TEXT("type", "mig") "," TEXT("productName", "NVIDIA H100") "," TEXT("profile", profile), \
        MEMORY(memory), COUNTERS)

/* GPUs and the slices that they may be cut into are told together: the whole ones bear the price. */
static void a_gpu_and_its_slices(void **state)
{
    (void)state;
    struct scene s = scene_open();
    add_node(&s, "a", "{\"key\":\"nvidia.com/gpu\",\"effect\":\"NoSchedule\"}");
    add_slice(&s, KUBE_ADDED, "one", "gpu.nvidia.com", 1,
              GPU "," GPU "," MIG("1g.10gb", "10Gi") "," MIG("1g.10gb", "10Gi") "," MIG(
                  "3g.40gb",
                  "40Gi") "," DEVICE(TEXT("type", "vfio") "," TEXT("productName", "NVIDIA H100"),
                                     "", ""));
    struct kube_found f = found(&s, "dra-nvidia-h100");
    assert_true(f.known && f.price_known && is_near(f.price_h, 32));
    assert_int_equal(f.room, 2); /* not the one that is passed through; the taint is tolerated */
    assert_string_equal(f.class, "gpu.nvidia.com");
    assert_string_equal(f.hardware, "NVIDIA H100, 81920 MiB");
    f = found(&s, "dra-nvidia-h100-mig-1g-10gb");
    assert_true(f.price_known && is_near(f.price_h, 4));
    assert_int_equal(f.room, 2);
    assert_string_equal(f.class, "mig.nvidia.com");
    f = found(&s, "dra-nvidia-h100-x2");
    assert_true(is_near(f.price_h, 64));
    assert_int_equal(f.room, 1);
    assert_false(found(&s, "dra-nvidia-h100-x4").known);
    char names[200] = "";
    kube_slices_names(s.slices, names, sizeof names);
    assert_string_equal(names, "dra-nvidia-h100, dra-nvidia-h100-mig-1g-10gb, "
                               "dra-nvidia-h100-mig-3g-40gb");
    scene_close(&s);
}

/* Drivers name products by other attributes, with or without a domain. */
static void drivers_have_words_of_their_own(void **state)
{
    (void)state;
    struct scene s = scene_open();
    add_node(&s, "a", "");
    add_slice(&s, KUBE_ADDED, "one", "gpu.example.com", 1,
              DEVICE(TEXT("model", "LATEST"), "", "") "," DEVICE(TEXT("model", "LATEST"), "", ""));
    add_slice(&s, KUBE_ADDED, "two", "gpu.amd.com", 1,
              DEVICE(TEXT("amd.com/productName", "AMD MI300X") "," TEXT("model", "x"),
                     "\"gpu.amd.com/memory\":{\"value\":\"192Gi\"}", ""));
    add_slice(&s, KUBE_ADDED, "three", "nic.example.com", 1, DEVICE(TEXT("speed", "fast"), "", ""));
    add_slice(&s, KUBE_ADDED, "four", "bad.example.com", 1,
              DEVICE(TEXT("model", "say \\\"hi\\\" || true"), "", ""));
    struct kube_found f = found(&s, "dra-latest");
    assert_true(f.known && is_near(f.price_h, 32)); /* alike, without memory */
    assert_string_equal(f.class, "example");        /* of the settings */
    f = found(&s, "dra-amd-mi300x");
    assert_string_equal(f.hardware, "AMD MI300X, 196608 MiB");
    assert_non_null(
        strstr(f.selector, "device.attributes[\"amd.com\"].productName == \"AMD MI300X\""));
    assert_true(is_near(f.price_h, 64));
    char names[200] = "";
    kube_slices_names(s.slices, names, sizeof names);
    assert_string_equal(names, "dra-latest, dra-amd-mi300x");
    scene_close(&s);
}

/* Of a pool the newest generation counts; what is gone counts no more, and a node must be there and usable. */
static void slices_come_and_go(void **state)
{
    (void)state;
    struct scene s = scene_open();
    add_slice(&s, KUBE_ADDED, "old", "gpu.example.com", 1, DEVICE(TEXT("model", "LATEST"), "", ""));
    assert_false(found(&s, "dra-latest").known); /* nobody knows the node */
    add_node(&s, "a", "");
    struct kube_found f = found(&s, "dra-latest");
    assert_int_equal(f.room, 1);
    add_slice(&s, KUBE_ADDED, "new", "gpu.example.com", 2,
              DEVICE(TEXT("model", "LATEST"), "", "") "," DEVICE(TEXT("model", "LATEST"), "", ""));
    kube_slices_fill(s.slices, &f);
    assert_int_equal(f.room, 2);
    add_node(&s, "a", "{\"key\":\"team\",\"effect\":\"NoSchedule\"}");
    kube_slices_fill(s.slices, &f);
    assert_int_equal(f.room, 0);
    add_node(&s, "a", "");
    add_slice(&s, KUBE_DELETED, "new", "gpu.example.com", 2, "");
    kube_slices_fill(s.slices, &f);
    assert_int_equal(f.room, 1); /* the older one is the newest now */
    add_slice(&s, KUBE_DELETED, "old", "gpu.example.com", 1, "");
    kube_slices_fill(s.slices, &f);
    assert_true(f.known && f.room == 0); /* it was there, and may come back */
    scene_close(&s);
}

static void a_claim_is_of_its_pod(void **state)
{
    (void)state;
    struct scene s = scene_open();
    CLEANUP(buf_fini) struct buf claim = { 0 };
    struct str first;
    add_node(&s, "a", "");
    add_slice(&s, KUBE_ADDED, "one", "gpu.nvidia.com", 1, MIG("1g.10gb", "10Gi"));
    struct kube_found f = found(&s, "dra-nvidia-h100-mig-1g-10gb");
    assert_int_equal(
        kube_claim_write(&f, KUBE_INSTANCE, STR("i-1"), STR("fleet"), STR("uid-1"), &claim), 0);
    struct str text = buf_view(&claim);
    assert_int_equal(json_path(text, "spec.devices.requests", &first), 0);
    assert_true(str_starts(
        first, STR("[{\"name\":\"devices\",\"exactly\":{\"deviceClassName\":"
                   "\"mig.nvidia.com\",\"allocationMode\":\"ExactCount\",\"count\":1,")));
    assert_int_equal(json_path(text, "metadata.ownerReferences", &first), 0);
    assert_true(
        str_eq(first, STR("[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"i-1\",\"uid\":"
                          "\"uid-1\"}]")));
    assert_string_equal(f.selector,
                        "device.driver == \"gpu.nvidia.com\""
                        " && \"productName\" in device.attributes[\"gpu.nvidia.com\"]"
                        " && device.attributes[\"gpu.nvidia.com\"].productName == \"NVIDIA H100\""
                        " && \"type\" in device.attributes[\"gpu.nvidia.com\"]"
                        " && device.attributes[\"gpu.nvidia.com\"].type == \"mig\""
                        " && \"profile\" in device.attributes[\"gpu.nvidia.com\"]"
                        " && device.attributes[\"gpu.nvidia.com\"].profile == \"1g.10gb\"");
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_and_its_slices),
        cmocka_unit_test(drivers_have_words_of_their_own),
        cmocka_unit_test(slices_come_and_go),
        cmocka_unit_test(a_claim_is_of_its_pod),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
