/* kube_standby.h - keeps places warm: Pods that do nothing, hold what an instance needs, and give way to one.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop
 * Rules:   (1) a standby Pod has a priority class below that of instances: the scheduler takes its place for an
 *              instance and deletes it; it is made anew, waits, and so has an autoscaler bring the next node
 *          (2) its name is standby-OFFER-N: a create that is made twice makes one
 *          (3) nothing is made or deleted outside this process's term
 *          (4) they are no instances: another label, no listing, no intent; their price is in no budget
 * Bounds:  KUBE_STANDBY_MAX Pods in all; KUBE_STANDBY_CALLS at a time
 */
#pragma once
#include "base/io/kube/kube_watch.h"
#include "controller/cloud/kube/kube_section.h"

#define KUBE_STANDBY_MAX 256
#define KUBE_STANDBY_CALLS 8

struct kube_standby;

/* Writes the Pod of an offer. -EAGAIN: its nodes are not known yet. */
typedef int (*kube_standby_write_fn)(void *ctx, struct kube_sold *sold, const char *name,
                                     struct buf *out, struct err *err);

int kube_standby_new(struct kube_client *client, struct str ns,
                     const struct kube_settings *settings, kube_standby_write_fn write, void *ctx,
                     struct kube_standby **ret, struct err *err);
void kube_standby_free(struct kube_standby *s);

/* Makes what is missing and deletes what is too much, some calls at a time. */
void kube_standby_turn(struct kube_standby *s);
