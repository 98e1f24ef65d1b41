/* leaders.h - two controllers share a store, and one leads: the election's process, terms, and who is asked.
 *
 * Layer: tests/sim
 * Role:  what controller/leader.c does in the product, under the world's clocks; the election itself is the
 *        product's
 * World: w->controller is the one whose term began last. A stopped one may still hold an older control, and drops
 *        it when it goes on
 */
#pragma once
#include "fleet/controllers.h"
#include "tests/sim/controller.h"

#define SIM_TERM_US (6 * SECOND)

void leaders_start(struct world *w,
                   struct controller_node *n); /* the process begins, and stands by */
void leaders_lose_store(struct world *w);

/* Returns true if the process leads; ends its term otherwise. */
bool leaders_may_tick(struct world *w, struct controller_node *n);

/* Ends the term that the store or the provider refused in this tick; returns true if it goes on. */
bool leaders_after_tick(struct world *w, struct controller_node *n);
bool leaders_leads(const struct controller_node *n);

/* The processes that an agent or router knows. */
void leaders_known(const struct world *w, struct controllers *ret);

/* Returns the one that is asked. */
struct controller_node *leaders_asked(struct world *w, const struct controllers *c);

/* Sends the asker on to the one that leads, as far as `n`, which stands by, knows it. Returns true if it knows. */
bool leaders_sends_on(const struct world *w, const struct controller_node *n,
                      struct controllers *c);
