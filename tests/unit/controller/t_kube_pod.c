/* t_kube_pod.c - tests the Pod that the Kubernetes driver writes and the objects that it reads. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/file.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/kube/kube_view.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct str engine_args[] = { { "/usr/bin/muster", 15 }, { "engine", 6 } };
static const struct launch_spec spec = { .instance = { "i-0123456789ab", 14 },
                                         .service = { "chat \"7b\"", 9 },
                                         .pool = { "l4", 2 },
                                         .offer = { "l4", 2 },
                                         .controller_host = { "muster-controller", 17 },
                                         .controller_port = 8090,
                                         .secret_file = { "/elsewhere", 10 },
                                         .engine_host = { "0.0.0.0", 7 },
                                         .engine_args = engine_args,
                                         .engine_arg_count = COUNT_OF(engine_args) };

static int write_pod(const char *template_yaml, const char *key, struct buf *out, struct err *err)
{
    static const struct kube_pair gpu[] = { { { "nvidia.com/gpu", 14 }, { "1", 1 } },
                                            { { "cpu", 3 }, { "4", 1 } } };
    static const struct kube_pair label[] = { { { "gpu", 3 }, { "l4", 2 } } };
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf template = { 0 };
    arena_init(&arena, 1 << 20);
    if (template_yaml) {
        struct config_node *tree = NULL;
        assert_int_equal(config_tree_parse(str_from(template_yaml), "pod.yaml", &arena, &tree, err),
                         0);
        config_tree_json(tree, &template);
    }
    const struct cloud_request request = { .intent = "i-0123456789ab",
                                           .spec = &spec,
                                           .key = str_from(key) };
    const struct kube_pod_ask ask = { .fleet = STR("prod"),
                                      .request = &request,
                                      .template = buf_view(&template),
                                      .image = STR("muster:1"),
                                      .resource = gpu,
                                      .resource_count = COUNT_OF(gpu),
                                      .node_label = label,
                                      .node_label_count = COUNT_OF(label),
                                      .owner = STR("{\"uid\":\"u\"}"),
                                      .grace_s = 310 };
    return kube_pod_write(&ask, out, err);
}

/* Asserts that the value at `path` of `json` is this text of JSON. */
static void has(struct str json, const char *path, const char *want)
{
    struct str value = { 0 };
    int rc = json_path(json, path, &value);
    if (rc < 0 || !str_eq(value, str_from(want)))
        fail_msg("%s: " STR_FMT ", not %s", path, STR_ARG(value), want);
}

/* Finds the item whose member `name` is `want`. */
struct search {
    const char *want;
    struct str found;
    uint32_t count;
};

static int look(void *ctx, struct str item)
{
    struct search *s = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    s->count++;
    if (json_path_text(item, "name", &name) == 0 && str_eq(buf_view(&name), str_from(s->want)))
        s->found = item;
    return 0;
}

static struct str item(struct str json, const char *path, const char *name)
{
    struct search s = { .want = name };
    assert_int_equal(json_path_each(json, path, look, &s), 0);
    if (s.found.len == 0) fail_msg("%s has no %s", path, name);
    return s.found;
}

static void a_pod_without_a_template(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf pod = { 0 };
    struct err err = { 0 };
    assert_int_equal(write_pod(NULL, "a key", &pod, &err), 0);
    struct str json = buf_view(&pod), box = item(json, "spec.containers", "muster");
    has(json, "metadata.name", "\"i-0123456789ab\"");
    has(json, "metadata.ownerReferences", "[{\"uid\":\"u\"}]");
    has(json, "spec.restartPolicy", "\"Never\"");
    has(json, "spec.terminationGracePeriodSeconds", "310");
    has(json, "spec.nodeSelector", "{\"gpu\":\"l4\"}");
    has(json, "spec.tolerations", "[{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\"}]");
    has(json, "spec.securityContext.runAsNonRoot", "true");
    has(json, "spec.automountServiceAccountToken", "false");
    has(box, "image", "\"muster:1\"");
    has(box, "args", "[\"agent\",\"--spec\",\"/run/muster/launch/launch.json\"]");
    has(box, "resources",
        "{\"limits\":{\"nvidia.com/gpu\":\"1\",\"cpu\":\"4\"},"
        "\"requests\":{\"nvidia.com/gpu\":\"1\",\"cpu\":\"4\"}}");
    has(box, "readinessProbe.httpGet.path", "\"/ready\"");
    has(item(box, "env", "MUSTER_AGENT_ENGINE_HOST"), "valueFrom.fieldRef.fieldPath",
        "\"status.podIP\"");
    has(item(json, "spec.volumes", "muster-key"), "secret.secretName", "\"i-0123456789ab\"");
    assert_true(str_find(json, STR("/elsewhere")) == SIZE_MAX);

    pod.len = 0;
    assert_int_equal(write_pod(NULL, "", &pod, &err), 0); /* no key: no Secret, the file stays */
    assert_true(str_find(buf_view(&pod), STR("muster-key")) == SIZE_MAX);
    assert_true(str_find(buf_view(&pod), STR("/elsewhere")) != SIZE_MAX);
}

