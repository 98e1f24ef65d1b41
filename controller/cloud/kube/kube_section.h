/* kube_section.h - declares the `kubernetes` section of muster.yaml and turns it into the driver's settings.
 *
 * Layer:    controller/cloud/kube (base/io/config)
 * Lifetime: what kube_settings_make makes lives in its arena and borrows the section's texts
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/kube/kube_client.h"
#include "controller/cloud/kube/kube_nodes.h"
#include "controller/cloud/kube/kube_price.h"
#include "controller/cloud/kube/kube_workload.h"

#define KUBE_OFFERS_MAX CLOUD_PRICES_MAX

struct kube_offer_section {
    struct str name;
    struct str from_nodes; /* name of the offer that nodes make; empty: none */
    struct str workload;   /* kind/name of the user's; empty: Pods of our own */
    struct config_texts resources, node_labels; /* name=value */
    struct str pod;                             /* path of a template; empty: the section's */
    double price_h;                             /* below 0: not said */
    struct str zone;
    bool spot;
    int64_t lead_us, max_num_seqs;
    double perf_step_s, perf_prefill_s, perf_decode_s, perf_read_s;
    int64_t standby;
};

struct kube_section {
    struct str kubeconfig, context, namespace, fleet;
    struct str image;
    int pull; /* index of kube_pull_names */
    struct str pod, owner, priority_class, standby_class, standby_image;
    int64_t wait_us, image_wait_us;
    bool watch_nodes;
    bool services; /* of objects: objects/service_objects.h */
    int64_t poll_us;
    double calls_per_s;
    bool discover;
    struct config_texts classes;  /* driver=DeviceClass */
    double cores;                 /* of an instance on nodes without devices */
    double price_default_h;       /* of an instance that no row prices; 0: none */
    struct config_records prices; /* struct kube_price_section */
    struct config_records offers; /* struct kube_offer_section */
};

extern const struct config_section kube_section;

/* One offer as the driver sells it. */
struct kube_sold {
    struct offer offer;
    struct kube_pair resource[KUBE_PAIRS_MAX], node_label[KUBE_PAIRS_MAX];
    uint32_t resource_count, node_label_count;
    struct str template;      /* a Pod in JSON; empty: none */
    struct kube_found *found; /* what nodes make of it; NULL: it is all written by hand */
    const struct kube_workload_kind *workload; /* NULL: Pods of our own */
    struct str workload_name;
    uint32_t standby; /* Pods that hold places for it */
    bool price_given; /* of one that nodes make: its price is by hand all the same */
};

struct kube_settings {
    const struct kube_section *section;
    struct kube_sold *sold;
    uint32_t sold_count;
    struct str owner_resource, owner_name;  /* "deployments", "statefulsets"; empty: none */
    struct str pull_policy;                 /* empty: the cluster's default */
    struct kube_meters meters;              /* of calls; the caller sets it */
    struct kube_pair class[KUBE_PAIRS_MAX]; /* DeviceClasses by drivers */
    uint32_t class_count;
    struct kube_prices prices;       /* of the start; see kube_change.h for later ones */
    struct str template;             /* of offers that nodes make: kubernetes.pod */
    struct arena *arena;             /* that all of this lives in */
    const struct cloud_fence *fence; /* NULL: no other process makes calls; the caller sets it */
};

/* Checks what the schema cannot, and reads the templates. -EINVAL and a sentence that names the offer, the
 * setting or the file and line. */
int kube_settings_make(const struct kube_section *section, struct arena *arena,
                       struct kube_settings *ret, struct err *err);

/* Adds the offer that nodes may make under this name, unless it is there. -EINVAL: discovery is off or it is
 * no such name: the caller's list of offers says the rest. -E2BIG. `settings` comes from kube_settings_make. */
int kube_settings_discover(struct kube_settings *settings, struct str name, struct err *err);

/* Makes that offer without adding it. -EINVAL as above. */
int kube_settings_found(const struct kube_settings *settings, struct str name,
                        struct kube_sold *ret, struct err *err);

bool kube_settings_has(const struct kube_settings *settings, struct str name);

/* Returns true if nodes make one of the offers. */
static inline bool kube_needs_nodes(const struct kube_settings *s)
{
    for (uint32_t i = 0; i < s->sold_count; i++)
        if (s->sold[i].found) return true;
    return s->section->discover;
}

/* Returns true if devices that are claimed make one of the offers; what they make is looked at with `discover`, too. */
static inline bool kube_needs_claims(const struct kube_settings *s)
{
    for (uint32_t i = 0; i < s->sold_count; i++)
        if (s->sold[i].found && kube_found_is_claimed(s->sold[i].found)) return true;
    return false;
}

/* Returns true if the file has offers of Kubernetes. */
static inline bool kube_is_wanted(const struct kube_section *s)
{
    return s && (s->offers.count > 0 || s->discover);
}
