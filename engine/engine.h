/* engine.h - the engine process, from its configuration to its exit.
 *
 * Layer:   engine
 * Threads: called on the main thread, which becomes the HTTP loop; starts the device thread
 * Signals: SIGTERM and SIGINT drain (config.drain_us at most) and end; a second one ends at once
 */
#pragma once
#include "engine/config.h"

/* Serves until told to stop. 0: ended as asked. Negative, with a sentence: it could not start, or
 * the model did not load. */
int engine_main(const struct engine_config *config, struct err *err);
