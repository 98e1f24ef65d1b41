/* engine.h - runs the engine process, from its configuration to its exit.
 *
 * Layer:   engine
 * Threads: called on the main thread, which becomes the HTTP loop; starts the device thread
 * Signals: SIGTERM and SIGINT drain (config.drain_us at most) and end; a second one ends at once
 */
#pragma once
#include "engine/config.h"

/* Serves until told to stop. Returns 0 if it ended as asked; negative, with a sentence, if it could
 * not start or the model did not load. */
int engine_main(const struct engine_config *config, struct err *err);
