/* store_kube_lease.h - the Lease that says who may write to a store on Kubernetes, and what its objects are.
 *
 * Layer:   base/io, private to store_kube*.c. No I/O; the date is printed for people, and compared by nobody
 * Threads: the store's
 */
#pragma once
#include "base/io/kube/kube_api.h"
#include "base/io/store/store.h"
#include "base/io/store/store_kube_shard.h"

#define LEASE_OBJECTS 48 /* ConfigMaps and Secrets of a store */

/* The Lease, as it was read or written last. */
struct lease_object {
    bool exists;
    char version[KUBE_VERSION_BYTES]; /* empty: unknown, a write's reply was lost */
    struct store_lease is;
    char life[SHARD_LIFE_BYTES]; /* empty: not said */
    bool complete;               /* all objects of this life were written once */
    uint64_t writes[LEASE_OBJECTS];
    int64_t transitions;
};

/* Reads the object. -EILSEQ: it is damaged, of another release, or another program's. `name` is for sentences. */
int lease_object_read(const char *name, struct str object, struct lease_object *ret,
                      struct err *err);

/* Writes the body of a create, or of a merge patch where `l` has a version. `acquired`: the holder changes. */
void lease_object_print(const struct lease_object *l, const char *name, bool acquired,
                        struct buf *out);
