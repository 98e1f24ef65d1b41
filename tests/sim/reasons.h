/* reasons.h - judges by the truth whether an instance may be ended.
 *
 * Layer: tests/sim
 * Rules: (1) the controller's own word is a reason only for its decisions (the plan, a drain); for
 *            facts about others (silence, a missed deadline, absence) only the truth counts
 *        (2) time in which the controller was away or did not run is no silence of others
 */
#pragma once
#include <stdbool.h>

struct world;
struct agent;

/* Judges the removal of `a`, whose machine runs and is about to be removed, and tells the history. */
void reasons_removal(struct world *w, struct agent *a);

/* Judges the end of an instance by its own agent. */
void reasons_self_end(struct world *w, struct agent *a);

/* Returns true if the intent of the machine that was made just now is already over. */
bool reasons_is_late(const struct world *w, const struct agent *a);

/* Judges every instance whose intent is ending, and tells the history of machines that run although their
 * intent has ended. */
void reasons_after_tick(struct world *w);
