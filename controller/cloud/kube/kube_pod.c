/* kube_pod.c - merges a template with what an instance needs.
 *
 * The template is copied member by member: unknown fields of newer API versions pass through. What the
 * driver adds to lists (volumes, mounts, environment, tolerations) comes after the template's entries. */
#include "controller/cloud/kube/kube_pod.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

#define LAUNCH_FILE KUBE_FOLDER "/launch/launch.json"
#define CONTAINER "muster"
#define CLAIM "muster-devices"

static const char *const annotations[] = KUBE_NAME_ANNOTATIONS;

struct pod_writer {
    struct json_writer w;
    const struct kube_pod_ask *ask;
    const char *const *skip; /* members of the template that are written by us */
    const char *refused;     /* a member that only the driver may set */
    bool found;              /* the engine's container */
    struct str container;    /* its name, once it is merged */
};

static int copy_member(void *ctx, struct str name, struct str value)
{
    struct pod_writer *p = ctx;
    for (size_t i = 0; p->skip && p->skip[i]; i++)
        if (str_eq(name, str_from(p->skip[i]))) return 0;
    json_key_str(&p->w, name);
    json_put_raw(&p->w, value);
    return 0;
}

static int copy_item(void *ctx, struct str item)
{
    struct pod_writer *p = ctx;
    json_put_raw(&p->w, item);
    return 0;
}

/* Copies the members of the template's object at `path` but those in `skip`. */
static int copy_members(struct pod_writer *p, struct str json, const char *path,
                        const char *const *skip)
{
    const char *const *outer = p->skip;
    p->skip = skip;
    int rc = json.len > 0 ? json_path_each_member(json, path, copy_member, p) : 0;
    p->skip = outer;
    return rc == -ENOENT ? 0 : rc;
}

static int copy_items(struct pod_writer *p, struct str json, const char *path)
{
    int rc = json.len > 0 ? json_path_each(json, path, copy_item, p) : 0;
    return rc == -ENOENT ? 0 : rc;
}

static bool has(struct str json, const char *path)
{
    struct str value;
    return json.len > 0 && json_path(json, path, &value) == 0;
}

static void put_volumes(struct pod_writer *p)
{
    struct json_writer *w = &p->w;
    json_put_raw(w, STR("{\"name\":\"muster-state\",\"emptyDir\":{}}"));
    json_put_raw(w, STR("{\"name\":\"muster-launch\",\"downwardAPI\":{\"items\":[{\"path\":"
                        "\"launch.json\",\"fieldRef\":{\"fieldPath\":"
                        "\"metadata.annotations['" KUBE_DOMAIN "launch']\"}}]}}"));
    if (p->ask->request->key.len == 0) return;
    json_object(w);
    json_kv_text(w, "name", "muster-key");
    json_key(w, "secret");
    json_object(w);
    json_kv_text(w, "secretName", p->ask->request->intent);
    json_kv_i64(w, "defaultMode", 0440);
    json_object_end(w);
    json_object_end(w);
}

static void put_mount(struct json_writer *w, const char *name, const char *path, bool read_only)
{
    json_object(w);
    json_kv_text(w, "name", name);
    json_kv_text(w, "mountPath", path);
    json_kv_bool(w, "readOnly", read_only);
    json_object_end(w);
}

/* Tells the agent, in its settings' variables, what only the Pod knows and what containers want. */
static void put_env(struct json_writer *w)
{
    char listen[32];
    snprintf(listen, sizeof listen, "0.0.0.0:%d", KUBE_AGENT_PORT);
    const char *const set[][2] = { { "MUSTER_AGENT_LISTEN", listen },
                                   { "MUSTER_AGENT_ENGINE_LOG", "inherit" } };
    for (size_t i = 0; i < COUNT_OF(set); i++) {
        json_object(w);
        json_kv_text(w, "name", set[i][0]);
        json_kv_text(w, "value", set[i][1]);
        json_object_end(w);
    }
    json_put_raw(w, STR("{\"name\":\"MUSTER_AGENT_ENGINE_HOST\",\"valueFrom\":{\"fieldRef\":"
                        "{\"fieldPath\":\"status.podIP\"}}}"));
}

