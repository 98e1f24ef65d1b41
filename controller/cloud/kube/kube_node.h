/* kube_node.h - reads what a node of a cluster can hold: devices, their product and memory, spot or not, taints.
 *
 * Layer:   controller/cloud/kube (base/io/kube, controller/core)
 * Threads: pure
 * Devices: the first of a table that the node has, and besides it slices of MIG that have resources of their own
 *          (nvidia.com/mig-1g.10gb: the plug-in's strategy `mixed`). With `single` all slices of a node are alike
 *          and called nvidia.com/gpu; their label of the product ends in -MIG-1g.10gb
 * Labels:  are those of NVIDIA's feature discovery, of AMD's node labeller, of Intel's rules for NFD, of Karpenter
 *          and of the large clouds; the tables are in kube_node.c
 */
#pragma once
#include "controller/cloud/kube/kube_pod.h"

#define KUBE_RESOURCE_BYTES 96 /* the names of resources and labels that are read here, and a NUL */
#define KUBE_KINDS_MAX 8       /* of devices of a node; further ones make no offer */
#define KUBE_PRODUCT_BYTES 136 /* of a product and a profile */

/* Like devices of a node; or the machine itself. */
struct kube_kind {
    char resource[KUBE_RESOURCE_BYTES]; /* empty: the machine, which has no devices */
    uint32_t count;                     /* allocatable */
    char label[KUBE_RESOURCE_BYTES];    /* that says what it is; empty: none does */
    char value[KUBE_LABEL_BYTES];       /* of that label */
    char product[KUBE_PRODUCT_BYTES];   /* for people and names of offers; empty: not said */
    char memory[KUBE_LABEL_BYTES];      /* of a device, as its label writes it; empty: not said */
    double weight; /* of a device beside the node's other kinds: its memory; 0: not known */
};

struct kube_node {
    struct kube_meta meta;
    int64_t created_us; /* wall clock of the API server */
    bool usable;        /* ready, not cordoned, and without a taint that keeps our Pods away */
    bool takes_claims;  /* the same for Pods with claims, which tolerate kube_device_taints */
    double cores, memory_bytes; /* allocatable */
    struct kube_kind kind[KUBE_KINDS_MAX];
    uint32_t kind_count;
    /* the label that says so; NULL: on demand, as far as labels say */
    const struct kube_pair *spot;
};

/* Reads a node. `template` is the Pod whose tolerations count; empty: none. -EINVAL: no object with a name. */
int kube_node_read(struct str json, struct str template, struct kube_node *ret, struct err *err);

/* Labels that mark spot nodes. Pods of an on-demand offer stay away from all of them. */
extern const struct kube_pair kube_spot_labels[];
extern const uint32_t kube_spot_label_count;

/* Taints with the names of devices, which nodes of any driver of DRA may have, too. */
extern const struct kube_pair kube_device_taints[];
extern const uint32_t kube_device_taint_count;

/* Returns the resource of the devices whose product this label names; NULL: it names none, or other things, too. */
const char *kube_product_resource(struct str label);

/* Returns true if Pods with the template's tolerations, and those that ask for devices have besides, tolerate the
 * taints at `path`. */
bool kube_taints_are_tolerated(struct str json, const char *path, struct str template);

/* Reads a quantity: 4, 1930m, 2048Gi, 1e3. -EINVAL. */
int kube_quantity(struct str text, double *ret);

/* Writes `text` in lower case, with '-' for all but letters and digits, cut to `bytes`. */
void kube_slug(struct str text, char *ret, size_t bytes);

/* Writes the slug of a product. What is too long is cut before a profile of MIG, which tells slices apart. */
void kube_slug_product(const char *product, char *ret, size_t bytes);

/* Returns the share of the node that so many devices of a kind are: by memory, where it has several kinds.
 * Below 0: not known. Above 1: it has not so many. */
double kube_node_share(const struct kube_node *n, const struct kube_kind *k, uint32_t units);
