/* kube_exec.h - runs the credential program of a kubeconfig (an exec plug-in) beside a loop.
 *
 * Layer:    base/io/kube (loop, proc)
 * Threads:  the loop's
 * Protocol: ExecCredential of client.authentication.k8s.io/v1 and v1beta1: the request in the environment
 *           variable KUBERNETES_EXEC_INFO, the reply on stdout
 * Bounds:   KUBE_EXEC_US of run time, then the program's whole session is killed; KUBE_EXEC_BYTES_MAX of
 *           output. The end of its stderr goes into the sentence
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/kube/kube_config.h"
#include "base/io/loop/loop.h"

#define KUBE_EXEC_US 60000000
#define KUBE_EXEC_BYTES_MAX ((size_t)256 << 10)

/* Holds the credentials that a program printed. { 0 } is empty; kube_credential_fini wipes and frees it. */
struct kube_credential {
    struct buf token, certificate, key; /* PEM */
    int64_t expires_us;                 /* a date; 0: does not expire */
};
void kube_credential_fini(struct kube_credential *c);

/* Reads an ExecCredential of that apiVersion. -EINVAL names the field. */
int kube_credential_read(struct str json, struct str api_version, struct kube_credential *ret,
                         struct err *err);

struct kube_exec_run;

/* Starts the program of `c`. `ca` is the cluster's CA as PEM, for programs that ask for the cluster.
 * on_done is called once, later, when the run is gone: with rc 0 and the credential, which the callee may
 * move from, or with an errno and a sentence. `run_us` 0: KUBE_EXEC_US. Fails with -ENOENT ... when the
 * program cannot be started. */
int kube_exec_start(struct loop *l, const struct kube_config *c, struct str ca, int64_t run_us,
                    void (*on_done)(void *arg, int rc, struct kube_credential *credential,
                                    const char *problem),
                    void *arg, struct kube_exec_run **ret, struct err *err);
void kube_exec_stop(struct kube_exec_run *run); /* kills it; on_done does not come. NULL is fine */
