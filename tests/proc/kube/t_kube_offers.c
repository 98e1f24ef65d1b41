/* t_kube_offers.c - tests offers that nodes make with a real controller and a scripted API server: what changes while
 * it runs, and what is told where an API or a right is missing.
 *
 * tests/kube/t_offers does the same on a real API server with a scheduler. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

static struct kube_server server;
static struct rig_process controller;
static struct kube_world world; /* who makes nodes */
static char config[RIG_PATH];
static int runs, min;         /* instances of the pool */
static const char *more = ""; /* settings of the section, after a comma */
static const char *fault;     /* scripted from the start on; NULL: none */

static const struct kube_resource nodes = { "", "v1", "nodes", true };
static const struct kube_resource slices = { "resource.k8s.io", "v1", "resourceslices", true };

/* Writes the controller's file: `prices` are rows, `offers` are names of the pool's. */
static void write_config(const char *prices, const char *offers)
{
    char text[2048], name[32];
    snprintf(text, sizeof text,
             "controller: { state: %s/state%d, tick: 100ms }\n"
             "kubernetes: { kubeconfig: %s, namespace: " KUBE_RIG_NS ", image: i, discover: true, "
             "calls_per_s: 1000, poll: 100ms,\n  prices: [ %s ]%s }\n"
             "services:\n  - name: chat\n    model: " MODEL "\n    pools:\n"
             "      - { name: p, provider: kubernetes, offers: [%s], min: %d, max: 4 }\n",
             rig_folder(), runs, server.kubeconfig, prices, more, offers, min);
    snprintf(name, sizeof name, "offers%d.yaml", runs);
    rig_file(config, name, text);
}

static void start(const char *prices, const char *offers)
{
    kube_rig_post(&server, "/script", "{\"count\":0}");
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    if (fault) kube_rig_post(&server, "/script", fault);
    runs++;
    write_config(prices, offers);
    world = kube_world_open(&server, (struct kube_client_config){ 0 });
    controller.port = rig_port();
    controller = rig_server("controller", controller.port, ARGS("--config", config));
}

static void stop(void)
{
    kube_world_close(&world);
    rig_stop(&controller);
}

static void make(const struct kube_resource *resource, const char *body)
{
    (void)kube_must(
        &world,
        (struct kube_request){ .verb = KUBE_CREATE, .resource = resource, .body = str_from(body) });
}

/* Makes a node with labels and allocatable resources, as members of JSON objects. */
static void make_node(const char *name, const char *labels, const char *allocatable)
{
    char body[2048];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"labels\":{%s}},"
        "\"spec\":{},\"status\":{\"allocatable\":{%s},\"conditions\":[{\"type\":\"Ready\","
        "\"status\":\"True\"}]}}",
        name, labels, allocatable);
    make(&nodes, body);
}

/* ---- what the controller says ---- */

struct said {
    /* Item: where the words must be, up to the next one; NULL: anywhere. */
    const char *path, *item, *words;
};

static bool is_said(void *arg)
{
    const struct said *s = arg;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    if (rig_call(controller.port, s->path, NULL, &reply) != 200) return false;
    struct str text = buf_view(&reply);
    if (s->item) {
        size_t at = str_find(text, str_from(s->item));
        if (at == SIZE_MAX) return false;
        text = str_of(text.data + at, text.len - at);
        size_t end = str_find(str_of(text.data + 1, text.len - 1), STR("{\"offer\":"));
        if (end != SIZE_MAX) text.len = end + 1;
    }
    return str_find(text, str_from(s->words)) != SIZE_MAX;
}

static void expect_offer(const char *offer, const char *words)
{
    char item[96], what[256];
    snprintf(item, sizeof item, "{\"offer\":\"%s\"", offer);
    snprintf(what, sizeof what, "offer %s: %s", offer, words);
    struct said s = { "/api/v1/offers", item, words };
    rig_wait(is_said, &s, what);
}

static void expect_event(const char *words)
{
    struct said s = { "/api/v1/events", NULL, words };
    rig_wait(is_said, &s, words);
}

#define L4 "\"nvidia.com/gpu.product\":\"NVIDIA-L4\""
#define B200 "\"nvidia.com/gpu.product\":\"NVIDIA-B200\""
#define ROW_L4 "{ labels: [nvidia.com/gpu.product=NVIDIA-L4], price_per_hour: 8 }"
#define ROW_B200 "{ labels: [nvidia.com/gpu.product=NVIDIA-B200], price_per_hour: 80 }"

/* ---- the tests ---- */

