/* damage.h - stored records that are torn, overwritten or gone when the controller comes back.
 *
 * Layer: tests/sim
 * Model: while the controller is away one record of its store is cut, filled with other bytes or
 *        deleted. What was damaged is kept, and put back when the faults are over, as a person
 *        would; what was deleted stays gone.
 */
#pragma once
#include "base/core/buf.h"

#define DAMAGE_MAX 16 /* records at once; more are left alone */

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
void damage_repair(struct world *w); /* and the controller starts again, as it reads them then */
void damage_end(struct world *w);

uint32_t damage_of_intents(const struct world *w);

/* Its intent cannot be read: nobody may end it. */
bool damage_hides(const struct world *w, const struct agent *a);
