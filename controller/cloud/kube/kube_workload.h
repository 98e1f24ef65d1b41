/* kube_workload.h - follows a Deployment, StatefulSet or LeaderWorkerSet of the user's whose replicas are places for
 * instances.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop. It asks once for the scale subresource, whose selector names the Pods, and
 *          then watches those; kube_cloud makes the calls that change something
 * Binding: a Pod of the workload is a place. An intent is bound to a place by a patch of the Pod at its
 *          resourceVersion, which writes the intent's id, its tags and its launch document as annotations, and the
 *          fleet's label: a place is taken once, whoever else tries. The agent in the Pod waits for the
 *          document, which the downward API shows as a file, and starts the engine then
 * Ending:  a place whose intent ends is marked, with the lowest pod-deletion-cost, so that a Deployment which is
 *          scaled down deletes that one. StatefulSets and LeaderWorkerSets delete the highest ordinal: a
 *          marked Pod below it is deleted by name and comes back as a free place
 * Replicas: are set to an absolute number, at the resourceVersion that it was reckoned from: bound places that are
 *          not marked, and creates that wait for one; for ordinals at least the highest bound one and 1
 * Bounds:  KUBE_PLACES_MAX Pods of a workload
 */
#pragma once
#include "base/io/kube/kube_watch.h"
#include "controller/cloud/kube/kube_pod.h"

#define KUBE_PLACES_MAX 256

/* A kind of workload: how its scale subresource is addressed and its Pods end. */
struct kube_workload_kind {
    const char *name; /* in settings: deployment/NAME */
    struct kube_resource resource;
    bool ordinal; /* the highest one ends first */
};
const struct kube_workload_kind *kube_workload_kind_of(struct str name); /* NULL: unknown */
#define KUBE_WORKLOAD_KINDS "deployment, statefulset or leaderworkerset"

struct kube_place {
    struct kube_meta meta;
    char intent[INTENT_ID_BYTES]; /* empty: it is free */
    uint32_t ordinal;             /* 0 where there are none */
    bool marked;                  /* its intent ends */
    bool alive;                   /* neither being deleted nor ended */
};

struct kube_workload;

/* `changed` is called when its Pods change. */
int kube_workload_new(struct kube_client *client, struct str ns,
                      const struct kube_workload_kind *kind, struct str name,
                      void (*changed)(void *arg), void *arg, struct kube_workload **ret,
                      struct err *err);
void kube_workload_free(struct kube_workload *w);

/* Asks for the selector again where that has failed, every few seconds. */
void kube_workload_turn(struct kube_workload *w);

/* Returns true once its Pods are known; else *ret_why says why not, until the loop turns. */
bool kube_workload_synced(const struct kube_workload *w, const char **ret_why);
const struct kube_workload_kind *kube_workload_kind_get(const struct kube_workload *w);
struct str kube_workload_name(const struct kube_workload *w);

/* Returns the place of an intent, or the Pod of that name where `intent` is NULL; NULL: there is none. */
const struct kube_place *kube_workload_find(const struct kube_workload *w, const char *intent,
                                            const char *pod);

/* Calls fn with each free place, the lowest ordinal first, until it returns true; returns that one or NULL. */
const struct kube_place *kube_workload_choose(const struct kube_workload *w,
                                              bool (*fn)(void *arg, const struct kube_place *p),
                                              void *arg);

/* Tells fn of each free place, as what stays: `muster gc`. */
void kube_workload_each_free(const struct kube_workload *w, cloud_leftover_fn fn, void *arg);

/* Returns the replicas that it should have while `waiting` creates wait for a place. */
uint32_t kube_workload_target(const struct kube_workload *w, uint32_t waiting);

/* Takes a Pod from the reply of a patch. */
void kube_workload_take(struct kube_workload *w, struct str pod);

/* These append patches: of a Pod that is bound, and that is marked; of a Scale at its version. `launch` is a
 * document of base/wire/launch.h. */
void kube_workload_put_bind(const struct kube_place *p, const char *intent, struct str fleet,
                            const struct launch_spec *spec, struct str launch, struct buf *out);
void kube_workload_put_mark(struct buf *out);
void kube_workload_put_scale(uint32_t replicas, const char *version, struct buf *out);