/* Rows of prices are taken while it runs. A bad row is refused by its line, and the rows before it hold. */
static void prices_change(void **state)
{
    (void)state;
    start(ROW_L4, "nvidia-l4, nvidia-b200");
    make_node("a", L4, "\"nvidia.com/gpu\":\"8\"");
    make_node("b", B200, "\"nvidia.com/gpu\":\"8\"");
    expect_offer("nvidia-l4", "\"price_per_h\":1,");
    expect_offer("nvidia-b200", "\"room\":8");
    expect_offer("nvidia-b200", "\"price_per_h\":null");
    write_config(ROW_L4 ", " ROW_B200, "nvidia-l4, nvidia-b200");
    expect_offer("nvidia-b200", "\"price_per_h\":10,");
    expect_event("kubernetes.prices[1]");
    write_config("{ labels: [nvidia.com/gpu.product], price_per_hour: 4 }",
                 "nvidia-l4, nvidia-b200");
    expect_event("config_refused");
    expect_event("kubernetes.prices[0]: labels: 'nvidia.com/gpu.product': want NAME=VALUE");
    write_config("{ labels: [nvidia.com/gpu.product=NVIDIA-L4], price_per_hour: cheap }",
                 "nvidia-l4, nvidia-b200");
    expect_event(":3: kubernetes.prices[0].price_per_hour: 'cheap'");
    expect_offer("nvidia-b200", "\"price_per_h\":10,");
    write_config("{ labels: [nvidia.com/gpu.product=NVIDIA-L4], price_per_hour: 4 }",
                 "nvidia-l4, nvidia-b200");
    expect_offer("nvidia-l4", "\"price_per_h\":0.5,");
    expect_offer("nvidia-b200", "\"price_per_h\":null");
    stop();
}

/* A product that no node had at the start is named by a pool, priced and bought. */
static void offers_are_added(void **state)
{
    (void)state;
    start(ROW_L4, "nvidia-l4");
    make_node("a", L4, "\"nvidia.com/gpu\":\"8\"");
    expect_offer("nvidia-l4", "\"room\":8");
    make_node("b", B200, "\"nvidia.com/gpu\":\"8\"");
    min = 1;
    write_config(ROW_L4 ", " ROW_B200, "nvidia-b200-x2");
    expect_offer("nvidia-b200-x2", "\"price_per_h\":20,");
    expect_offer("nvidia-b200-x2", "\"room\":4");
    struct said s = { "/api/v1/intents", NULL, "\"offer\":\"nvidia-b200-x2\"" };
    rig_wait(is_said, &s, "an instance of the new offer");
    write_config(ROW_L4 ", " ROW_B200, "nvidia-l4, no-such-offer-x99");
    expect_event("provider kubernetes sells no 'no-such-offer-x99'");
    min = 0;
    stop();
}

/* Waits for the one Pod, and for these words in its object. */
static bool pod_says(void *arg)
{
    const char *const *words = arg;
    struct kube_seen s = { 0 };
    kube_do(
        &world, &s,
        (struct kube_request){ .verb = KUBE_LIST, .resource = &kube_pods, .ns = STR(KUBE_RIG_NS) });
    bool all = s.reply.rc == 0;
    for (; *words && all; words++)
        all = str_find(buf_view(&s.body), str_from(*words)) != SIZE_MAX;
    kube_seen_fini(&s);
    return all;
}

/* A slice of MIG is asked for by the resource of its profile; taints of GPUs are tolerated. */
static void slices_are_bought(void **state)
{
    (void)state;
    min = 1;
    start("{ labels: [nvidia.com/gpu.product=NVIDIA-A100], price_per_hour: 32 }",
          "nvidia-a100-mig-3g-40gb");
    make_node("a",
              "\"nvidia.com/gpu.product\":\"NVIDIA-A100\",\"nvidia.com/mig-3g.40gb.product\":"
              "\"NVIDIA-A100-MIG-3g.40gb\"",
              "\"nvidia.com/mig-3g.40gb\":\"8\",\"nvidia.com/mig-1g.10gb\":\"16\"");
    expect_offer("nvidia-a100-mig-3g-40gb", "\"price_per_h\":2.666");
    rig_wait(
        pod_says,
        (void *)(uintptr_t)ARGS("\"limits\":{\"nvidia.com/mig-3g.40gb\":\"1\"}",
                                "\"nvidia.com/mig-3g.40gb.product\":\"NVIDIA-A100-MIG-3g.40gb\"",
                                "{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\"}"),
        "a Pod with a slice");
    min = 0;
    stop();
}