/* The agent lives as long as its container; a loading model is not ready and is never killed for it. */
static void put_probes(struct pod_writer *p, struct str template)
{
    static const struct {
        const char *name, *path;
        int period_s, failures_max;
    } probes[] = { { "readinessProbe", "/ready", 2, 1 }, { "livenessProbe", "/health", 10, 6 } };
    for (size_t i = 0; i < COUNT_OF(probes); i++) {
        if (has(template, probes[i].name)) continue;
        json_key(&p->w, probes[i].name);
        json_object(&p->w);
        json_key(&p->w, "httpGet");
        json_object(&p->w);
        json_kv_text(&p->w, "path", probes[i].path);
        json_kv_i64(&p->w, "port", KUBE_AGENT_PORT);
        json_object_end(&p->w);
        json_kv_i64(&p->w, "periodSeconds", probes[i].period_s);
        json_kv_i64(&p->w, "failureThreshold", probes[i].failures_max);
        json_object_end(&p->w);
    }
}

/* Writes the container's claims: those of the template, and ours. */
static int put_claims(struct pod_writer *p, struct str template)
{
    json_key(&p->w, "claims");
    json_array(&p->w);
    int rc = copy_items(p, template, "resources.claims");
    json_put_raw(&p->w, STR("{\"name\":\"" CLAIM "\"}"));
    json_array_end(&p->w);
    return rc;
}

/* Requests equal limits: an instance is as fast as its offer says, whoever is beside it. The template's own stay
 * where the offer asks for none. */
static int put_resources(struct pod_writer *p, struct str template)
{
    static const char *const claims[] = { "claims", NULL };
    const struct kube_pod_ask *ask = p->ask;
    int rc = 0;
    if (ask->resource_count == 0 && ask->claim.len == 0) return 0;
    json_key(&p->w, "resources");
    json_object(&p->w);
    if (ask->claim.len > 0) rc = put_claims(p, template);
    if (ask->resource_count == 0) {
        if (rc == 0 && has(template, "resources"))
            rc = copy_members(p, template, "resources", claims);
        json_object_end(&p->w);
        return rc;
    }
    for (int part = 0; part < 2; part++) {
        json_key(&p->w, part == 0 ? "limits" : "requests");
        json_object(&p->w);
        for (uint32_t i = 0; i < ask->resource_count; i++) {
            json_key_str(&p->w, ask->resource[i].name);
            json_put_str(&p->w, ask->resource[i].value);
        }
        json_object_end(&p->w);
    }
    json_object_end(&p->w);
    return rc;
}

static int put_container(struct pod_writer *p, struct str template)
{
    static const char *const ours[] = { "name",         "image", "imagePullPolicy", "args", "env",
                                        "volumeMounts", NULL };
    static const char *const ours_and_resources[] = { "name",      "image", "imagePullPolicy",
                                                      "args",      "env",   "volumeMounts",
                                                      "resources", NULL };
    const struct kube_pod_ask *ask = p->ask;
    struct json_writer *w = &p->w;
    CLEANUP(buf_fini) struct buf image = { 0 }, policy = { 0 };
    if (has(template, "args")) p->refused = "the args of the container " CONTAINER;
    if (json_path_text(template, "image", &image) == -EINVAL ||
        json_path_text(template, "imagePullPolicy", &policy) == -EINVAL)
        return -EINVAL;
    json_object(w);
    json_kv_str(w, "name", p->container);
    json_kv_str(w, "image", image.len > 0 ? buf_view(&image) : ask->image);
    struct str pull = policy.len > 0 ? buf_view(&policy) : ask->pull_policy;
    if (pull.len > 0) json_kv_str(w, "imagePullPolicy", pull);
    json_key(w, "args");
    json_put_raw(w, STR("[\"agent\",\"--spec\",\"" LAUNCH_FILE "\"]"));
    json_key(w, "env");
    json_array(w);
    int rc = copy_items(p, template, "env");
    put_env(w);
    json_array_end(w);
    json_key(w, "volumeMounts");
    json_array(w);
    if (rc == 0) rc = copy_items(p, template, "volumeMounts");
    put_mount(w, "muster-launch", KUBE_FOLDER "/launch", true);
    put_mount(w, "muster-state", KUBE_STATE_FOLDER, false);
    if (ask->request->key.len > 0) put_mount(w, "muster-key", KUBE_FOLDER "/key", true);
    json_array_end(w);
    if (!has(template, "securityContext")) {
        json_key(w, "securityContext");
        json_put_raw(w, STR("{\"allowPrivilegeEscalation\":false,\"readOnlyRootFilesystem\":true,"
                            "\"capabilities\":{\"drop\":[\"ALL\"]}}"));
    }
    put_probes(p, template);
    if (rc == 0) rc = put_resources(p, template);
    bool resources = ask->resource_count > 0 || ask->claim.len > 0;
    if (rc == 0) rc = copy_members(p, template, "", resources ? ours_and_resources : ours);
    json_object_end(w);
    return rc;
}

