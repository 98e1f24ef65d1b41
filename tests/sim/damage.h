/* damage.h - damages stored records while the controller is away.
 *
 * Layer: tests/sim
 * Model: one record of the store is cut short, filled with other bytes or deleted. The whole record is
 *        kept and, if it is an intent, put back when the faults are over, as a person would do; a deleted
 *        record stays gone.
 */
#pragma once
#include "base/core/buf.h"

#define DAMAGE_MAX 16 /* damaged records at once; then no further one is damaged */

struct damaged_record {
    char key[80];
    struct buf whole;
};

struct damage {
    struct damaged_record record[DAMAGE_MAX];
    uint32_t count;
};

struct world;
struct agent;
void damage_one(struct world *w);
void damage_repair(struct world *w); /* and restarts the controller, so that it reads them */
void damage_end(struct world *w);

uint32_t damage_of_intents(const struct world *w);

/* Returns true if the intent of `a` cannot be read, so that the controller may not end `a`. */
bool damage_hides(const struct world *w, const struct agent *a);