/* Makes a slice of one driver on a node, with devices as items of a list. */
static void make_slice(const char *name, const char *node, int generation, const char *devices)
{
    char body[2048];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"resource.k8s.io/v1\",\"kind\":\"ResourceSlice\",\"metadata\":{\"name\":"
        "\"%s\"},\"spec\":{\"driver\":\"gpu.nvidia.com\",\"nodeName\":\"%s\",\"pool\":{\"name\":\"%"
        "s\","
        "\"generation\":%d,\"resourceSliceCount\":1},\"devices\":[%s]}}",
        name, node, node, generation, devices);
    make(&slices, body);
}

#define GPU(name)                                                                   \
    "{\"name\":\"" name                                                             \
    "\",\"attributes\":{\"type\":{\"string\":\"gpu\"},\"productName\":{\"string\":" \
    "\"NVIDIA L4\"}},\"capacity\":{\"memory\":{\"value\":\"23034Mi\"}}}"
#define VFIO                                                                                      \
    "{\"name\":\"v\",\"attributes\":{\"type\":{\"string\":\"vfio\"},\"productName\":{\"string\":" \
    "\"NVIDIA L4\"}}}"

static const struct kube_resource claims = { "resource.k8s.io", "v1", "resourceclaims", false };

static bool claim_says(void *arg)
{
    const char *const *words = arg;
    struct kube_seen s = { 0 };
    kube_do(
        &world, &s,
        (struct kube_request){ .verb = KUBE_LIST, .resource = &claims, .ns = STR(KUBE_RIG_NS) });
    bool all = s.reply.rc == 0;
    for (; *words && all; words++)
        all = str_find(buf_view(&s.body), str_from(*words)) != SIZE_MAX;
    kube_seen_fini(&s);
    return all;
}

/* Devices that a driver of DRA tells are an offer; its Pod has a claim, also when a reply about that is lost. */
static void devices_are_claimed(void **state)
{
    (void)state;
    min = 1;
    fault = "{\"verb\":\"create\",\"fault\":\"lost\",\"count\":1,\"resource\":\"resourceclaims\"}";
    start(ROW_L4, "dra-nvidia-l4-x2");
    fault = NULL;
    make_node("a", L4, "\"cpu\":\"8\"");
    make_slice("old", "a", 1, GPU("x"));
    make_slice("new", "a", 2, GPU("g0") "," GPU("g1") "," GPU("g2") "," GPU("g3") "," VFIO);
    expect_offer("dra-nvidia-l4-x2", "\"price_per_h\":4,");
    expect_offer("dra-nvidia-l4-x2", "\"room\":2,");
    rig_wait(pod_says,
             (void *)(uintptr_t)ARGS(
                 "\"resources\":{\"claims\":[{\"name\":\"muster-devices\"}]}",
                 "\"resourceClaims\":[{\"name\":\"muster-devices\",\"resourceClaimName\":\"i-",
                 "{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\"}"),
             "a Pod with a claim");
    rig_wait(
        claim_says,
        (void *)(uintptr_t)ARGS(
            "\"deviceClassName\":\"gpu.nvidia.com\",\"allocationMode\":\"ExactCount\",\"count\":2",
            "device.driver == \\\"gpu.nvidia.com\\\" && \\\"productName\\\" in ",
            ".type == \\\"gpu\\\"", "\"kind\":\"Pod\",\"name\":\"i-"),
        "its claim");
    min = 0;
    stop();
}

/* ---- standby Pods of claimed devices ---- */

#define PODS_MAX 8

struct pods {
    struct str prefix; /* of their names */
    uint32_t count, placed;
    char name[PODS_MAX][KUBE_NAME_BYTES];
};

static int read_pod(void *ctx, struct str item)
{
    struct pods *p = ctx;
    struct kube_meta meta;
    struct str node;
    assert_int_equal(kube_meta_read(item, &meta, NULL), 0);
    if (!str_starts(str_from(meta.name), p->prefix)) return 0;
    assert_true(p->count < PODS_MAX);
    snprintf(p->name[p->count++], KUBE_NAME_BYTES, "%s", meta.name);
    p->placed += json_path(item, "spec.nodeName", &node) == 0;
    return 0;
}

static struct pods list_pods(const char *prefix)
{
    struct pods p = { .prefix = str_from(prefix) };
    struct kube_seen s = { 0 };
    kube_do(
        &world, &s,
        (struct kube_request){ .verb = KUBE_LIST, .resource = &kube_pods, .ns = STR(KUBE_RIG_NS) });
    assert_int_equal(s.reply.rc, 0);
    (void)json_path_each(buf_view(&s.body), "items", read_pod, &p);
    kube_seen_fini(&s);
    return p;
}