static bool is_engine(struct str item)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    return json_path_text(item, "name", &name) == 0 && str_eq(buf_view(&name), STR(CONTAINER));
}

static int find_engine(void *ctx, struct str item)
{
    struct pod_writer *p = ctx;
    p->found = p->found || is_engine(item);
    return 0;
}

/* Merges the engine's container, which is the one called `muster`, else the first; copies the others. */
static int each_container(void *ctx, struct str item)
{
    struct pod_writer *p = ctx;
    bool merge = p->found ? is_engine(item) : p->container.len == 0;
    if (!merge) return copy_item(ctx, item);
    CLEANUP(buf_fini) struct buf name = { 0 };
    int rc = json_path_text(item, "name", &name);
    if (rc < 0 && rc != -ENOENT) return rc;
    p->container = name.len > 0 ? buf_view(&name) : STR(CONTAINER);
    rc = put_container(p, item);
    p->container = STR(CONTAINER);
    return rc;
}

static int put_containers(struct pod_writer *p)
{
    int rc = -ENOENT;
    json_key(&p->w, "containers");
    json_array(&p->w);
    if (has(p->ask->template, "spec.containers")) {
        rc = json_path_each(p->ask->template, "spec.containers", find_engine, p);
        if (rc == 0) rc = json_path_each(p->ask->template, "spec.containers", each_container, p);
    }
    if (rc == -ENOENT || (rc == 0 && p->container.len == 0)) {
        p->container = STR(CONTAINER);
        rc = put_container(p, STR("{}"));
    }
    json_array_end(&p->w);
    return rc;
}

static void put_toleration(struct json_writer *w, struct str key)
{
    json_object(w);
    json_kv_str(w, "key", key);
    json_kv_text(w, "operator", "Exists");
    json_object_end(w);
}

/* Device plug-ins' nodes are usually tainted with the resource's own name, those with slices with that of GPUs. */
static void put_tolerations(struct pod_writer *p)
{
    const struct kube_pod_ask *ask = p->ask;
    for (uint32_t i = 0; i < ask->resource_count; i++) {
        struct str name = ask->resource[i].name;
        if (str_find(name, STR("/")) != SIZE_MAX) put_toleration(&p->w, name);
        if (str_starts(name, STR(KUBE_MIG))) put_toleration(&p->w, STR(KUBE_GPU));
    }
    for (uint32_t i = 0; i < ask->tolerate_count; i++)
        put_toleration(&p->w, ask->tolerate[i].name);
}

/* ---- affinity ---- */

#define NODE_AFFINITY "spec.affinity.nodeAffinity"
#define REQUIRED "requiredDuringSchedulingIgnoredDuringExecution"

/* Writes the expressions of one term: the template's, and that no label to avoid has its value. */
static int put_term(void *ctx, struct str term)
{
    static const char *const ours[] = { "matchExpressions", NULL };
    struct pod_writer *p = ctx;
    json_object(&p->w);
    json_key(&p->w, "matchExpressions");
    json_array(&p->w);
    int rc = copy_items(p, term, "matchExpressions");
    for (uint32_t i = 0; i < p->ask->avoid_count; i++) {
        json_object(&p->w);
        json_kv_str(&p->w, "key", p->ask->avoid[i].name);
        json_kv_text(&p->w, "operator", "NotIn");
        json_key(&p->w, "values");
        json_array(&p->w);
        json_put_str(&p->w, p->ask->avoid[i].value);
        json_array_end(&p->w);
        json_object_end(&p->w);
    }
    json_array_end(&p->w);
    if (rc == 0) rc = copy_members(p, term, "", ours);
    json_object_end(&p->w);
    return rc;
}

/* Terms are alternatives: each of the template's gets the labels to avoid. */
static int put_required(struct pod_writer *p)
{
    static const char terms[] = NODE_AFFINITY "." REQUIRED ".nodeSelectorTerms";
    const struct str t = p->ask->template;
    if (p->ask->avoid_count == 0 && !has(t, terms)) return 0;
    json_key(&p->w, REQUIRED);
    json_object(&p->w);
    json_key(&p->w, "nodeSelectorTerms");
    json_array(&p->w);
    int rc = has(t, terms) ? json_path_each(t, terms, put_term, p) : put_term(p, STR("{}"));
    json_array_end(&p->w);
    json_object_end(&p->w);
    return rc;
}

