/* service_list.h - lists the services that objects of Kubernetes have brought into force, as the store keeps them,
 * and puts them beside those of a configuration's text.
 *
 * Layer:    controller/objects (base/wire, base/io/config)
 * Threads:  pure
 * Why kept: after a start the controller knows its services before the API server has said a word, and
 *           an object that is not known yet is not one that is gone
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/kube/kube_api.h"
#include "controller/core/plan.h"

#define SERVICE_LIST_MAX PLAN_SERVICES_MAX
#define SERVICE_LIST_BYTES_MAX ((size_t)384 << 10) /* of a list as text */
#define SERVICE_ENTRY_BYTES_MAX ((size_t)64 << 10) /* of one service in it */

/* One object whose specification is in force. */
struct service_entry {
    struct str object, uid; /* name and identity of the object */
    struct str name;        /* of the service */
    struct str service;     /* one of `services` of muster.yaml, as JSON */
    uint64_t generation;    /* of the object */
    int64_t replicas;       /* spec.replicas as it was carried out; -1: none */
};

struct service_list {
    struct service_entry *entry;
    uint32_t count;
};

/* Reads a list; its strings live in `arena`. An empty text is an empty list. */
int service_list_read(struct str text, struct arena *arena, struct service_list *ret,
                      struct err *err);
int service_list_write(const struct service_list *list, struct buf *out);

const struct service_entry *service_list_find(const struct service_list *list, struct str object);

/* Appends the configuration `base` with the services of the list `text` behind its own. -EEXIST and both places
 * where a service is there twice. `name` is the base's, for sentences. */
int service_list_merge(struct str base, const char *name, struct str text, struct buf *out,
                       struct err *err);
