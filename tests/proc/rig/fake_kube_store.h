/* fake_kube_store.h - keeps the objects of a scripted API server, their versions and their history.
 *
 * Threads: one
 * Objects: any resource, without a schema. The store writes name, namespace, uid, resourceVersion and
 *          creationTimestamp, and merges patches. It knows no defaults, no field managers and no finalizers
 * Versions: one counter over all resources. The history of changes begins at `oldest`; an older version is
 *          gone (410), as after a compaction of etcd
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/list.h"
#include "base/io/kube/kube_api.h"

#define FAKE_OBJECTS_MAX 20000
#define FAKE_HISTORY_MAX 100000

enum fake_change { FAKE_ADDED, FAKE_MODIFIED, FAKE_DELETED };

struct fake_key {       /* what a request addresses */
    char resource[128]; /* group/version/plural */
    char ns[KUBE_NS_BYTES];
    char name[KUBE_NAME_BYTES]; /* empty: the collection */
};

struct fake_object {
    struct list node;
    struct fake_key key;
    struct buf json;
    char uid[KUBE_UID_BYTES];
    uint64_t version;
    uint64_t ticket; /* of its graceful deletion; 0: none */
};

struct fake_entry { /* of the history */
    struct list node;
    uint64_t version;
    enum fake_change change;
    struct fake_key key;
    struct buf json, before; /* `before` is empty for an addition */
};

struct fake_store {
    struct list objects; /* by resource, namespace, name */
    struct list history; /* the oldest first */
    uint64_t version, oldest, uids;
    uint32_t object_count, history_count;
};

void fake_store_init(struct fake_store *s);
void fake_store_fini(struct fake_store *s);
void fake_store_clear(struct fake_store *s); /* empties it and starts the versions over */

struct fake_object *fake_find(const struct fake_store *s, const struct fake_key *key);

/* Returns true if an object lies in the collection `in` (an empty namespace: all) and its labels and names
 * are selected. Selectors are a=b,c=d; fields metadata.name and metadata.namespace. */
bool fake_is_in(const struct fake_key *in, const struct fake_key *key, struct str json,
                struct str labels, struct str fields);

/* Makes, changes and removes an object; the last two keep uid and creation. Return the object's new JSON
 * in o->json, and write the history. NULL: -EINVAL, the body is no object with metadata. */
struct fake_object *fake_create(struct fake_store *s, const struct fake_key *key, struct str body);
int fake_change(struct fake_store *s, struct fake_object *o, struct str json);
void fake_remove(struct fake_store *s, struct fake_object *o);

/* Forgets the history up to the present version. */
void fake_compact(struct fake_store *s);

/* Appends `target` changed by a JSON merge patch (RFC 7396). */
void fake_merge(struct str target, struct str patch, struct buf *out);

/* Return the raw value behind a path of keys, "metadata.labels", and a string's text without quotes; empty when
 * absent. */
struct str fake_get(struct str json, const char *path);
struct str fake_text(struct str json, const char *path);
