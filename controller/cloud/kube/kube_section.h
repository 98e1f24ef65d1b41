/* kube_section.h - declares the `kubernetes` section of muster.yaml and turns it into the driver's settings.
 *
 * Layer:    controller/cloud/kube (base/io/config)
 * Lifetime: what kube_settings_make makes lives in its arena and borrows the section's texts
 */
#pragma once
#include "base/io/config/config.h"
#include "controller/cloud/kube/kube_pod.h"

#define KUBE_OFFERS_MAX CLOUD_PRICES_MAX
#define KUBE_PAIRS_MAX 16 /* resources, or node labels, of an offer */

struct kube_offer_section {
    struct str name;
    struct config_texts resources, node_labels; /* name=value */
    struct str pod;                             /* path of a template; empty: the section's */
    double price_h;
    struct str zone;
    bool spot;
    int64_t lead_us, max_num_seqs;
    double perf_step_s, perf_prefill_s, perf_decode_s, perf_read_s;
};

struct kube_section {
    struct str kubeconfig, context, namespace, fleet;
    struct str image;
    int pull; /* index of kube_pull_names */
    struct str pod, owner, priority_class;
    int64_t wait_us, image_wait_us;
    bool watch_nodes;
    bool services; /* of objects: objects/service_objects.h */
    int64_t poll_us;
    double calls_per_s;
    struct config_records offers; /* struct kube_offer_section */
};

extern const struct config_section kube_section;

/* One offer as the driver sells it. */
struct kube_sold {
    struct offer offer;
    struct kube_pair resource[KUBE_PAIRS_MAX], node_label[KUBE_PAIRS_MAX];
    uint32_t resource_count, node_label_count;
    struct str template; /* a Pod in JSON; empty: none */
};

struct kube_settings {
    const struct kube_section *section;
    struct kube_sold *sold;
    uint32_t sold_count;
    struct str owner_resource, owner_name; /* "deployments", "statefulsets"; empty: none */
    struct str pull_policy;                /* empty: the cluster's default */
    const struct cloud_fence *fence; /* NULL: no other process makes calls; the caller sets it */
};

/* Checks what the schema cannot, and reads the templates. -EINVAL and a sentence that names the offer, the
 * setting or the file and line. */
int kube_settings_make(const struct kube_section *section, struct arena *arena,
                       struct kube_settings *ret, struct err *err);

/* Returns true if the file has offers of Kubernetes. */
static inline bool kube_is_wanted(const struct kube_section *s)
{
    return s && s->offers.count > 0;
}
