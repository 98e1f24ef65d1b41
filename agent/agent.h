/* agent.h - the agent role: one loop that keeps one engine.
 *
 * Layer: agent
 */
#pragma once
#include "agent/config.h"

/* Supervises the engine of the launch document until the instance has ended; SIGTERM and SIGINT
 * end it (the engine finishes what it serves). 0, or a negative errno and err; -EBUSY: another
 * agent has the instance. An engine that runs already is adopted, and one lives on when the agent
 * is killed. With engine_port it becomes the engine and does not return on success. */
int agent_main(const struct agent_config *config, struct err *err);
