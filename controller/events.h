/* events.h - keeps what happened to the fleet of late: orders of people, changes of instances, losses,
 * refusals, applied configurations.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 * Rules:   (1) a bounded ring in memory: the oldest goes first, and is counted
 *          (2) an order of a person is also appended to the store's log "orders" (audit), and is in the
 *              ring again after a restart; other events are not stored: at the rate at which instances
 *              come and go an fsync each would hold up the loop
 *          (3) an order is noted once it is done. Its text says what was asked for
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "controller/core/intent.h"

#define EVENTS_MAX 1024         /* in memory */
#define EVENTS_ORDERS_MAX 1000  /* in the store */
#define EVENTS_RESTORED_MAX 200 /* of those, after a start */
#define EVENT_WHAT_BYTES 24

/* Texts may be NULL: the event has none of the kind. */
struct event_note {
    const char *what; /* launch, drain, scale, ...; one word */
    const char *by;   /* NULL: the controller itself */
    const char *service, *pool, *instance, *offer;
    const char *text; /* a sentence or part of one, cut to INTENT_WHY_BYTES */
};

struct fleet_event {
    int64_t at_us; /* a date */
    bool order;
    char what[EVENT_WHAT_BYTES], by[NAME_BYTES];
    char service[NAME_BYTES], pool[NAME_BYTES], instance[NAME_BYTES], offer[NAME_BYTES];
    char text[INTENT_WHY_BYTES];
};

struct events {
    struct fleet_event *event; /* EVENTS_MAX */
    uint32_t first, count;
    uint64_t dropped;
};

struct control;

void events_init(struct events *e);
void events_fini(struct events *e);
int events_restore(struct control *c, struct err *err);

void control_note(struct control *c, const struct event_note *note, int64_t now_us);
