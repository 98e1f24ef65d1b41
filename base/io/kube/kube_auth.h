/* kube_auth.h - holds the credentials of a cluster and renews them: files that rotate, programs that print them.
 *
 * Layer:   base/io/kube (kube_config, kube_exec, fetch)
 * Threads: the loop's
 * Rules:   (1) files are looked at every KUBE_AUTH_LOOK_US, and at once after a 401
 *          (2) a program runs again before its credential expires, and after a 401; one run at a time,
 *              and none within KUBE_AUTH_AGAIN_US of one that failed
 *          (3) credentials that cannot be renewed stay in use until they expire; the failure is logged
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/fetch.h"
#include "base/io/kube/kube_config.h"
#include "base/io/loop/loop.h"

#define KUBE_AUTH_LOOK_US 10000000
#define KUBE_AUTH_AGAIN_US 5000000

struct kube_auth;

/* Holds the credentials that a call shows and the ones that it trusts; borrowed until the loop turns. */
struct kube_identity {
    struct str token; /* empty: none */
    struct fetch_tls tls;
    uint64_t generation; /* another number for other credentials */
};

struct kube_auth_counts {
    uint64_t renewed, failed; /* reads of changed files, and runs of a program */
};

/* Reads the files once, so that a wrong path is an error at the start. `config` outlives it. `on_change` is
 * called, never from inside a call of kube_auth, when kube_auth_get may answer otherwise than -EAGAIN. */
int kube_auth_new(struct loop *l, const struct kube_config *config, void (*on_change)(void *arg),
                  void *arg, struct kube_auth **ret, struct err *err);
void kube_auth_free(struct kube_auth *a);
CLEANUP_FREEP(kube_auth, struct kube_auth)

/* 0 and *ret. -EAGAIN: a program is running to get credentials. -EACCES and a sentence: there are none. */
int kube_auth_get(struct kube_auth *a, struct kube_identity *ret, struct err *err);

/* Tells that the server refused credentials of this generation. Returns true if others may be had. */
bool kube_auth_refused(struct kube_auth *a, uint64_t generation);
void kube_auth_counts_get(const struct kube_auth *a, struct kube_auth_counts *ret);
