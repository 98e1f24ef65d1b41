/* kube_list.h - lists all objects of a kind, chunk by chunk.
 *
 * Layer:   base/io/kube (kube_client)
 * Threads: the loop's
 * Life:    from kube_list_start until on_end returns, or until kube_list_cancel, which callbacks may call
 * Rules:   (1) all chunks are of one state of the cluster. When a chunk's token is too old the listing begins
 *              anew, and on_begin is called again: the caller forgets the objects of the attempt before
 *          (2) after KUBE_LIST_ATTEMPTS such attempts it asks for everything at once
 */
#pragma once
#include "base/io/kube/kube_client.h"

/* Objects a chunk: some megabytes, some tens of milliseconds of reading. */
#define KUBE_LIST_LIMIT 250
#define KUBE_LIST_ATTEMPTS 3

struct kube_list;

struct kube_list_end {
    int rc; /* as in kube_reply; -EINVAL for a reply that is no list */
    int code;
    const char *problem;
    const char *version; /* resourceVersion of the listing, to watch from */
    uint32_t count;      /* objects */
};

struct kube_list_request { /* everything is copied */
    const struct kube_resource *resource;
    struct str ns, label_selector, field_selector;
    uint32_t limit;      /* 0: KUBE_LIST_LIMIT */
    int64_t deadline_us; /* of each chunk from its start; 0: KUBE_CALL_US */
    bool urgent;
    void (*on_begin)(void *arg); /* optional */
    void (*on_item)(void *arg, struct str object);
    void (*on_end)(void *arg, const struct kube_list_end *end);
    void *arg;
};

int kube_list_start(struct kube_client *c, const struct kube_list_request *req,
                    struct kube_list **ret, struct err *err);
void kube_list_cancel(struct kube_list *l);