static int put_affinity(struct pod_writer *p)
{
    static const char *const node[] = { "nodeAffinity", NULL };
    static const char *const required[] = { REQUIRED, NULL };
    const struct str t = p->ask->template;
    json_key(&p->w, "affinity");
    json_object(&p->w);
    int rc = has(t, "spec.affinity") ? copy_members(p, t, "spec.affinity", node) : 0;
    json_key(&p->w, "nodeAffinity");
    json_object(&p->w);
    if (rc == 0 && has(t, NODE_AFFINITY)) rc = copy_members(p, t, NODE_AFFINITY, required);
    if (rc == 0) rc = put_required(p);
    json_object_end(&p->w);
    json_object_end(&p->w);
    return rc;
}

static void put_spec_defaults(struct pod_writer *p)
{
    const struct str t = p->ask->template;
    if (!has(t, "spec.automountServiceAccountToken"))
        json_kv_bool(&p->w, "automountServiceAccountToken", false);
    if (!has(t, "spec.enableServiceLinks")) json_kv_bool(&p->w, "enableServiceLinks", false);
    if (p->ask->priority.len > 0) json_kv_str(&p->w, "priorityClassName", p->ask->priority);
    if (has(t, "spec.securityContext")) return;
    json_key(&p->w, "securityContext");
    json_object(&p->w);
    json_kv_bool(&p->w, "runAsNonRoot", true);
    json_kv_i64(&p->w, "runAsUser", KUBE_USER);
    json_kv_i64(&p->w, "runAsGroup", KUBE_USER);
    json_kv_i64(&p->w, "fsGroup", KUBE_USER);
    json_key(&p->w, "seccompProfile");
    json_put_raw(&p->w, STR("{\"type\":\"RuntimeDefault\"}"));
    json_object_end(&p->w);
}

/* Writes which nodes take the Pod: labels, and taints that it tolerates. */
static int put_nodes(struct pod_writer *p)
{
    const struct kube_pod_ask *ask = p->ask;
    json_key(&p->w, "nodeSelector");
    json_object(&p->w);
    int rc = copy_members(p, ask->template, "spec.nodeSelector", NULL);
    for (uint32_t i = 0; i < ask->node_label_count; i++) {
        json_key_str(&p->w, ask->node_label[i].name);
        json_put_str(&p->w, ask->node_label[i].value);
    }
    json_object_end(&p->w);
    json_key(&p->w, "tolerations");
    json_array(&p->w);
    if (rc == 0) rc = copy_items(p, ask->template, "spec.tolerations");
    put_tolerations(p);
    json_array_end(&p->w);
    return rc;
}

/* Writes the Pod's claims: those of the template, and ours, which is called as the Pod. */
static int put_pod_claims(struct pod_writer *p, struct str template)
{
    json_key(&p->w, "resourceClaims");
    json_array(&p->w);
    int rc = copy_items(p, template, "spec.resourceClaims");
    json_object(&p->w);
    json_kv_text(&p->w, "name", CLAIM);
    json_kv_str(&p->w, "resourceClaimName", p->ask->claim);
    json_object_end(&p->w);
    json_array_end(&p->w);
    return rc;
}

static int put_spec(struct pod_writer *p)
{
    /* Two more are ours where there is something to add to the template's. */
    const char *ours[] = { "containers",
                           "volumes",
                           "restartPolicy",
                           "terminationGracePeriodSeconds",
                           "nodeSelector",
                           "tolerations",
                           NULL,
                           NULL,
                           NULL };
    uint32_t count = 6;
    const struct kube_pod_ask *ask = p->ask;
    uint64_t grace_s = 0;
    int rc = ask->template.len > 0
                 ? json_path_u64(ask->template, "spec.terminationGracePeriodSeconds", &grace_s)
                 : -ENOENT;
    if (rc < 0 && rc != -ENOENT) return rc;
    if (has(ask->template, "spec.restartPolicy"))
        p->refused = "restartPolicy: an instance that ends is replaced, not restarted";
    json_object(&p->w);
    json_kv_text(&p->w, "restartPolicy", "Never");
    json_kv_i64(&p->w, "terminationGracePeriodSeconds", max_i64((int64_t)grace_s, ask->grace_s));
    put_spec_defaults(p);
    rc = put_containers(p);
    json_key(&p->w, "volumes");
    json_array(&p->w);
    if (rc == 0) rc = copy_items(p, ask->template, "spec.volumes");
    put_volumes(p);
    json_array_end(&p->w);
    if (rc == 0) rc = put_nodes(p);
    if (ask->avoid_count > 0) ours[count++] = "affinity";
    if (rc == 0 && ask->avoid_count > 0) rc = put_affinity(p);
    if (ask->claim.len > 0) ours[count++] = "resourceClaims";
    if (rc == 0 && ask->claim.len > 0) rc = put_pod_claims(p, ask->template);
    if (rc == 0) rc = copy_members(p, ask->template, "spec", ours);
    json_object_end(&p->w);
    return rc;
}

