/* kube_view.h - keeps the fleet's Pods as the watch tells them, and lists them as instances.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop
 * Rules:   (1) a listing is refused until the first list of the cluster was whole, and again once the API
 *              server has been out of reach for KUBE_OUT_OF_REACH_US: an old view proves nothing
 *          (2) a Pod is stuck once it has waited for its limit on this process's clock; the API server's
 *              clock does not count. The limit for a node is `wait_us` until Pods of its offer that waited got
 *              one, and then what they waited (kube_patience.h)
 *          (3) a Pod leaves when its deletion was asked for, at the end of its grace; or when its node has a
 *              taint that announces its end
 * Bounds:  CLOUD_LIST_MAX Pods; more make listings fail, as a cut one would hide instances.
 *          KUBE_NOTICES_MAX nodes with a notice; more are not heeded, and counted. CLOUD_PRICES_MAX offers
 *          whose waits are learned
 */
#pragma once
#include "base/io/kube/kube_watch.h"
#include "controller/cloud/kube/kube_nodes.h"

#define KUBE_OUT_OF_REACH_US 30000000
#define KUBE_NOTICES_MAX 256

struct kube_view_config {
    struct str ns, fleet;
    int64_t wait_us, image_wait_us; /* before a Pod is stuck */
    int64_t grace_us;               /* from an eviction to the end, where a node says no time */
    bool notices;                   /* heed taints that announce a node's end */
    struct kube_nodes *nodes;       /* is fed by the watch of nodes; NULL: nodes are not watched */
};

struct kube_view;

int kube_view_new(struct kube_client *client, const struct kube_view_config *config,
                  struct kube_view **ret, struct err *err);
void kube_view_free(struct kube_view *v);

/* Takes a Pod from the reply that made it, unless the watch knows it, or has seen its end. */
void kube_view_take(struct kube_view *v, const struct kube_pod *pod);

/* Fills `ret`, of CLOUD_LIST_MAX, with times in fleet time. -EAGAIN: the view is not in step; -E2BIG. */
int kube_view_list(struct kube_view *v, int64_t now_us, struct listed *ret, uint32_t *ret_count,
                   struct err *err);

/* Counts the offer's Pods that hold, or wait for, their devices. */
uint32_t kube_view_count(const struct kube_view *v, const char *offer);

/* Counts the offer's Pods that the scheduler finds no node for. */
uint32_t kube_view_waiting(const struct kube_view *v, const char *offer);

/* Returns how long the offer's Pods may wait for a node. */
int64_t kube_view_patience_us(const struct kube_view *v, const char *offer);

/* Returns true once after a Pod began to leave, or ended, or a node announced its end. */
bool kube_view_has_news(struct kube_view *v);

/* Calls fn when a Pod changed in a way that the controller should see before its next look. */
void kube_view_watch(struct kube_view *v, void (*fn)(void *arg), void *arg);

/* Returns the microseconds from the notice to the node's end if one of its taints announces it, `grace_us`
 * where the taint has no time of its own, and -1 without such a taint. *ret_taint names it. */
int64_t kube_node_notice(struct str node, int64_t grace_us, const char **ret_taint);
