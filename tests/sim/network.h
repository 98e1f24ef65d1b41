/* network.h - the links between processes: delay, loss and cuts in one direction.
 *
 * Layer: tests/sim
 * Model: requests to engines and their replies travel on connections: delayed, in order, never
 *        lost, broken when the engine dies. Bytes that meet a cut arrive when it is over, as TCP
 *        sends them again. Each report and each sync is a call of its own: it may be
 *        lost, late, out of order, or cut off in either direction.
 */
#pragma once
#include "tests/sim/agent.h"

struct router_node;

void network_report(struct world *w, struct agent *a, const struct agent_report *r);

/* Sends one encoded sync message; `forged` is the message that a mutant delivers in place of a lost one. */
void network_sync(struct world *w, struct router_node *r, const struct buf *message,
                  const struct buf *forged);

/* Sends a request, whose attempt is already counted, to `instance`. */
void network_send(struct world *w, struct request *r, const char *instance);
void network_cancel(struct world *w, const struct request *r);
/* Sends an engine's reply, or a part of it, back to the router of `s`. */
void network_answer(struct world *w, struct agent *a, const struct seq *s, enum engine_out out,
                    uint32_t count);
void network_beat(struct world *w, struct agent *a); /* on all streams of its engine */
