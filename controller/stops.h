/* stops.h - keeps drained instances stopped at their provider, up to a pool's `keep_stopped`, and finds them again.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 * Rules:   (1) only an instance that drained as planned is kept: not one that a person drains, that its provider takes
 *              away or whose machine is failing
 *          (2) it is started again only while its machine would be told the same as a new one: the launch document on
 *              its disk is that of its create (`mark`)
 *          (3) what the pool no longer keeps is removed: no disk is forgotten
 */
#pragma once
#include "controller/control_state.h"

/* Returns true if instances of the pool at the offer are made so that they can be kept stopped. */
bool control_may_stop(const struct control *c, uint32_t service, uint32_t pool, uint32_t offer);

bool control_may_stop_at(const struct control *c, uint32_t at); /* the same of an intent's slot */

/* Writes the mark of what a machine of the pool is told: equal marks, equal machines. Empty: no memory, or the pool
 * keeps none. */
void control_mark(const struct control *c, uint32_t service, uint32_t pool, uint32_t offer,
                  char ret[INTENT_MARK_BYTES]);

/* Returns the slot of the stopped instance that a launch of the pool at the offer starts, the one that stopped last;
 * PLAN_NONE: none. */
uint32_t control_find_stopped(const struct control *c, uint32_t service, uint32_t pool,
                              uint32_t offer);

/* Returns the event in place of `e`: a drained instance is stopped where its pool keeps it, and a stopped one ends where
 * its pool keeps it no more. */
enum intent_event control_keep_or_end(const struct control *c, uint32_t at, enum intent_event e);
