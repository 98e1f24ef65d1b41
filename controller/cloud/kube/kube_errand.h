/* kube_errand.h - a call of the controller on its way through calls of the API server.
 *
 * Layer:   controller/cloud/kube, private to kube_cloud.c, kube_change.c and kube_place.c
 * Threads: the loop's
 * Rules:   (1) an errand has one call of the API server under way at most
 *          (2) it ends once: by errand_fail, errand_refuse or errand_succeed
 */
#pragma once
#include "controller/cloud/cloud_call.h"
#include "controller/cloud/kube/kube_cloud.h"
#include "controller/cloud/kube/kube_nodepools.h"
#include "controller/cloud/kube/kube_slices.h"
#include "controller/cloud/kube/kube_standby.h"
#include "controller/cloud/kube/kube_view.h"
#include "controller/cloud/kube/kube_workload.h"

extern const struct kube_resource errand_pods;

/* A call of the controller; one call of the API server is under way for it. */
struct errand {
    struct kube_cloud *cloud;
    struct cloud_kept kept; /* op CLOUD_NONE: the slot is free */
    struct kube_call *call;
    struct listed made;
    char uid[KUBE_UID_BYTES];
    struct kube_found *claims;      /* the devices that it claims; NULL: none */
    struct kube_workload *workload; /* NULL: the Pod is one of our own */
    char place[KUBE_NAME_BYTES];    /* the Pod of the workload that it takes, or that ends */
    bool waits;                     /* for a place: no call is under way */
    int64_t until_us, look_us;      /* gives up then; looks at the scale again then */
    uint32_t tries;                 /* of a patch of the scale that came too late */
};

struct kube_cloud {
    struct loop *loop;
    struct kube_settings *settings;
    struct kube_prices prices;  /* in force */
    struct arena *prices_arena; /* NULL: that of the settings */
    struct kube_config *cluster;
    struct kube_client *client;
    struct kube_view *view;
    struct kube_nodes *nodes;         /* NULL: not watched */
    struct kube_slices *slices;       /* NULL: no offer is made of claims */
    struct kube_nodepools *nodepools; /* NULL: no offer is made of nodes */
    struct kube_standby *standby;     /* NULL: no offer has any */
    uint64_t price_call;              /* waits for the first list of nodes; 0: none does */
    int64_t price_until_us;
    struct kube_workload *workload[KUBE_OFFERS_MAX]; /* parallel to settings->sold; NULL: none */
    struct cloud_driver driver;
    struct str ns;
    int64_t grace_s;
    struct buf owner; /* its reference in JSON, once known */
    struct kube_call *owner_call;
    int64_t owner_again_us;
    struct errand errand[CLOUD_CALLS_MAX];
    struct cloud_event done[CLOUD_CALLS_MAX]; /* a ring; with the errands at most CLOUD_CALLS_MAX */
    uint32_t done_first, done_count, errand_count;
    struct listed room[CLOUD_LIST_MAX];
    void (*fn)(void *arg);
    void *arg;
};

/* Asks the API server, unless the term that wants it is over: also between two steps of one errand. */
void errand_start(struct errand *er, struct kube_request *req,
                  void (*on_end)(void *arg, const struct kube_reply *reply));
void errand_delete(struct errand *er, const char *pod); /* and ends with that */

void errand_fail(struct errand *er, const struct kube_reply *r);
void errand_refuse(struct errand *er, enum offer_error class, const struct err *err, int rc);
void errand_succeed(struct errand *er); /* with er->made */

/* Of kube_place.c. */

#define PLACE_US 30000000 /* that a create waits for a Pod of its workload */

int kube_place_open(struct kube_cloud *k, struct err *err); /* watches the workloads of offers */

/* Returns true once the places are known that the call may be about. A removal names its Pod: an intent that
 * has a Pod of its name has one of our own. */
bool kube_place_all_known(const struct kube_cloud *k, const struct cloud_call *call,
                          struct err *err);

/* Counts the creates that wait for a place of this workload. */
uint32_t kube_place_waiting(const struct kube_cloud *k, const struct kube_workload *w);

/* Takes the place that is the intent's already, or a free one; asks for more replicas where there is none. */
void kube_place_take(struct errand *er);
void kube_place_serve(struct kube_cloud *k); /* goes on with creates that wait for a place */

/* Finds the workload that has this intent's place; NULL: none has. *ret_pod is its Pod. */
struct kube_workload *kube_place_find(const struct kube_cloud *k, const struct cloud_kept *c,
                                      const char **ret_pod);
void kube_place_mark(struct errand *er); /* and has its replica go */