struct pods_wanted {
    const char *prefix;
    uint32_t count, placed;
};

static bool pods_are(void *arg)
{
    const struct pods_wanted *want = arg;
    struct pods p = list_pods(want->prefix);
    return p.count == want->count && p.placed == want->placed;
}

static void expect_pods(const char *prefix, uint32_t count, uint32_t placed, const char *what)
{
    struct pods_wanted want = { prefix, count, placed };
    rig_wait(pods_are, &want, what);
}

static void patch_pod(const char *name, const char *subresource, const char *body)
{
    (void)kube_must(&world, (struct kube_request){ .verb = KUBE_PATCH,
                                                   .resource = &kube_pods,
                                                   .ns = STR(KUBE_RIG_NS),
                                                   .name = str_from(name),
                                                   .subresource = subresource,
                                                   .body = str_from(body) });
}

#define ON_A "{\"spec\":{\"nodeName\":\"a\"}}"
#define SCHEDULED(status, reason)                                                               \
    "{\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":" \
    "\"" status "\",\"reason\":\"" reason "\"}]}}"

static void start_claimed_standby(void)
{
    more =
        ", standby_class: low, offers: [ { name: held, from_nodes: dra-nvidia-l4, standby: 3 } ]";
    start(ROW_L4, "held");
    make_node("a", L4, "\"cpu\":\"8\"");
    (void)kube_must(
        &world, (struct kube_request){ .verb = KUBE_CREATE,
                                       .resource = &claims,
                                       .ns = STR(KUBE_RIG_NS),
                                       .body = STR("{\"metadata\":{\"name\":\"standby-held-1\"},"
                                                   "\"spec\":{\"of\":\"its predecessor\"}}") });
    make_slice("new", "a", 1, GPU("g0") "," GPU("g1"));
    expect_pods("standby-held-", 3, 0, "standby Pods");
}

/* A standby Pod has a claim of its own, also where its predecessor's was still there. One gives way to an instance
 * that finds no node, one without a node is no rival, and both are made anew once no instance waits. */
static void claimed_standby_pods_give_way(void **state)
{
    (void)state;
    start_claimed_standby();
    rig_wait(claim_says,
             (void *)(uintptr_t)ARGS("\"kind\":\"Pod\",\"name\":\"standby-held-0\"",
                                     "\"kind\":\"Pod\",\"name\":\"standby-held-2\"",
                                     "\"muster.dev/standby\":\"muster\"", "its predecessor"),
             "claims of standby Pods");
    rig_wait(pod_says,
             (void *)(uintptr_t)ARGS("\"resourceClaimName\":\"standby-held-1\"",
                                     "\"resources\":{\"claims\":[{\"name\":\"muster-devices\"}]}"),
             "a standby Pod with a claim");
    (void)kube_must(&world, (struct kube_request){ .verb = KUBE_DELETE,
                                                   .resource = &claims,
                                                   .ns = STR(KUBE_RIG_NS),
                                                   .name = STR("standby-held-1"),
                                                   .del = { .grace_s = -1 } });
    rig_wait(claim_says, (void *)(uintptr_t)ARGS("\"kind\":\"Pod\",\"name\":\"standby-held-1\""),
             "the claim after its predecessor's");
    patch_pod("standby-held-0", NULL, ON_A);
    patch_pod("standby-held-1", NULL, ON_A);
    min = 1;
    write_config(ROW_L4, "held");
    expect_pods("i-", 1, 0, "an instance");
    struct pods instance = list_pods("i-");
    expect_pods("standby-held-", 3, 2, "no standby Pod gone before the scheduler speaks");
    patch_pod(instance.name[0], "status", SCHEDULED("False", "Unschedulable"));
    expect_pods("standby-held-", 1, 1, "one with a place gone, and the one without");
    patch_pod(instance.name[0], NULL, ON_A);
    patch_pod(instance.name[0], "status", SCHEDULED("True", ""));
    expect_pods("standby-held-", 3, 1, "standby Pods anew");
    min = 0;
    more = "";
    stop();
}

static const struct kube_resource nodepools = { "karpenter.sh", "v1", "nodepools", true };

