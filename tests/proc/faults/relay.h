/* relay.h - a TCP relay between real processes that delays, cuts one way or both, and resets.
 *
 * Processes that are started after relay_open go by it wherever one part of Muster connects to
 * another (reroute.h); this test's own connections do not. One relay in a test program.
 *
 * Threads: the relay runs in a thread of its own; everything here is called by the test's.
 * Needs:   REROUTE_LIB in the environment, the library to preload
 */
#pragma once
#include "tests/proc/faults/reroute.h"

void relay_open(void);
void relay_close(void); /* resets what is open */

/* Whose port that is; any other port is an engine's. */
void relay_knows(enum part part, uint16_t port);

/* From now on, between `from`, which connects, and `to`; port 0: of all of them. What is sent
 * during a cut arrives after it, as with a wire: nothing is lost within a connection that both
 * sides keep. CUT_NONE ends it. */
void relay_cut(enum part from, enum part to, uint16_t port, enum cut cut);

/* Every byte comes this much later, each way. */
void relay_delay(int64_t us);

/* Connections that were taken and bytes that were carried from one to the other, both ways. */
uint64_t relay_links(enum part from, enum part to);
uint64_t relay_bytes(enum part from, enum part to);
