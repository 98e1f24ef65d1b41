/* kube_nodepools.h - keeps Karpenter's NodePools, and says which offers they may add nodes for.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * API:     karpenter.sh/v1: a NodePool has requirements on labels, limits on resources, and what it uses of them
 * Threads: the controller's loop
 * Names:   as of nodes (kube_nodes.h): the values of a label of products that requirements (`In`) or labels of the
 *          template list. Pods choose by that label, which Karpenter must know before there is a node
 * Rules:   (1) an offer is made of NodePools while no node makes it. Nodes that have the label count as its
 *              room all the same
 *          (2) a NodePool adds no node when it is at a limit, not ready, of a fixed number of nodes, or has a taint
 *              that our Pods do not tolerate
 *          (3) it is of spot nodes where its capacity types have `spot`; without any it is on demand
 *          (4) a price comes from a row for the device, or from one for the node where a requirement says how many
 *              devices a node has (karpenter.k8s.aws/instance-gpu-count)
 * Bounds:  KUBE_NODEPOOLS_MAX NodePools, KUBE_POOL_KINDS_MAX products and KUBE_LIMITS_MAX limits of each
 */
#pragma once
#include "controller/cloud/kube/kube_nodes.h"

#define KUBE_NODEPOOLS_MAX 256
#define KUBE_POOL_KINDS_MAX 16
#define KUBE_LIMITS_MAX 8

struct kube_nodepools;

/* All of it outlives the NodePools; `template` is a Pod whose tolerations count. */
struct kube_nodepools *kube_nodepools_new(const struct kube_nodes *nodes, struct str template);
void kube_nodepools_free(struct kube_nodepools *p);

/* Follows the cluster's NodePools, and calls fn when offers may have changed. */
int kube_nodepools_watch(struct kube_nodepools *p, struct kube_client *client,
                         void (*fn)(void *arg), void *arg, struct err *err);

/* Takes an event of a watch. Returns true if offers may have changed. */
bool kube_nodepools_take(struct kube_nodepools *p, const struct kube_event *e);
bool kube_nodepools_synced(const struct kube_nodepools *p);

/* Adds to what nodes make of this offer (kube_nodes_fill) what NodePools may. */
void kube_nodepools_fill(const struct kube_nodepools *p, struct kube_found *f);

/* Appends the names of the offers that NodePools may make, with ", " between. */
void kube_nodepools_names(const struct kube_nodepools *p, char *ret, size_t bytes);

extern const struct kube_resource kube_nodepools_resource;