/* The launch document names files as the container sees them. */
static int put_launch(struct pod_writer *p)
{
    CLEANUP(buf_fini) struct buf text = { .max = LAUNCH_BYTES_MAX };
    struct launch_spec spec = *p->ask->request->spec;
    spec.folder = STR(KUBE_STATE_FOLDER);
    if (p->ask->request->key.len > 0) spec.secret_file = STR(KUBE_KEY_FILE);
    int rc = launch_spec_encode(&spec, &text);
    if (rc == 0) json_kv_str(&p->w, KUBE_DOMAIN "launch", buf_view(&text));
    return rc;
}

static const char *const label_names[] = { "app.kubernetes.io/name",
                                           "app.kubernetes.io/component",
                                           "app.kubernetes.io/managed-by",
                                           KUBE_LABEL_FLEET,
                                           KUBE_LABEL_SERVICE,
                                           NULL };

static void put_labels(struct json_writer *w, const char *component, struct str fleet)
{
    bool standby = strcmp(component, KUBE_STANDBY) == 0;
    json_kv_text(w, label_names[0], "muster");
    json_kv_text(w, label_names[1], component);
    json_kv_text(w, label_names[2], "muster");
    json_kv_str(w, standby ? KUBE_LABEL_STANDBY : KUBE_LABEL_FLEET, fleet);
}

void kube_pod_selector(struct str fleet, struct str service, char ret[KUBE_POD_SELECTOR_BYTES])
{
    char label[KUBE_LABEL_BYTES];
    kube_label(service, label);
    snprintf(ret, KUBE_POD_SELECTOR_BYTES,
             KUBE_LABEL_FLEET "=" STR_FMT "," KUBE_LABEL_SERVICE "=%s", STR_ARG(fleet), label);
}

static int put_metadata(struct pod_writer *p)
{
    static const char *const ours[] = { "name",   "namespace",       "generateName",
                                        "labels", "ownerReferences", "annotations",
                                        NULL };
    const struct kube_pod_ask *ask = p->ask;
    const struct launch_spec *spec = ask->request->spec;
    const struct str values[] = { spec->service, spec->pool, spec->offer };
    if (has(ask->template, "metadata.name") || has(ask->template, "metadata.ownerReferences"))
        p->refused = "metadata.name and metadata.ownerReferences";
    json_object(&p->w);
    json_kv_text(&p->w, "name", ask->request->intent);
    json_key(&p->w, "labels");
    json_object(&p->w);
    char service[KUBE_LABEL_BYTES];
    kube_label(spec->service, service);
    int rc = copy_members(p, ask->template, "metadata.labels", label_names);
    put_labels(&p->w, KUBE_INSTANCE, ask->fleet);
    json_kv_text(&p->w, KUBE_LABEL_SERVICE, service);
    json_object_end(&p->w);
    json_key(&p->w, "annotations");
    json_object(&p->w);
    if (rc == 0) rc = copy_members(p, ask->template, "metadata.annotations", NULL);
    for (size_t i = 0; i < COUNT_OF(annotations); i++)
        json_kv_str(&p->w, annotations[i], values[i]);
    if (rc == 0) rc = put_launch(p);
    json_object_end(&p->w);
    if (ask->owner.len > 0) {
        json_key(&p->w, "ownerReferences");
        json_array(&p->w);
        json_put_raw(&p->w, ask->owner);
        json_array_end(&p->w);
    }
    if (rc == 0) rc = copy_members(p, ask->template, "metadata", ours);
    json_object_end(&p->w);
    return rc;
}

