/* kube_standby.h - keeps places warm: Pods that do nothing, hold what an instance needs, and give way to one.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop
 * Rules:   (1) a standby Pod has a priority class below that of instances: the scheduler takes its place for an
 *              instance and deletes it; it is made anew, waits, and so has an autoscaler bring the next node
 *          (2) its name is standby-OFFER-N: a create that is made twice makes one
 *          (3) nothing is made or deleted outside this process's term
 *          (4) they are no instances: another label, no listing, no intent; their price is in no budget
 *          (5) one that holds claimed devices has a ResourceClaim of its name, which it owns. The scheduler takes no
 *              claimed devices away, so that we do: once it finds no node for an instance of the offer, one standby
 *              Pod for each such instance is deleted, and so are those that wait for a node themselves, which might
 *              get the place first. They are made anew once no instance of the offer waits
 * Bounds:  KUBE_STANDBY_MAX Pods in all; KUBE_STANDBY_CALLS at a time
 */
#pragma once
#include "base/io/kube/kube_watch.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/kube/kube_view.h"

#define KUBE_STANDBY_MAX 256
#define KUBE_STANDBY_CALLS 8

struct kube_standby;

/* Writes the Pod of an offer. -EAGAIN: its nodes are not known yet. */
typedef int (*kube_standby_write_fn)(void *ctx, struct kube_sold *sold, const char *name,
                                     struct buf *out, struct err *err);

struct kube_standby_config { /* all outlives it */
    struct str ns;
    const struct kube_settings *settings;
    const struct kube_view *view; /* of instances that wait for a node */
    kube_standby_write_fn write;
    void *ctx;
};

int kube_standby_new(struct kube_client *client, const struct kube_standby_config *config,
                     struct kube_standby **ret, struct err *err);
void kube_standby_free(struct kube_standby *s);

/* Makes what is missing and deletes what is too much, some calls at a time. */
void kube_standby_turn(struct kube_standby *s);
