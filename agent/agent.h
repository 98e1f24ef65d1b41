/* agent.h - the agent role: one loop that supervises one engine.
 *
 * Layer: agent
 */
#pragma once
#include "agent/config.h"
#include "agent/tokenizer.h"

/* Supervises the engine of the launch document until the instance has ended; SIGTERM and SIGINT end
 * it (the engine finishes the requests in flight). Returns 0, or a negative errno and err; -EBUSY:
 * another agent has the instance. An engine that runs already is adopted, and an engine lives on when
 * its agent is killed. With engine_port it becomes the engine and does not return on success.
 *
 * With `adopt` the engine is somebody else's: it is reported and drained, and never started or ended.
 * `load` reads the tokenizer of an engine of another kind; NULL: only tokenizer files of ours. */
int agent_main(const struct agent_config *config, tokenizer_load_fn *load, struct err *err);
