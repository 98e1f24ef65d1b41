/* reasons.h - why an instance may be ended, judged by the truth.
 *
 * Layer: tests/sim
 * Rules: (1) what the controller says of itself is a reason only where it decided so (the plan, a
 *            drain); of others (silence, a missed deadline, absence) only the truth counts
 *        (2) time in which the controller was away or did not run is no silence of others
 */
#pragma once
#include <stdbool.h>

struct world;
struct agent;

/* The machine of `a` runs and is about to be removed. Tells the history. */
void reasons_removal(struct world *w, struct agent *a);

/* Its agent ends it by itself. */
void reasons_self_end(struct world *w, struct agent *a);

/* Made just now, and its intent is over already. */
bool reasons_is_late(const struct world *w, const struct agent *a);

/* What the books say is being ended has a reason, and nothing runs that they say is gone. */
void reasons_after_tick(struct world *w);
