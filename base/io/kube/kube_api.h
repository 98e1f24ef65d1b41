/* kube_api.h - the Kubernetes API as text: request targets, bodies, errors, metadata of objects, times, labels.
 *
 * Layer:   base/io/kube (base/core). No I/O and no clock
 * Objects: stay JSON text. A caller reads the fields that it needs with base/core/json.h, so that a field
 *          that we do not know costs nothing and gets lost nowhere
 * Bounds:  names as Kubernetes has them; longer ones are refused
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/json.h"

#define KUBE_NAME_BYTES 254   /* a DNS subdomain and a NUL */
#define KUBE_NS_BYTES 64      /* a DNS label */
#define KUBE_UID_BYTES 64     /* 36 in practice */
#define KUBE_VERSION_BYTES 64 /* of a resourceVersion, which is opaque text */
#define KUBE_REASON_BYTES 64
#define KUBE_MESSAGE_BYTES 400 /* longer messages are cut */
#define KUBE_LABEL_BYTES 64    /* a label's value, and a NUL */
#define KUBE_RETRY_AFTER_S_MAX 3600

/* One kind of object, as it is addressed. Usually a static const of the code that uses it. */
struct kube_resource {
    const char *group; /* "" for the core group */
    const char *version;
    const char *plural;
    bool cluster; /* objects belong to no namespace */
};

struct kube_param { /* a query parameter; those without a value are left out */
    const char *name;
    struct str value;
};

/* Appends /api/v1/namespaces/NS/PLURAL/NAME/SUBRESOURCE?PARAMS. An empty `ns` of a namespaced resource
 * addresses the objects of all namespaces (lists only). -EINVAL names the part that is no path segment. */
int kube_target(const struct kube_resource *r, struct str ns, struct str name,
                const char *subresource, const struct kube_param *params, size_t count,
                struct buf *out, struct err *err);

/* ---- errors ---- */

enum kube_reason {
    KUBE_NONE, /* no error, or none that has a name here */
    KUBE_BAD_REQUEST,
    KUBE_UNAUTHORIZED,
    KUBE_FORBIDDEN,
    KUBE_NOT_FOUND,
    KUBE_METHOD_NOT_ALLOWED,
    KUBE_ALREADY_EXISTS,
    KUBE_CONFLICT, /* another resourceVersion, or a field that another manager owns */
    KUBE_GONE,
    KUBE_EXPIRED, /* a resourceVersion or continue token that is too old */
    KUBE_TOO_LARGE,
    KUBE_INVALID,
    KUBE_TOO_MANY_REQUESTS,
    KUBE_INTERNAL_ERROR,
    KUBE_SERVICE_UNAVAILABLE,
    KUBE_SERVER_TIMEOUT,
    KUBE_TIMEOUT,
    KUBE_REASON_COUNT
};
const char *kube_reason_name(enum kube_reason reason); /* as the API writes it; "" for KUBE_NONE */

struct kube_status { /* a Status object */
    int code;
    enum kube_reason reason;
    char reason_text[KUBE_REASON_BYTES]; /* as it was written, also when it has no name here */
    char cause[KUBE_REASON_BYTES]; /* reason of the first of details.causes: DisruptionBudget */
    char message[KUBE_MESSAGE_BYTES];
    int64_t retry_after_s; /* 0: not said */
};

/* Reads a Status object. -EINVAL when the text is none: the reply of a proxy, perhaps. */
int kube_status_read(struct str json, struct kube_status *ret, struct err *err);

/* Makes up the status of an HTTP code whose body was no Status. */
void kube_status_of_code(int code, struct kube_status *ret);

/* Returns the errno of a failed call: -ENOENT, -EEXIST, -ESTALE (KUBE_CONFLICT), -ETIME (KUBE_EXPIRED,
 * KUBE_GONE), -EACCES (KUBE_UNAUTHORIZED), -EPERM (KUBE_FORBIDDEN), -EBUSY (429), -E2BIG, -EINVAL, and
 * -EREMOTEIO for what the server could not do. */
int kube_status_errno(const struct kube_status *s);

/* ---- objects ---- */

struct kube_meta {
    char name[KUBE_NAME_BYTES];
    char ns[KUBE_NS_BYTES]; /* empty: of the cluster */
    char uid[KUBE_UID_BYTES];
    char version[KUBE_VERSION_BYTES];
    int64_t generation; /* 0: none */
    bool deleting;      /* has a deletionTimestamp */
};

/* Reads `metadata` of an object; absent fields are empty. -EINVAL when it is no object with metadata. */
int kube_meta_read(struct str object, struct kube_meta *ret, struct err *err);

/* Calls `item` with each object of a list, then fills *ret_version and *ret_more, the continue token of the
 * next chunk (empty after the last). Items of built-in kinds have no kind and apiVersion of their own. */
int kube_list_read(struct str list, void (*item)(void *arg, struct str object), void *arg,
                   char ret_version[KUBE_VERSION_BYTES], struct buf *ret_more, struct err *err);

/* Reads spec.replicas and status.replicas of a Scale. */
int kube_scale_read(struct str scale, int64_t *ret_wanted, int64_t *ret_there, struct err *err);

/* Copies the text that is the current token into an array. -EINVAL for another type, -E2BIG when it does
 * not fit; null is "". */
int kube_text(const struct json_reader *r, char *ret, size_t bytes);

/* ---- bodies ---- */

enum kube_propagation { KUBE_DEFAULT, KUBE_BACKGROUND, KUBE_FOREGROUND, KUBE_ORPHAN };

struct kube_delete {
    struct str uid;     /* only the object with this uid; empty: any */
    struct str version; /* only at this resourceVersion; empty: any */
    enum kube_propagation propagation;
    int64_t grace_s; /* 0 or less: the object's own */
    bool at_once;    /* without any grace */
};

/* These append DeleteOptions, an Eviction with them, and a merge patch for the scale subresource. */
void kube_put_delete(struct buf *out, const struct kube_delete *d);
void kube_put_eviction(struct buf *out, struct str ns, struct str name,
                       const struct kube_delete *d);
void kube_put_scale(struct buf *out, int64_t replicas);

/* ---- labels ---- */

/* Writes the label's value that stands for a text: the text itself where it can be one, else its letters, digits and
 * dots with '-' for the rest, cut, and eight digits of its SHA-256, so that unlike texts keep unlike labels. The chart
 * writes the same (muster.label in helm/muster/templates/_names.tpl). */
void kube_label(struct str text, char ret[KUBE_LABEL_BYTES]);
