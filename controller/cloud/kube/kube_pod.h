/* kube_pod.h - writes the Pod that is one instance, and reads what the API server says of it.
 *
 * Layer:    controller/cloud/kube (controller/core, base/io/kube, base/wire, base/core)
 * Threads:  pure
 * Names:    a Pod's name is the id of its intent, which makes a create idempotent; that of a workload's Pod is
 *           its own, and an annotation has the intent (kube_workload.h). Labels select our Pods; annotations
 *           hold exact names and the launch document, which the kubelet shows to the agent as a file
 *           (downward API)
 * Template: a Pod of the user's, in JSON. All its fields are kept. Added are names, labels, annotations,
 *           the agent's arguments, environment, volumes and probes in the container called `muster` (else
 *           in the first), and what Pod Security "restricted" asks for where the template says
 *           nothing. Fields that the driver must own are refused there by name
 * Times:    wall-clock microseconds of the API server; 0: not yet
 */
#pragma once
#include "base/io/kube/kube_api.h"
#include "controller/cloud/cloud.h"

#define KUBE_DOMAIN "muster.dev/"
#define KUBE_LABEL_FLEET KUBE_DOMAIN "fleet"
#define KUBE_LABEL_SERVICE KUBE_DOMAIN "service" /* kube_label of its name */
#define KUBE_LABEL_STANDBY KUBE_DOMAIN "standby"
#define KUBE_INSTANCE "instance" /* components: values of app.kubernetes.io/component */
#define KUBE_STANDBY "standby"
#define KUBE_NAME_ANNOTATIONS                                          \
    {                                                                  \
        KUBE_DOMAIN "service", KUBE_DOMAIN "pool", KUBE_DOMAIN "offer" \
    }
#define KUBE_POD_BYTES_MAX ((size_t)1 << 20) /* of a template, and of a Pod that is written */
#define KUBE_FOLDER "/run/muster"            /* as the containers of Pods see it */
#define KUBE_STATE_FOLDER KUBE_FOLDER "/state"
#define KUBE_KEY_FILE KUBE_FOLDER "/key/key"
#define KUBE_AGENT_PORT 8100 /* /health and /ready of the agent */
#define KUBE_GPU "nvidia.com/gpu"
#define KUBE_MIG "nvidia.com/mig-" /* and a profile: the resource of a slice */
#define KUBE_USER 65532            /* the image's user and group */

/* A label that nodes of an offer have, or a resource that its Pods ask for: "name=value". */
struct kube_pair {
    struct str name, value;
};

struct kube_pod_ask {
    struct str fleet; /* whose Pods these are; a label's value */
    const struct cloud_request *request;
    struct str template; /* JSON; empty: none */
    struct str image;    /* of the engine's container, where the template names none */
    struct str pull_policy;
    const struct kube_pair *resource;
    const struct kube_pair *node_label;
    const struct kube_pair *avoid;    /* labels that its node must not have */
    const struct kube_pair *tolerate; /* taints by their names; values do not count */
    uint32_t resource_count, node_label_count, avoid_count, tolerate_count;
    struct str claim;    /* a ResourceClaim whose devices its container gets; empty: none */
    struct str owner;    /* an owner reference in JSON; empty: none */
    int64_t grace_s;     /* least terminationGracePeriodSeconds: a drain and a margin */
    struct str priority; /* class; empty: the template's, or the cluster's default */
};

/* Appends the Pod. -EINVAL and a sentence: the template is no Pod, or sets what the driver owns. */
int kube_pod_write(const struct kube_pod_ask *ask, struct buf *out, struct err *err);

/* Appends a Pod that holds the place of such an instance and does nothing: the template's nodes, tolerations and
 * affinity, the same resources and claim, `image` and the class ask->priority. ask->request is not read. */
int kube_standby_write(const struct kube_pod_ask *ask, const char *name, struct str image,
                       struct buf *out, struct err *err);

/* Writes the selector of a service's Pods, for autoscalers that measure them. */
#define KUBE_POD_SELECTOR_BYTES 256
void kube_pod_selector(struct str fleet, struct str service, char ret[KUBE_POD_SELECTOR_BYTES]);

/* Writes the metadata of an object that goes when the Pod of that name goes, and is called as it. The component is
 * KUBE_INSTANCE or KUBE_STANDBY. */
void kube_owned_write(struct json_writer *w, const char *component, struct str name,
                      struct str fleet, struct str pod_uid);

/* Appends the Secret with the instance's key, which goes when its Pod goes. */
int kube_secret_write(struct str intent, struct str fleet, struct str pod_uid, struct str key,
                      struct buf *out);

/* Why a Pod does not come up. */
enum kube_wait {
    KUBE_WAIT_NONE,     /* it comes up, or is up */
    KUBE_WAIT_SCHEDULE, /* no node takes it */
    KUBE_WAIT_IMAGE,    /* its image cannot be had */
    KUBE_WAIT_CONFIG,   /* its container cannot be made: a missing Secret, a bad field */
    KUBE_WAIT_COUNT
};

struct kube_pod {
    struct listed listed;
    struct kube_meta meta;
    char node[KUBE_NAME_BYTES]; /* empty: none yet */
    bool bound; /* a place of a workload: its intent is an annotation, and it is older than that */
    enum kube_wait wait;
    int64_t scheduled_us, started_us, ready_us;
    int64_t grace_us; /* from the wish to delete it to SIGKILL */
};

/* Reads a Pod's object. listed.created_us and leaves_us are the API server's times as the others, and
 * listed.why says why it waits or ended, in the scheduler's or the kubelet's words; listed.stuck is left to
 * the caller, who knows for how long a Pod may wait. A Pod of ours whose annotations cannot be read is
 * `unreadable`. -EINVAL: no object with a name that an instance can have. */
int kube_pod_read(struct str json, struct kube_pod *ret, struct err *err);

/* Returns true if the object has this label with this value. */
bool kube_has_label(struct str json, struct str name, struct str value);