/* Makes a NodePool of one product, with a limit of eight GPUs and so many in use, or sets the latter. */
static void put_nodepool(const char *name, const char *product, bool there, int used)
{
    char body[1024];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"karpenter.sh/v1\",\"kind\":\"NodePool\",\"metadata\":{\"name\":\"%s\"},"
        "\"spec\":{\"template\":{\"spec\":{\"requirements\":[{\"key\":\"nvidia.com/gpu.product\","
        "\"operator\":\"In\",\"values\":[\"%s\"]}]}},\"limits\":{\"nvidia.com/gpu\":\"8\"}},"
        "\"status\":{\"resources\":{\"nvidia.com/gpu\":\"%d\"}}}",
        name, product, used);
    (void)kube_must(&world,
                    (struct kube_request){ .verb = there ? KUBE_PATCH : KUBE_CREATE,
                                           .resource = &nodepools,
                                           .name = there ? str_from(name) : (struct str){ 0 },
                                           .subresource = there ? "status" : NULL,
                                           .body = str_from(body) });
}

#define ROW_DEVICE(price)                                                                          \
    "{ labels: [nvidia.com/gpu.product=NVIDIA-L4], device: nvidia.com/gpu, price_per_hour: " price \
    " }"

#define ROW_B200_DEVICE \
    "{ labels: [nvidia.com/gpu.product=NVIDIA-B200], device: nvidia.com/gpu, price_per_hour: 9 }"

/* What Karpenter may add is bought without a node; its limit is a stock-out, and no Pod is made in vain. */
static void nodepools_are_offers(void **state)
{
    (void)state;
    start(ROW_DEVICE("1.5"), "nvidia-l4");
    put_nodepool("gpu", "NVIDIA-L4", false, 7);
    expect_offer("nvidia-l4", "\"price_per_h\":1.5,");
    expect_offer("nvidia-l4", "\"room\":0");
    min = 1;
    write_config(ROW_DEVICE("1.5"), "nvidia-l4");
    rig_wait(pod_says,
             (void *)(uintptr_t)ARGS("\"limits\":{\"nvidia.com/gpu\":\"1\"}",
                                     "\"nodeSelector\":{\"nvidia.com/gpu.product\":\"NVIDIA-L4\"}"),
             "a Pod that waits for a node");
    /* Events of one kind come in order: once the second NodePool is known, also at its limit, so is the first's. */
    put_nodepool("gpu", "NVIDIA-L4", true, 8);
    put_nodepool("more", "NVIDIA-B200", false, 8);
    write_config(ROW_DEVICE("2") ", " ROW_B200_DEVICE, "nvidia-l4, nvidia-b200");
    expect_offer("nvidia-b200", "\"price_per_h\":9,");
    int64_t made = kube_rig_seen(&server, "create");
    min = 2;
    write_config(ROW_DEVICE("2") ", " ROW_B200_DEVICE, "nvidia-l4, nvidia-b200");
    expect_offer("nvidia-l4", "\"last_error\":\"capacity\"");
    expect_offer("nvidia-l4",
                 "NodePool gpu is at its limit, nvidia.com/gpu=8 of 8, and nodes have no room");
    assert_int_equal(kube_rig_seen(&server, "create"), made);
    min = 0;
    stop();
}

static bool log_says(void *arg)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return file_read(controller.log, 1 << 20, &text, NULL) == 0 &&
           str_find(buf_view(&text), str_from(arg)) != SIZE_MAX;
}

/* A server without the API is no news; an account without the right is told once, with the rule. Nodes' offers
 * are sold all the same. */
static void an_api_may_be_missing(void **state)
{
    static const struct {
        int code;
        const char *says;
    } rows[] = {
        { 404, NULL },
        { 403,
          "apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch]" }
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "{\"verb\":\"list\",\"fault\":\"status\",\"code\":%d,\"count\":1000,\"resource\":"
                 "\"resourceslices\"}",
                 rows[i].code);
        fault = text;
        start(ROW_L4, "nvidia-l4, dra-nvidia-l4");
        make_node("a", L4, "\"nvidia.com/gpu\":\"8\"");
        expect_offer("nvidia-l4", "\"price_per_h\":1,");
        if (rows[i].says) rig_wait(log_says, (void *)(uintptr_t)rows[i].says, rows[i].says);
        assert_int_equal(log_says((void *)(uintptr_t) "kube_right_missing"), rows[i].says != NULL);
        assert_false(log_says((void *)(uintptr_t) "kube_api_absent")); /* at debug alone */
        stop();
        fault = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_change),
        cmocka_unit_test(offers_are_added),
        cmocka_unit_test(slices_are_bought),
        cmocka_unit_test(devices_are_claimed),
        cmocka_unit_test(claimed_standby_pods_give_way),
        cmocka_unit_test(nodepools_are_offers),
        cmocka_unit_test(an_api_may_be_missing),
    };
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL)) || !kube_rig_fake(&server, ARGS(NULL)))
        return RIG_SKIP;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kube_rig_end(&server);
    return rig_end(failed);
}
