/* kube_cloud.h - makes a Kubernetes cluster a cloud: an instance is a Pod, an offer is what its nodes can hold.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop. Calls are made by base/io/kube/kube_client and never waited for
 * Rules:   (1) the intent's id is the Pod's name: a second create finds the first
 *          (2) listings come from a watch and cost no call. One is refused while the watch is not in
 *              step with the cluster, so that nothing is proven by an old view
 *          (3) a Pod is made before the Secret with its key, which it owns: neither outlives the other.
 *              A create that was cut between them is made again and adds the Secret
 *          (4) a Pod that no node takes within `wait` is listed as stuck for want of capacity, with the
 *              scheduler's words; one whose image or container cannot be had, as invalid
 *          (5) a Pod that is being deleted, or whose node is about to go, is listed as leaving
 *          (6) Pods belong to `owner`, so that uninstalling it removes them
 *          (7) an offer with a workload takes that one's Pods as places instead (kube_workload.h)
 *          (8) offers that nodes make are looked up when a Pod is written and when prices are asked for; creates
 *              wait for the first list of nodes, and prices NODES_US at most
 */
#pragma once
#include "base/io/kube/kube_client.h"
#include "controller/cloud/kube/kube_section.h"

#define KUBE_LAG_US 2000000 /* of the watch behind the API server, as listings promise */

/* Connects and begins to watch. `settings` and what it borrows outlive the driver, which adds offers to it
 * (kube_change.h); `environment` as in kube_source. Closing *ret leaves the Pods as they are. */
int kube_cloud_open(struct loop *l, struct kube_settings *settings, int64_t drain_us,
                    const char *const *environment, uint64_t seed, struct cloud *ret,
                    struct err *err);