static int find_launch(void *ctx, struct str name, struct str value)
{
    if (str_eq(name, STR("muster.dev/launch"))) *(struct str *)ctx = value;
    return 0;
}

static void the_launch_document_goes_through(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf pod = { 0 }, text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct str quoted = { 0 };
    struct launch_spec back;
    struct err err = { 0 };
    arena_init(&arena, 1 << 20);
    assert_int_equal(write_pod(NULL, "a key", &pod, &err), 0);
    assert_int_equal(
        json_path_each_member(buf_view(&pod), "metadata.annotations", find_launch, &quoted), 0);
    assert_int_equal(json_path_text(quoted, "", &text), 0);
    assert_int_equal(launch_spec_decode(buf_view(&text), &arena, &back, &err), 0);
    assert_true(str_eq(back.service, spec.service));
    assert_true(str_eq(back.folder, STR("/run/muster/state")));
    assert_true(str_eq(back.secret_file, STR("/run/muster/key/key")));
    assert_int_equal(back.engine_arg_count, 2);

    struct kube_pod read;
    assert_int_equal(kube_pod_read(buf_view(&pod), &read, &err), 0);
    assert_string_equal(read.listed.intent, "i-0123456789ab");
    assert_string_equal(read.listed.service, "chat \"7b\"");
    assert_string_equal(read.listed.offer, "l4");
    assert_false(read.listed.unreadable);
}

static void a_template_is_kept(void **state)
{
    (void)state;
    static const char template[] = "metadata:\n"
                                   "  labels: {team: search, muster.dev/service: another}\n"
                                   "spec:\n"
                                   "  terminationGracePeriodSeconds: 600\n"
                                   "  priorityClassName: high\n"
                                   "  nodeSelector: {disk: \"1\"}\n"
                                   "  securityContext: {runAsUser: 7}\n"
                                   "  volumes:\n"
                                   "    - {name: models, hostPath: {path: /models}}\n"
                                   "  containers:\n"
                                   "    - {name: sidecar, image: s}\n"
                                   "    - name: muster\n"
                                   "      image: vllm:2\n"
                                   "      command: [/run/muster]\n"
                                   "      env: [{name: A, value: \"yes\"}]\n"
                                   "      volumeMounts: [{name: models, mountPath: /m}]\n"
                                   "      livenessProbe: {exec: {command: [x]}}\n"
                                   "      workingDir: /w\n";
    CLEANUP(buf_fini) struct buf pod = { 0 };
    struct err err = { 0 };
    assert_int_equal(write_pod(template, "a key", &pod, &err), 0);
    struct str json = buf_view(&pod), box = item(json, "spec.containers", "muster");
    has(json, "metadata.labels.team", "\"search\"");
    /* The driver's own label stands in for the template's. */
    assert_true(str_find(json, STR("\"muster.dev/service\":\"chat--7b-a8ae04a3\"")) != SIZE_MAX);
    assert_true(str_find(json, STR("another")) == SIZE_MAX);
    has(json, "spec.terminationGracePeriodSeconds", "600");
    has(json, "spec.priorityClassName", "\"high\"");
    has(json, "spec.nodeSelector", "{\"disk\":\"1\",\"gpu\":\"l4\"}");
    has(json, "spec.securityContext", "{\"runAsUser\":7}");
    has(item(json, "spec.containers", "sidecar"), "image", "\"s\"");
    has(box, "image", "\"vllm:2\"");
    has(box, "command", "[\"/run/muster\"]");
    has(box, "workingDir", "\"/w\"");
    has(box, "livenessProbe", "{\"exec\":{\"command\":[\"x\"]}}");
    has(box, "resources.limits.cpu", "\"4\"");
    has(item(box, "env", "A"), "value", "\"yes\"");
    (void)item(box, "volumeMounts", "models");
    (void)item(box, "volumeMounts", "muster-launch");
    (void)item(json, "spec.volumes", "models");
    (void)item(json, "spec.volumes", "muster-state");
}

