/* object_events.h - records Events of events.k8s.io about objects, at a bounded rate.
 *
 * Layer:   controller/objects (base/io/kube)
 * Threads: the loop's
 * Rules:   (1) an event that was told within OBJECT_EVENTS_SERIES_US with the same words becomes a series: its
 *              count and time are patched, once in OBJECT_EVENTS_PATCH_US at most
 *          (2) OBJECT_EVENTS_BURST at once, then one in OBJECT_EVENTS_PER_US. What is beyond is counted and not
 *              told: `muster get events` has it
 *          (3) they are for people: one that cannot be written is counted, logged, and not tried again
 */
#pragma once
#include "base/io/kube/kube_client.h"

#define OBJECT_EVENTS_RECENT_MAX 64
#define OBJECT_EVENTS_RUNNING_MAX 8
#define OBJECT_EVENTS_BURST 20
#define OBJECT_EVENTS_PER_US 2000000
#define OBJECT_EVENTS_SERIES_US 600000000
#define OBJECT_EVENTS_PATCH_US 60000000
#define OBJECT_EVENT_NOTE_BYTES 1024 /* the API's bound */

struct object_events;

struct object_event {
    const struct kube_meta *about;
    const char *api_version, *kind; /* of it */
    bool warning;
    const char *reason; /* CamelCase */
    const char *action; /* likewise: what was done, or was to be */
    const char *note;   /* a sentence, cut at OBJECT_EVENT_NOTE_BYTES */
};

struct object_events_counts {
    uint64_t written, series, failed, dropped;
};

/* `reporter` is this process among several controllers; copied. The client outlives it. */
int object_events_new(struct kube_client *client, struct str reporter, struct object_events **ret,
                      struct err *err);
void object_events_free(struct object_events *e);
void object_events_tell(struct object_events *e, const struct object_event *event);
void object_events_counts_get(const struct object_events *e, struct object_events_counts *ret);
