/* kube_watched.h - a watch of ConfigMaps that writes its events down, for tests to compare. */
#pragma once
#include "tests/proc/kube/kube_rig.h"

struct kube_watched {
    struct kube_watch *watch;
    struct buf log;           /* "+a +b = ~a -b ": added, synced, changed, deleted */
    uint32_t events, stop_at; /* at this event the watch is stopped, from within */
};

/* Starts the watch in the rig's namespace. Fills resource, ns, on_event and arg itself. */
void kube_watched_start(struct kube_world *w, struct kube_watched *s,
                        struct kube_watch_request req);
void kube_watched_end(struct kube_watched *s);
struct kube_watch_state kube_watched_state(const struct kube_watched *s);

/* Writes an event down; the on_event of a watch that a test starts in another way. `arg`: struct kube_watched. */
void kube_watched_event(void *arg, const struct kube_event *e);

/* Turns the loop until the log is this text; fails the test after RIG_WAIT_US. */
void kube_watched_until(struct kube_world *w, const struct kube_watched *s, const char *text);
