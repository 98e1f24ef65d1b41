/* kube_watch.h - follows the objects of a kind: lists them once, then watches, and tells what changes.
 *
 * Layer:   base/io/kube (kube_list, kube_frame)
 * Threads: the loop's
 * Life:    from kube_watch_start until kube_watch_stop, which callbacks may call. No callback comes from
 *          inside either
 *
 *              start, 410, silence twice
 *                 │
 *                 ▼              version             stream's end, error
 *              LISTING ─────────────────► WATCHING ──────────────────────► WAITING (back-off)
 *                 ▲ error: WAITING            ▲                               │
 *                 └───────────────────────────┴───────────────────────────────┘
 *
 * Rules:   (1) a lost stream goes on from the last resourceVersion; bookmarks keep that young. Only a 410, or
 *              a server whose versions went backwards, is answered with a list
 *          (2) after a list, objects that changed meanwhile are told as ADDED, MODIFIED or DELETED; those
 *              that did not are not told again. An object that was replaced under the same name is DELETED and
 *              ADDED
 *          (3) KUBE_SYNCED is told once all objects of a list were
 *          (4) a stream without a byte for idle_us is given up: servers send a bookmark a minute
 *          (5) `optional` objects may be of an API that the server lacks (404), or that this account may not list
 *              (403). Then there are none: those that were known are DELETED, KUBE_SYNCED is told, the first is
 *              logged at debug and the second as a warning with the rule that is missing, once; and it is looked
 *              for again each KUBE_WATCH_AGAIN_US
 * Bounds:  objects_max objects, of which name, uid and version are kept; more is an error of the state
 */
#pragma once
#include "base/io/kube/kube_client.h"

#define KUBE_WATCH_OBJECTS_MAX 65536
#define KUBE_WATCH_IDLE_US 150000000 /* two and a half bookmarks */
#define KUBE_WATCH_S 300             /* timeoutSeconds: this to twice this */
#define KUBE_WATCH_AGAIN_US 60000000
#define KUBE_WATCH_GOOD_US 5000000 /* a stream of that age, or with a frame, was none that failed */

struct kube_watch;

enum kube_event_type { KUBE_ADDED, KUBE_MODIFIED, KUBE_DELETED, KUBE_SYNCED };

struct kube_event {
    enum kube_event_type type;
    const struct kube_meta *meta; /* NULL: KUBE_SYNCED */
    struct str object;            /* JSON; empty: KUBE_SYNCED, and a deletion that a list showed */
};

enum kube_watch_step { KUBE_LISTING, KUBE_WATCHING, KUBE_WAITING };

struct kube_watch_state {
    enum kube_watch_step step;
    bool synced;    /* a list was told whole; stays true while the cluster is out of reach */
    bool connected; /* the server has accepted the watch */
    /* when the server last confirmed this state, on the loop's clock; 0: never */
    int64_t confirmed_us;
    char version[KUBE_VERSION_BYTES];
    uint32_t objects;
    uint64_t lists, watches, events, bookmarks;
    uint64_t expired;    /* 410s, and versions that went backwards */
    uint64_t silent;     /* streams given up for silence */
    uint32_t failures;   /* in a row */
    int missing;         /* optional: 404 or 403, as above; 0: the server lists them */
    const char *problem; /* of the last failure; empty after a success; until the loop turns */
};

struct kube_watch_request { /* everything is copied */
    const struct kube_resource *resource;
    struct str ns, label_selector, field_selector;
    uint32_t limit;       /* of a list's chunks; 0: KUBE_LIST_LIMIT */
    uint32_t objects_max; /* 0: KUBE_WATCH_OBJECTS_MAX */
    int64_t idle_us;      /* 0: KUBE_WATCH_IDLE_US */
    bool optional;
    void (*on_event)(void *arg, const struct kube_event *event);
    void *arg;
};

int kube_watch_start(struct kube_client *c, const struct kube_watch_request *req,
                     struct kube_watch **ret, struct err *err);
void kube_watch_stop(struct kube_watch *w); /* NULL is fine */
void kube_watch_state_get(const struct kube_watch *w, struct kube_watch_state *ret);
