/* cloud_told.h - says what a provider's side tells people: what is left over there, and what a check has found.
 *
 * Layer:   controller/cloud (controller/core)
 * Threads: pure data; the functions are called on the thread that asks
 */
#pragma once
#include "controller/core/intent.h"

/* Describes a thing that a provider keeps without an instance, for `muster gc`. */
struct cloud_leftover {
    const char *name;
    const char *why; /* static; where it stays, the reason */
    bool removable, removed;
};
typedef void (*cloud_leftover_fn)(void *arg, const struct cloud_leftover *one);

/* One thing that a provider's check has found, for `muster doctor`. */
enum cloud_health { CLOUD_FINE, CLOUD_DOUBTFUL, CLOUD_BROKEN };
struct cloud_finding {
    const char *what; /* credentials, quota, ...; static */
    enum cloud_health health;
    char why[INTENT_WHY_BYTES];
    const char *next; /* what a person may do; static; NULL: nothing */
};
typedef void (*cloud_finding_fn)(void *arg, const struct cloud_finding *f);
