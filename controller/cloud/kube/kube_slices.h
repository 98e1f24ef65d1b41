/* kube_slices.h - keeps what drivers of DRA say of nodes' devices, and turns like devices into offers.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * API:     resource.k8s.io/v1: ResourceSlices list devices with attributes and capacity; a ResourceClaim asks for some
 *          by a DeviceClass and an expression in CEL; the scheduler allocates them
 * Threads: the controller's loop
 * Names:   an offer is called dra-PRODUCT[-mig-PROFILE][-xN][-spot], so that it is not taken for one of a device
 *          plug-in, which the same machines may have. The product is the first of the attributes productName,
 *          product and model. Devices without one, and those of type `vfio`, make no offer
 * Rules:   (1) slices of one node count (spec.nodeName); devices on a network make no offer
 *          (2) of a pool's slices those of its newest generation count
 *          (3) a device costs its share of the node by memory. Where devices share counters (a GPU and all slices
 *              that it may be cut into), the whole ones are the sum, and room is what there may be at most
 * Bounds:  KUBE_SLICES_MAX slices, KUBE_GROUPS_MAX kinds of devices in each; further ones make no offer
 */
#pragma once
#include "controller/cloud/kube/kube_nodes.h"

#define KUBE_SLICES_MAX 8192
#define KUBE_GROUPS_MAX 6

struct kube_slices;

/* `nodes` and the classes, DRIVER=CLASS, outlive it. */
struct kube_slices *kube_slices_new(const struct kube_nodes *nodes, const struct kube_pair *class,
                                    uint32_t class_count);
void kube_slices_free(struct kube_slices *s);

/* Follows the cluster's slices, and calls fn when offers may have changed. */
int kube_slices_watch(struct kube_slices *s, struct kube_client *client, void (*fn)(void *arg),
                      void *arg, struct err *err);

/* Takes an event of a watch. Returns true if offers may have changed. */
bool kube_slices_take(struct kube_slices *s, const struct kube_event *e);
bool kube_slices_synced(const struct kube_slices *s);

/* Says why there are no slices: a sentence; NULL: the server lists them. */
const char *kube_slices_missing(const struct kube_slices *s);

/* Brings what devices make of this offer up to date, with what a claim asks for. */
void kube_slices_fill(struct kube_slices *s, struct kube_found *f);

/* Appends the names of the offers that devices make now, with ", " between. */
void kube_slices_names(struct kube_slices *s, char *ret, size_t bytes);

/* Appends the ResourceClaim of the Pod `name` of an instance or a standby, which goes when the Pod goes. */
int kube_claim_write(const struct kube_found *f, const char *component, struct str name,
                     struct str fleet, struct str pod_uid, struct buf *out);

extern const struct kube_resource kube_slices_resource, kube_claims_resource;