int kube_pod_write(const struct kube_pod_ask *ask, struct buf *out, struct err *err)
{
    struct pod_writer p = { .ask = ask };
    json_writer_init(&p.w, out);
    json_object(&p.w);
    json_kv_text(&p.w, "apiVersion", "v1");
    json_kv_text(&p.w, "kind", "Pod");
    json_key(&p.w, "metadata");
    int rc = put_metadata(&p);
    if (rc == 0) json_key(&p.w, "spec");
    if (rc == 0) rc = put_spec(&p);
    json_object_end(&p.w);
    if (rc == 0 && p.refused)
        return err_set(err, -EINVAL, "the Pod template sets %s; leave it out", p.refused);
    if (rc == 0) rc = out->rc;
    if (rc == -EINVAL) return err_set(err, rc, "the Pod template is not the object of a Pod");
    return rc < 0 ? err_set(err, rc, "no room for a Pod") : 0;
}

static int put_standby_spec(struct pod_writer *p, struct str image)
{
    const struct str t = p->ask->template;
    struct json_writer *w = &p->w;
    struct str runtime_class;
    json_object(w);
    json_kv_i64(w, "terminationGracePeriodSeconds", 0);
    json_kv_bool(w, "automountServiceAccountToken", false);
    json_kv_bool(w, "enableServiceLinks", false);
    json_kv_str(w, "priorityClassName", p->ask->priority);
    json_key(w, "securityContext");
    json_put_raw(w, STR("{\"runAsNonRoot\":true,\"runAsUser\":65535,\"seccompProfile\":{\"type\":"
                        "\"RuntimeDefault\"}}"));
    json_key(w, "containers");
    json_array(w);
    json_object(w);
    json_kv_text(w, "name", KUBE_STANDBY);
    json_kv_str(w, "image", image);
    json_key(w, "securityContext");
    json_put_raw(w, STR("{\"allowPrivilegeEscalation\":false,\"readOnlyRootFilesystem\":true,"
                        "\"capabilities\":{\"drop\":[\"ALL\"]}}"));
    (void)put_resources(p, (struct str){ 0 });
    json_object_end(w);
    json_array_end(w);
    if (t.len > 0 && json_path(t, "spec.runtimeClassName", &runtime_class) == 0) {
        json_key(w, "runtimeClassName");
        json_put_raw(w, runtime_class);
    }
    int rc = put_nodes(p);
    if (rc == 0 && (p->ask->avoid_count > 0 || has(t, "spec.affinity"))) rc = put_affinity(p);
    if (rc == 0 && p->ask->claim.len > 0) rc = put_pod_claims(p, (struct str){ 0 });
    json_object_end(w);
    return rc;
}

int kube_standby_write(const struct kube_pod_ask *ask, const char *name, struct str image,
                       struct buf *out, struct err *err)
{
    struct pod_writer p = { .ask = ask };
    json_writer_init(&p.w, out);
    json_object(&p.w);
    json_kv_text(&p.w, "apiVersion", "v1");
    json_kv_text(&p.w, "kind", "Pod");
    json_key(&p.w, "metadata");
    json_object(&p.w);
    json_kv_text(&p.w, "name", name);
    json_key(&p.w, "labels");
    json_object(&p.w);
    put_labels(&p.w, KUBE_STANDBY, ask->fleet);
    json_object_end(&p.w);
    if (ask->owner.len > 0) {
        json_key(&p.w, "ownerReferences");
        json_array(&p.w);
        json_put_raw(&p.w, ask->owner);
        json_array_end(&p.w);
    }
    json_object_end(&p.w);
    json_key(&p.w, "spec");
    int rc = put_standby_spec(&p, image);
    json_object_end(&p.w);
    if (rc == 0) rc = out->rc;
    return rc < 0 ? err_set(err, rc, "the standby Pod cannot be written") : 0;
}

void kube_owned_write(struct json_writer *w, const char *component, struct str name,
                      struct str fleet, struct str pod_uid)
{
    json_object(w);
    json_kv_str(w, "name", name);
    json_key(w, "labels");
    json_object(w);
    put_labels(w, component, fleet);
    json_object_end(w);
    json_key(w, "ownerReferences");
    json_array(w);
    json_object(w);
    json_kv_text(w, "apiVersion", "v1");
    json_kv_text(w, "kind", "Pod");
    json_kv_str(w, "name", name);
    json_kv_str(w, "uid", pod_uid);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

int kube_secret_write(struct str intent, struct str fleet, struct str pod_uid, struct str key,
                      struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "kind", "Secret");
    json_key(&w, "metadata");
    kube_owned_write(&w, KUBE_INSTANCE, intent, fleet, pod_uid);
    json_kv_text(&w, "type", "Opaque");
    json_key(&w, "stringData");
    json_object(&w);
    json_kv_str(&w, "key", key);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
