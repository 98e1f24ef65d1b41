/* kube_lease.h - takes part in the election of a leader by a Lease of coordination.k8s.io/v1.
 *
 * Layer:   base/io/kube (kube_elect, kube_client)
 * Threads: the loop's
 * Life:    from kube_lease_start until kube_lease_free, which callbacks may not call
 * Rights:  get, create and patch of leases in the namespace
 */
#pragma once
#include "base/io/kube/kube_client.h"
#include "base/io/kube/kube_elect.h"

struct kube_lease;

struct kube_lease_request { /* everything is copied */
    struct str ns, name;
    struct str identity; /* of this process alone: kube_lease_identity */
    struct kube_elect_config times;
    /* Called when this process becomes leader of an epoch and when it stops to be one. The end may come
     * late, after a pause of the process: kube_lease_leads is right at any time. */
    void (*on_change)(void *arg, bool leads, int64_t epoch);
    void *arg;
};

struct kube_lease_state {
    bool leads;
    int64_t epoch;                  /* of this process's last leadership; 0: none yet */
    char holder[KUBE_HOLDER_BYTES]; /* as last seen */
    int64_t confirmed_us; /* when the Lease was last read or written, on the loop's clock */
    uint64_t reads, writes, failures;
    const char *problem; /* of the last failure; empty after a success; until the loop turns */
};

/* Writes NAME_ and 16 random hexadecimal digits; -EIO without random bytes. */
int kube_lease_identity(struct str name, char ret[KUBE_HOLDER_BYTES], struct err *err);

int kube_lease_start(struct kube_client *c, const struct kube_lease_request *req,
                     struct kube_lease **ret, struct err *err);
void kube_lease_free(struct kube_lease *l); /* without a release: others wait for the lease's end */

/* Reads the clock, and so is right in the middle of a long turn too. *ret_epoch is set when true. */
bool kube_lease_leads(const struct kube_lease *l, int64_t *ret_epoch);
void kube_lease_state_get(const struct kube_lease *l, struct kube_lease_state *ret);

/* Gives the leadership up so that another may take it at once. on_done is called later, when the Lease is
 * released or that has failed. Once only. */
void kube_lease_release(struct kube_lease *l, void (*on_done)(void *arg), void *arg);
