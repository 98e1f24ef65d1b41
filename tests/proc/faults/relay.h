/* relay.h - runs a TCP relay between real processes, which cuts one direction or both, or resets.
 *
 * Processes that are started after relay_open connect through the relay wherever one part of Muster
 * connects to another (reroute.h); the test's own connections do not. A test program has one relay.
 *
 * Threads: the relay runs in a thread of its own; the test's thread calls these functions
 * Needs:   REROUTE_LIB in the environment, the library to preload
 */
#pragma once
#include "tests/proc/faults/reroute.h"

void relay_open(void);
void relay_close(void); /* resets what is open */

/* Tells the relay which part has this port; any other port is an engine's. */
void relay_knows(enum part part, uint16_t port);

/* Cuts from now on all connections that `from` opens to `to` at the port (0: at any port), also those
 * already open. Bytes sent during a cut arrive after it, as on a real network: none is lost within a
 * connection that both sides keep. CUT_NONE ends the cut. */
void relay_cut(enum part from, enum part to, uint16_t port, enum cut cut);
