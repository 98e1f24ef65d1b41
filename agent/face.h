/* face.h - answers an orchestrator's probes of an agent over HTTP.
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

struct face;

/* Returns true if the engine takes requests; *ret_state gets the state in a word. */
typedef bool face_ready_fn(void *arg, const char **ret_state);

/* Listens at `listen`, HOST:PORT. */
int face_open(struct loop *l, struct str listen, face_ready_fn *ready, void *arg, struct face **ret,
              struct err *err);
void face_close(struct face *f);
