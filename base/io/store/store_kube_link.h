/* store_kube_link.h - makes calls to a Kubernetes API server for the store, and waits for their end.
 *
 * Layer:   base/io, private to store_kube*.c
 * Threads: the store's. The calls run on a loop of their own, which turns only while the store waits
 * Rules:   (1) a round of calls has one deadline; KUBE_LINK_WINDOW of them are under way at once
 *          (2) after a round that did not reach the server calls fail at once for a while, which grows up to
 *              KUBE_LINK_BACK_OFF_MAX_US: a server that hangs costs a deadline now and then, and not at each call
 */
#pragma once
#include "base/io/kube/kube_client.h"
#include "base/io/store/store.h"

#define KUBE_LINK_WINDOW 8
#define KUBE_LINK_BACK_OFF_MIN_US 100000
#define KUBE_LINK_BACK_OFF_MAX_US 5000000

struct kube_link;

struct kube_job {
    enum kube_verb verb; /* KUBE_GET, KUBE_CREATE, KUBE_PATCH */
    const struct kube_resource *resource;
    char name[KUBE_NAME_BYTES];
    struct buf body; /* what is sent, then the reply of a call that succeeded */

    int rc;      /* as in kube_reply, with `unsure` */
    bool unsure; /* a write failed, and may have been carried out */
    char problem[KUBE_REPLY_PROBLEM_BYTES];
    struct kube_link *link; /* private, as is the next */
    struct kube_call *call;
};

int kube_link_new(const struct store_kube_config *config, struct kube_link **ret, struct err *err);
void kube_link_free(struct kube_link *l);
struct str kube_link_ns(const struct kube_link *l);

/* Makes all calls, for as long as wait_us in all. -ENETDOWN: the server could not be reached a moment ago. 0: each
 * job says what came of it. */
int kube_link_run(struct kube_link *l, struct kube_job *jobs, uint32_t count, int64_t wait_us,
                  struct err *err);
bool kube_link_is_up(const struct kube_link *l); /* the last try reached the server */

/* Says which call a job is; its body is empty. */
void kube_job_set(struct kube_job *j, enum kube_verb verb, const struct kube_resource *resource,
                  const char *name);
/* Returns the failure of a call, as one that says nothing about a key. */
int kube_job_failed(const struct kube_job *j, struct err *err);
/* Returns true if the object is another than the one that the write was meant for. */
bool kube_job_is_conflict(const struct kube_job *j);
