/* joins.h - lets agents in that show the token of their instance (core/join.h).
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 */
#pragma once
#include "controller/control.h"

/* Returns true if an agent may ask: there is such an instance, and its provider was given a token for it. What comes
 * for others is not looked at. */
bool control_may_join(const struct control *c, struct str instance);

/* Judges an agent that has proven the instance's token, and keeps the mark of the first. Where another agent has joined
 * with the token, the instance is contested. 0 and the verdict; -ENOENT:
 * control_may_join says no; -EAGAIN: the mark could not be stored; -ECANCELED at an armed step. */
int control_join(struct control *c, struct str instance, const char *mark, int64_t now_us,
                 enum join_verdict *ret);

void control_count_foreign(struct control *c); /* an agent has not proven the token */

/* The step after the mark is durable, before the agent hears of it: for crash_at and tests, beside control_steps. */
extern const char control_join_step[];

/* Ends a contested instance where the configuration says so: asked at each tick, so that a crash, or another
 * configuration, between the two changes nothing. */
int control_heed_contest(struct control *c, uint32_t at, int64_t now_us);

/* act.c: stores a mark, or, with NULL, that the instance is contested. */
int control_keep_join(struct control *c, uint32_t at, const char *mark, int64_t now_us);
