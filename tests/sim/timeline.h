/* timeline.h - virtual time: one heap of events, one thread, and a digest of all events noted.
 *
 * Layer:    tests/sim
 * Lifetime: the timeline owns an event from timeline_at on, and its payload (malloc) with it
 * Rules:    (1) no part of the simulation reads a real clock or draws chance of its own
 *           (2) each note is hashed with its time, so that two runs of a seed can be compared
 */
#pragma once
#include "base/core/heap.h"

#define SECOND ((int64_t)1000000)
#define MS ((int64_t)1000)
#define TIMELINE_EVENTS_MAX 1000000

struct world;
struct event;
typedef void (*event_fn)(struct world *w, const struct event *e);

struct event {
    struct heap_node node;
    event_fn fn;
    void *who;     /* borrowed: lives as long as the world */
    uint64_t what; /* a number for the receiver: a generation, an index */
    void *payload; /* malloc'd or NULL; freed after fn */
    struct event *next_free;
};

struct timeline {
    struct heap heap;
    struct event *free;
    int64_t began_us, now_us;
    int64_t again_us; /* when the running event comes again; 0: it does not */
    uint64_t digest, events;
    bool verbose;
};

void timeline_init(struct timeline *t, int64_t now_us, bool verbose);
void timeline_fini(struct timeline *t);

void timeline_at(struct timeline *t, int64_t at_us, event_fn fn, void *who, uint64_t what);
void timeline_carry(struct timeline *t, int64_t at_us, event_fn fn, void *who, uint64_t what,
                    void *payload_owned);

/* Makes the running event come again at at_us, with its payload. Called by the event's own function. */
void timeline_again(struct timeline *t, int64_t at_us);

/* Runs events until `until_us`, at which time then stands, or until *stop is true. */
void timeline_run(struct timeline *t, struct world *w, int64_t until_us, const bool *stop);

/* Adds a line to the digest, and prints it when verbose. */
void timeline_note(struct timeline *t, const char *what, const char *who, int64_t value);
