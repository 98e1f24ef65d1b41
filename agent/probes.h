/* probes.h - answers an orchestrator's probes of an agent over HTTP.
 *
 * Layer:   agent (base/io)
 * Threads: the agent's loop
 * Paths:   GET /health   200 while the agent's loop turns, whatever its engine does
 *          GET /ready    200 while the engine takes requests, else 503 and the state in a word
 * Access:  open to everybody: both say no more than that
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/io/loop/loop.h"

struct probes;

/* Returns true if the engine takes requests; *ret_state gets the state in a word. */
typedef bool probes_ready_fn(void *arg, const char **ret_state);

/* Listens at `listen`, HOST:PORT. */
int probes_open(struct loop *l, struct str listen, probes_ready_fn *ready, void *arg,
                struct probes **ret, struct err *err);
void probes_close(struct probes *f);
