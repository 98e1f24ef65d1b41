/* kube_node.h - reads what a node of a cluster can hold: devices, their product and memory, spot or not, taints.
 *
 * Layer:   controller/cloud/kube (base/io/kube, controller/core)
 * Threads: pure
 * Devices: one kind a node, the first of a table that the node has. Slices of MIG that have resources of their
 *          own (nvidia.com/mig-...) are not in it; those that the device plug-in calls nvidia.com/gpu are
 * Labels:  are those of NVIDIA's feature discovery, of AMD's node labeller, of Intel's rules for NFD, of Karpenter
 *          and of the large clouds; the tables are in kube_node.c
 */
#pragma once
#include "controller/cloud/kube/kube_pod.h"

struct kube_node {
    struct kube_meta meta;
    int64_t created_us; /* wall clock of the API server */
    bool usable;        /* ready, not cordoned, and without a taint that keeps our Pods away */
    const char *device; /* resource of its devices; NULL: it has none */
    uint32_t devices;   /* allocatable */
    double cores, memory_bytes;     /* likewise */
    const char *product_label;      /* NULL: no label says what it is */
    char product[KUBE_LABEL_BYTES]; /* of the device; without devices, of the machine */
    char memory[KUBE_LABEL_BYTES];  /* of a device, as its label writes it; empty: not said */
    const struct kube_pair
        *spot; /* the label that says so; NULL: on demand, as far as labels say */
};

/* Reads a node. `template` is the Pod whose tolerations count; empty: none. -EINVAL: no object with a name. */
int kube_node_read(struct str json, struct str template, struct kube_node *ret, struct err *err);

/* Labels that mark spot nodes. Pods of an on-demand offer stay away from all of them. */
extern const struct kube_pair kube_spot_labels[];
extern const uint32_t kube_spot_label_count;

/* Reads a quantity: 4, 1930m, 2048Gi, 1e3. -EINVAL. */
int kube_quantity(struct str text, double *ret);

/* Writes `text` in lower case, with '-' for all but letters and digits, cut to `bytes`. */
void kube_slug(struct str text, char *ret, size_t bytes);