/* A selector of a service matches what its Pods are labelled with. */
static void a_selector_matches_the_pods(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf pod = { 0 };
    char selector[KUBE_POD_SELECTOR_BYTES];
    struct err err = { 0 };
    assert_int_equal(write_pod(NULL, "a key", &pod, &err), 0);
    kube_pod_selector(STR("prod"), spec.service, selector);
    assert_string_equal(selector, "muster.dev/fleet=prod,muster.dev/service=chat--7b-a8ae04a3");
    assert_true(kube_has_label(buf_view(&pod), STR(KUBE_LABEL_FLEET), STR("prod")));
    assert_true(kube_has_label(buf_view(&pod), STR(KUBE_LABEL_SERVICE), STR("chat--7b-a8ae04a3")));
}

static void what_the_driver_owns_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *template, *says;
    } rows[] = {
        { "spec: {containers: [{name: muster, args: [x]}]}", "args of the container muster" },
        { "spec: {restartPolicy: Always}", "restartPolicy" },
        { "metadata: {name: mine}", "metadata.name" },
        { "metadata: {ownerReferences: []}", "metadata.ownerReferences" },
        { "spec: {containers: muster}", "not the object of a Pod" },
        { "spec: {volumes: {a: b}}", "not the object of a Pod" },
        { "spec: [1]", "not the object of a Pod" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf pod = { 0 };
        struct err err = { 0 };
        assert_int_equal(write_pod(rows[i].template, "k", &pod, &err), -EINVAL);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s: %s", rows[i].template, err.text);
    }
}

#define POD(metadata, status)                                                                  \
    "{\"metadata\":{\"name\":\"i-1\",\"uid\":\"u-1\",\"annotations\":{\"muster.dev/service\":" \
    "\"s\",\"muster.dev/pool\":\"p\",\"muster.dev/offer\":\"o\"},\"creationTimestamp\":"       \
    "\"2026-11-24T12:00:00Z\"" metadata "},\"spec\":{\"nodeName\":\"n\"},\"status\":{" status "}}"

