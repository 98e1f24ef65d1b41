/* kube_check.h - tells whether instances can be made on the cluster: credentials, rights, quota, nodes, workloads.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: a loop of its own; it waits for replies, KUBE_CHECK_US for each call. For `muster doctor`
 * Rules:   it makes nothing: rights are asked for with SelfSubjectAccessReviews, which everybody may make
 */
#pragma once
#include "controller/cloud/kube/kube_section.h"

#define KUBE_CHECK_US 10000000

/* Calls fn with each finding. -errno: the cluster is not named or cannot be opened, and err says why. */
int kube_check(const struct kube_settings *settings, const char *const *environment,
               cloud_finding_fn fn, void *arg, struct err *err);
