/* fleet_time.h - counts the controller's time: one count over all its restarts, which no step of the date
 * moves.
 *
 *     fleet time = boot clock + ahead        (microseconds)
 *
 * At the very first start it begins at the date. From then on `ahead` is a record in the store, so
 * that a controller which starts again in the same boot goes on in the same count: intents, leads,
 * windows of policies and bills hold times that can be compared for as long as the machine runs.
 * Another boot has another boot clock; there the date says how long the machine was away, counted
 * from the last moment that was written, and never less than nothing.
 *
 * Layer:   controller/core (base/wire, base/core)
 * Threads: pure; the controller's loop calls
 * Rules:   (1) fleet time never goes back, over no restart, boot or step of the date
 *          (2) people are shown fleet time + (date - fleet time) of that moment: control.h
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"

/* The machine's clocks at one moment. */
struct fleet_moment {
    uint64_t boot;   /* digest of the boot's id */
    int64_t mono_us; /* since that boot */
    int64_t wall_us; /* the date */
};

/* The stored form: fleet time and the clocks at the moment when it was written. */
struct fleet_record {
    uint64_t boot;
    int64_t ahead_us, seen_us, wall_us; /* seen_us: in fleet time */
};

/* Returns how far fleet time is ahead of the boot clock; `last` NULL: never written. */
int64_t fleet_time_ahead(const struct fleet_record *last, const struct fleet_moment *now);

struct fleet_record fleet_record_at(int64_t ahead_us, const struct fleet_moment *now);
int fleet_record_encode(const struct fleet_record *r, struct buf *out);
int fleet_record_decode(struct str text, struct arena *arena, struct fleet_record *ret,
                        struct err *err);