static void states_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum kube_wait wait;
        bool gone;
        int64_t after_s; /* started, or leaves, behind creation; 0: neither */
        const char *why;
    } rows[] = {
        { POD("", "\"phase\":\"Pending\""), KUBE_WAIT_NONE, false, 0, "" },
        { POD("", "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
                  "\"False\",\"reason\":\"Unschedulable\",\"message\":\"0/3 nodes are "
                  "available: 3 Insufficient nvidia.com/gpu.\"}]"),
          KUBE_WAIT_SCHEDULE, false, 0, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu." },
        { POD("", "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
                  "\"False\",\"reason\":\"SchedulingGated\"}]"),
          KUBE_WAIT_NONE, false, 0, "" },
        { POD("", "\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{"
                  "\"reason\":\"ImagePullBackOff\",\"message\":\"no such image\"}}}]"),
          KUBE_WAIT_IMAGE, false, 0, "ImagePullBackOff: no such image" },
        { POD("", "\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{"
                  "\"reason\":\"CreateContainerConfigError\",\"message\":\"secret not found\"}}}]"),
          KUBE_WAIT_CONFIG, false, 0, "CreateContainerConfigError: secret not found" },
        { POD("", "\"phase\":\"Running\",\"containerStatuses\":[{\"state\":{\"running\":{"
                  "\"startedAt\":\"2026-11-24T12:00:07Z\"}}}]"),
          KUBE_WAIT_NONE, false, 7, "" },
        { POD(",\"deletionTimestamp\":\"2026-11-24T12:05:00Z\"", "\"phase\":\"Running\""),
          KUBE_WAIT_NONE, false, 300, "" },
        { POD("", "\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{"
                  "\"reason\":\"OOMKilled\",\"exitCode\":137}}}]"),
          KUBE_WAIT_NONE, true, 0, "OOMKilled (exit status 137)" },
        { POD("", "\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"low on memory\""),
          KUBE_WAIT_NONE, true, 0, "Evicted: low on memory" },
        { POD("", "\"phase\":\"Succeeded\",\"containerStatuses\":[{\"state\":{\"terminated\":{"
                  "\"reason\":\"Completed\",\"exitCode\":0}}}]"),
          KUBE_WAIT_NONE, true, 0, "" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_pod p;
        struct err err = { 0 };
        assert_int_equal(kube_pod_read(str_from(rows[i].json), &p, &err), 0);
        assert_int_equal(p.wait, rows[i].wait);
        assert_int_equal(p.listed.gone, rows[i].gone);
        assert_string_equal(p.listed.why, rows[i].why);
        assert_string_equal(p.node, "n");
        int64_t at_us = p.started_us ? p.started_us : p.listed.leaves_us;
        assert_int_equal(at_us ? at_us - p.listed.created_us : 0, rows[i].after_s * 1000000);
    }
}

static void strangers_are_told_apart(void **state)
{
    (void)state;
    struct kube_pod p;
    struct err err = { 0 };
    assert_int_equal(kube_pod_read(STR("{\"metadata\":{\"name\":\"i-2\"}}"), &p, &err), 0);
    assert_true(p.listed.unreadable);
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"metadata\":{}}",
        "{\"metadata\":{\"name\":\"\"}}",
        "{\"metadata\":{\"name\":\"a-name-of-more-than-sixty-three-bytes-is-no-intent-of-ours-and-"
        "no-"
        "instance\"}}",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(kube_pod_read(str_from(bad[i]), &p, &err), -EINVAL);
}

/* Reads every beginning of a Pod's object, and the object with every byte changed: no crash, no hang. */
static void cut_and_spoilt_objects(void **state)
{
    (void)state;
    char text[] = POD(",\"deletionTimestamp\":\"2026-11-24T12:05:00Z\"",
                      "\"phase\":\"Failed\",\"reason\":\"Evicted\",\"conditions\":[{\"type\":"
                      "\"PodScheduled\",\"status\":\"True\"}],\"containerStatuses\":[{\"state\":{"
                      "\"terminated\":{\"reason\":\"OOMKilled\",\"exitCode\":137}}}]");
    struct kube_pod p;
    struct err err = { 0 };
    for (size_t i = 0; i < sizeof text - 1; i++) {
        (void)kube_pod_read(str_of(text, i), &p, &err);
        char kept = text[i];
        for (size_t k = 0; k < 4; k++) {
            text[i] = "\"{]x"[k];
            (void)kube_pod_read(str_from(text), &p, &err);
        }
        text[i] = kept;
    }
    assert_int_equal(kube_pod_read(str_from(text), &p, &err), 0);
}

/* ---- settings ---- */

static void settings_are_checked(void **state)
{
    (void)state;
    char path[] = "/tmp/t_kube_pod.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_write_atomic(path, STR("spec:\n  restartPolicy: Always\n"), 0600, NULL),
                     0);
    static const struct str good[] = { { "nvidia.com/gpu=1", 16 } }, bad[] = { { "gpu", 3 } },
                            empty[] = { { "gpu=", 4 } };
    const struct {
        struct kube_offer_section offer;
        struct str image, owner;
        const char *says; /* NULL: it is taken */
    } rows[] = {
        { { .name = STR("a"), .resources = { good, 1 } }, STR("i"), { 0 }, NULL },
        { { .name = STR("a") }, STR("i"), STR("deployments/x"), NULL },
        { { .name = STR("a") }, STR("i"), STR("pods/x"), "kubernetes.owner: 'pods/x'" },
        { { .name = STR("a") }, STR("i"), STR("deployments/"), "want deployments/NAME" },
        { { .name = STR("a") }, { 0 }, { 0 }, "offer a: no image" },
        { { .name = STR("a"), .resources = { bad, 1 } }, STR("i"), { 0 }, "resources: 'gpu'" },
        { { .name = STR("a"), .node_labels = { empty, 1 } },
          STR("i"),
          { 0 },
          "node_labels: 'gpu='" },
        { { .name = STR("a"), .pod = str_from(path) }, STR("i"), { 0 }, "restartPolicy" },
        { { .name = STR("a"), .pod = STR("/nowhere") }, STR("i"), { 0 }, "/nowhere" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(arena_fini) struct arena arena;
        struct kube_settings settings;
        struct err err = { 0 };
        arena_init(&arena, 4 << 20);
        const struct kube_section section = { .image = rows[i].image,
                                              .owner = rows[i].owner,
                                              .offers = { (void *)(uintptr_t)&rows[i].offer, 1 } };
        int rc = kube_settings_make(&section, &arena, &settings, &err);
        assert_int_equal(rc == 0, rows[i].says == NULL);
        if (rc < 0 && !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %s, not %s", i, err.text, rows[i].says);
        if (rc == 0) assert_string_equal(settings.sold[0].offer.provider, "kubernetes");
    }
    remove(path);
}

/* ---- nodes ---- */

static void notices_of_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int64_t us;
        const char *taint;
    } rows[] = {
        { "{}", -1, NULL },
        { "{\"spec\":{\"unschedulable\":true,\"taints\":[{\"key\":"
          "\"node.kubernetes.io/unschedulable\"}]}}",
          -1, NULL },
        { "{\"spec\":{\"taints\":[{\"key\":\"a\"},{\"key\":"
          "\"aws-node-termination-handler/spot-itn\"}]}}",
          120000000, "aws-node-termination-handler/spot-itn" },
        { "{\"spec\":{\"taints\":[{\"key\":\"karpenter.sh/disrupted\"}]}}", 7, /* the grace */
          "karpenter.sh/disrupted" },
        { "{\"spec\":{\"taints\":[{\"key\":\"karpenter.sh/disrupted\"},{\"key\":"
          "\"cloud.google.com/impending-node-termination\"},{\"key\":"
          "\"aws-node-termination-handler/spot-itn\"}]}}",
          30000000, "cloud.google.com/impending-node-termination" }, /* the soonest */
        { "{\"spec\":{\"taints\":\"x\"}}", -1, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *taint = NULL;
        assert_int_equal(kube_node_notice(str_from(rows[i].json), 7, &taint), rows[i].us);
        if (rows[i].taint) assert_string_equal(taint, rows[i].taint);
    }
}

/* Labels to avoid become an expression of each term; spread and class of the template stay. */
static void nodes_are_avoided_in_each_term(void **state)
{
    (void)state;
    static const struct {
        const char *template, *want;
    } rows[] = {
        { "{\"spec\":{}}",
          "{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{"
          "\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"spot\",\"operator\":"
          "\"NotIn\",\"values\":[\"yes\"]}]}]}}}" },
        { "{\"spec\":{\"affinity\":{\"podAffinity\":{\"a\":1},\"nodeAffinity\":{\"preferred\":[],"
          "\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{"
          "\"matchExpressions\":[{\"key\":\"x\"}]},{\"matchFields\":[1]}]}}}}}",
          "{\"podAffinity\":{\"a\":1},\"nodeAffinity\":{\"preferred\":[],"
          "\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{"
          "\"matchExpressions\":[{\"key\":\"x\"},{\"key\":\"spot\",\"operator\":\"NotIn\","
          "\"values\":[\"yes\"]}]},{\"matchExpressions\":[{\"key\":\"spot\",\"operator\":\"NotIn\","
          "\"values\":[\"yes\"]}],\"matchFields\":[1]}]}}}" },
    };
    static const struct kube_pair avoid[] = { { { "spot", 4 }, { "yes", 3 } } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf pod = { 0 };
        struct err err = { 0 };
        const struct cloud_request request = { .intent = "i-0123456789ab", .spec = &spec };
        const struct kube_pod_ask ask = { .request = &request,
                                          .template = str_from(rows[i].template),
                                          .avoid = avoid,
                                          .avoid_count = 1 };
        assert_int_equal(kube_pod_write(&ask, &pod, &err), 0);
        has(buf_view(&pod), "spec.affinity", rows[i].want);
    }
}

static void spread_and_class_are_the_templates(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf pod = { 0 }, standby = { 0 };
    struct err err = { 0 };
    static const char template[] =
        "{\"spec\":{\"priorityClassName\":\"serving\",\"nodeSelector\":{\"a\":\"b\"},"
        "\"topologySpreadConstraints\":[{\"maxSkew\":1,\"topologyKey\":\"zone\"}]}}";
    const struct cloud_request request = { .intent = "i-0123456789ab", .spec = &spec };
    struct kube_pod_ask ask = { .request = &request, .template = str_from(template) };
    assert_int_equal(kube_pod_write(&ask, &pod, &err), 0);
    has(buf_view(&pod), "spec.topologySpreadConstraints",
        "[{\"maxSkew\":1,\"topologyKey\":\"zone\"}]");
    has(buf_view(&pod), "spec.priorityClassName", "\"serving\"");
    ask.priority = STR("standby");
    assert_int_equal(kube_standby_write(&ask, "standby-l4-0", STR("pause:1"), &standby, &err), 0);
    has(buf_view(&standby), "spec.priorityClassName", "\"standby\"");
    has(buf_view(&standby), "spec.nodeSelector", "{\"a\":\"b\"}");
    has(buf_view(&standby), "spec.terminationGracePeriodSeconds", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_avoided_in_each_term),
        cmocka_unit_test(spread_and_class_are_the_templates),
        cmocka_unit_test(a_pod_without_a_template),
        cmocka_unit_test(the_launch_document_goes_through),
        cmocka_unit_test(a_template_is_kept),
        cmocka_unit_test(a_selector_matches_the_pods),
        cmocka_unit_test(what_the_driver_owns_is_refused),
        cmocka_unit_test(states_are_read),
        cmocka_unit_test(strangers_are_told_apart),
        cmocka_unit_test(cut_and_spoilt_objects),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(notices_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
