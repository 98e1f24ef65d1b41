/* kube_client.h - makes calls to a Kubernetes API server: one verb on one resource, the whole reply or a stream.
 *
 * Layer:   base/io/kube (kube_auth, kube_api, fetch)
 * Threads: the loop's
 * Life:    a call lives from kube_start until on_end returns, or until kube_cancel. No callback comes from
 *          inside kube_start or kube_cancel. Callbacks may cancel calls and start others, and may not call
 *          kube_client_free. Lists, watches and leases end before their client
 * Retry:   until the deadline, with exponential back-off and jitter, or as long as Retry-After says:
 *              any verb       when nothing was sent; after a 401, once, with new credentials
 *              idempotent     after a broken connection, a 5xx or a 429: GET, LIST, APPLY, PATCH, DELETE
 *              CREATE         after a 429, which was not carried out; otherwise the reply says `unsure`,
 *              and REPLACE    and the caller looks what became of it
 *              EVICT, WATCH   never: a 429 of an eviction is a disruption budget's answer
 * Budget:  calls_per_s with bursts, over all calls but urgent ones; KUBE_WAITING_MAX calls wait for it
 *          (-EAGAIN beyond), each within its deadline
 */
#pragma once
#include "base/core/rng.h"
#include "base/io/fetch.h"
#include "base/io/kube/kube_api.h"
#include "base/io/kube/kube_auth.h"
#include "base/io/metrics.h"

#define KUBE_WAITING_MAX 1024
#define KUBE_RUNNING_MAX 64      /* streams included */
#define KUBE_CALL_US 30000000    /* deadline of a call that names none */
#define KUBE_SILENCE_US 15000000 /* a try that hears nothing for so long is given up */
#define KUBE_REPLY_BYTES ((size_t)64 << 20)
#define KUBE_REPLY_PROBLEM_BYTES 700
#define KUBE_FIELD_MANAGER "muster"

struct kube_client;
struct kube_call;

enum kube_verb {
    KUBE_GET,
    KUBE_LIST,
    KUBE_WATCH, /* on_data gets the frames (kube_frame.h) */
    KUBE_CREATE,
    KUBE_APPLY,   /* server-side apply: the body is the object with the fields that we own */
    KUBE_PATCH,   /* merge patch */
    KUBE_REPLACE, /* the body's resourceVersion must be the present one */
    KUBE_DELETE,
    KUBE_EVICT,
    KUBE_VERB_COUNT
};
extern const char *const kube_verb_names[KUBE_VERB_COUNT];

struct kube_reply {
    int rc;      /* 0 for 2xx; kube_status_errno; -EHOSTUNREACH, -EKEYREJECTED, -ECONNRESET,
                               * -ETIMEDOUT, -EMSGSIZE, -EPROTO, -ENOBUFS, -ECANCELED of the connection */
    int code;    /* HTTP status; 0: no reply */
    bool unsure; /* failed, and may have been carried out all the same */
    struct kube_status status; /* of a reply that is no 2xx */
    uint32_t tries;
    const char *problem; /* a sentence when rc < 0; else empty */
    struct str body;     /* of a 2xx, without on_data; until on_end returns */
};

struct kube_request { /* everything is copied */
    enum kube_verb verb;
    const struct kube_resource *resource; /* lives as long as the client */
    struct str ns, name;
    const char *subresource; /* "status", "scale"; static; NULL: none */
    struct str body;         /* JSON: CREATE, APPLY, PATCH, REPLACE */

    struct str label_selector, field_selector; /* LIST, WATCH */
    uint32_t limit;                            /* LIST: objects of a chunk; 0: all */
    struct str cont;                           /* LIST: the token of the next chunk */
    struct str version, version_match;         /* GET, LIST, WATCH: resourceVersion, ...Match */
    uint32_t timeout_s;                        /* WATCH: the server ends it then */
    struct kube_delete del;                    /* DELETE, EVICT */
    bool force;                                /* APPLY: take fields that others own */
    bool dry_run;

    bool urgent;           /* outside the budget: leases and watches */
    int64_t deadline_us;   /* on the loop's clock; 0: KUBE_CALL_US from now; WATCH: none */
    int64_t idle_us;       /* as in fetch_request; 0: KUBE_SILENCE_US; WATCH: any */
    size_t body_bytes_max; /* of the reply; 0: KUBE_REPLY_BYTES */

    void (*on_head)(void *arg, int code);        /* optional; 2xx only */
    void (*on_data)(void *arg, struct str data); /* optional; the body of a 2xx as it comes */
    void (*on_end)(void *arg, const struct kube_reply *reply);
    void *arg;
};

struct kube_meters {         /* metrics that a role exports; NULL: none */
    struct metrics *metrics; /* borrowed */
    uint32_t calls;   /* counter; labels verb, resource, code: the status, or why none came */
    uint32_t seconds; /* histogram; label verb: of one try */
    uint32_t waited_seconds; /* counter, no labels: time that calls waited for the budget */
};

struct kube_client_config {               /* 0: the default */
    double calls_per_s;                   /* 20 */
    double burst;                         /* 40 */
    int64_t back_off_us, back_off_us_max; /* 250 ms doubling to 8 s */
    uint64_t seed;                        /* of jitter */
    bool http2;
    struct kube_meters meters;
    const char *const
        *environ; /* for proxies, as in fetch_config; NULL: none but the kubeconfig's */
};

struct kube_client_counts {
    uint64_t calls; /* tries that were sent to the server */
    uint64_t by_verb[KUBE_VERB_COUNT];
    uint64_t retries, refused; /* KUBE_WAITING_MAX */
    uint64_t running, waiting; /* now */
    int64_t heard_us;          /* when a reply last came, on the loop's clock; 0: never */
};

/* `cluster` outlives the client. */
int kube_client_new(struct loop *l, const struct kube_config *cluster,
                    const struct kube_client_config *config, struct kube_client **ret,
                    struct err *err);
void kube_client_free(struct kube_client *c); /* ends open calls with -ECANCELED */
CLEANUP_FREEP(kube_client, struct kube_client)
void kube_client_counts_get(const struct kube_client *c, struct kube_client_counts *ret);
struct loop *kube_client_loop(const struct kube_client *c);
const struct kube_config *kube_client_cluster(const struct kube_client *c);
struct rng *kube_client_rng(struct kube_client *c); /* for jitter of those who stand on it */

/* Draws the next back-off after `failures` in a row: half to all of back_off_us * 2^(failures - 1), at most
 * back_off_us_max. */
int64_t kube_back_off_us(struct kube_client *c, uint32_t failures);

/* -EAGAIN at KUBE_WAITING_MAX; -EINVAL for a name that is no path segment; -ENOMEM. */
int kube_start(struct kube_client *c, const struct kube_request *req, struct kube_call **ret,
               struct err *err);
void kube_cancel(struct kube_call *call);
