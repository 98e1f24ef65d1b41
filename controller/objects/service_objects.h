/* service_objects.h - takes services from MusterService objects of the cluster, and tells their state there.
 *
 * Layer:    controller/objects (base/io/kube, controller)
 * Threads:  the loop's
 * Lifetime: opened at the controller's start; watches while a term lasts
 * Rules:    (1) only the controller that leads watches, writes and changes anything
 *           (2) a specification comes into force through the owner's `change`, as an applied configuration does:
 *               checked, compared, prepared, durable, committed. What is refused changes nothing, and what
 *               was in force before stays
 *           (3) an object that the watch has not told yet is unknown, not gone: services end only after a whole
 *               list, or a deletion that was seen
 *           (4) the first object that names a service has it, also over restarts; others of that name are refused
 *           (5) a status is written when it has changed, once in SERVICE_STATUS_US for an object at most
 * Bounds:   SERVICE_OBJECTS_MAX objects; more are not looked at, which is logged. SERVICE_LIST_MAX of
 *           them in force
 */
#pragma once
#include "base/io/kube/kube_client.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/fleet_clock.h"
#include "controller/objects/service_status.h"

#define SERVICE_OBJECTS_MAX 64
#define SERVICE_STATUS_US 3000000 /* between two writes of a status */
#define SERVICE_LOOK_US 1000000   /* between two looks at what is to be told */
#define SERVICE_SOON_US 100000    /* from an event to a look: several come together */
#define SERVICE_AGAIN_US 10000000 /* between tries of what may succeed later */
/* A new term decides within this, before its ignorance is told. */
#define SERVICE_SETTLE_US 30000000

struct service_objects_config { /* borrowed for the object's life */
    struct loop *loop;
    const struct kube_section *section;
    const char *const *environ;
    uint64_t seed;
    struct str reporter; /* this controller, in events */
    const struct config_schema *schema;
    const struct fleet_clock *clock;
    struct metrics *metrics; /* of control_metric_table */
    bool (*leads)(void *arg);

    /* Puts the services of a list into force beside those of the configuration, for `by`. -EEXIST: one is in the
     * configuration; -EINVAL: refused for what it says; others: not now. */
    int (*change)(void *arg, struct str list, const char *by, struct err *err);

    /* Returns the list in force, until the next change, and the generation of the configuration. */
    struct str (*list)(void *arg, uint64_t *ret_generation);
    void *arg;
};

struct service_objects;

int service_objects_new(const struct service_objects_config *config, struct service_objects **ret,
                        struct err *err);
void service_objects_free(struct service_objects *o); /* NULL is fine */
CLEANUP_FREEP(service_objects, struct service_objects)

/* A term begins, of which `control` is; and ends. NULL is fine. */
int service_objects_begin(struct service_objects *o, struct control *control, struct err *err);
void service_objects_end(struct service_objects *o);
