/* network.h - what lies between processes: delay, loss and cuts in one direction.
 *
 * Layer: tests/sim
 * Model: requests to engines and their answers travel on connections: delayed, in order, never
 *        lost, broken when the engine dies. What is cut off comes when the cut is over, as TCP
 *        sends it again. Reports and syncs are calls of their own: they may be
 *        lost, late, out of order, or cut off in either direction.
 */
#pragma once
#include "tests/sim/agent.h"

struct router_node;

void network_report(struct world *w, struct agent *a, const struct agent_report *r);

/* One sync message, encoded; `forged` says what a mutant sends in its place when it is lost. */
void network_sync(struct world *w, struct router_node *r, const struct buf *message,
                  const struct buf *forged);

/* A request on its way to `instance` (attempt counted), and what comes back. */
void network_send(struct world *w, struct request *r, const char *instance);
void network_cancel(struct world *w, const struct request *r);
void network_answer(struct world *w, struct agent *a, const struct seq *s, enum engine_out out,
                    uint32_t count);
void network_beat(struct world *w, struct agent *a); /* on all streams of its engine */
