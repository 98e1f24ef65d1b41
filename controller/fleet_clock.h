/* fleet_clock.h - reads fleet time (core/fleet_time.h) from this machine's clocks and keeps it in the store.
 *
 * Layer:   controller (controller/core, base/io)
 * Threads: the controller's loop
 * Record:  "clock", written at the start and once in FLEET_CLOCK_KEEP_US
 */
#pragma once
#include "base/io/store/store.h"

#include <stdbool.h>
#include <stdint.h>

#define FLEET_CLOCK_KEEP_US 60000000 /* the most that a loss of power may take from the count */

struct fleet_clock {
    struct store *store; /* borrowed */
    int64_t ahead_us;    /* of the boot clock */
    int64_t kept_us;     /* when the record was written; fleet time */
    bool unreadable;     /* the record cannot be read: it stays, and the count began at the date */
};

/* Continues the count that the store holds. */
int fleet_clock_open(struct fleet_clock *c, struct store *store, struct err *err);

int64_t fleet_clock_now(const struct fleet_clock *c);
int64_t fleet_clock_date_ahead(const struct fleet_clock *c); /* date less fleet time, of now */

/* Writes the record when it is due. A failure is the caller's to count; the next try is due
 * FLEET_CLOCK_KEEP_US later. */
int fleet_clock_keep(struct fleet_clock *c, struct err *err);
