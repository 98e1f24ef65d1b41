/* workers.h - runs the units of one step's loops on several threads.
 *
 * Layer:    engine/model (base/core)
 * Threads:  workers_run is for one thread at a time; it works itself as thread 0
 * Cost:     with one thread, or one unit, a loop of plain calls. Otherwise one store to start,
 *           and idle workers spin for some microseconds before they sleep: cores are shared,
 *           and a thread that spins in another's time slice slows both
 * Equality: any thread may take any unit; the result of a unit must not depend on which
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"

#include <stdint.h>

struct workers;

/* Computes unit `unit` of a loop, on thread `thread` (0 .. threads - 1). */
typedef void (*worker_fn)(void *arg, uint32_t unit, uint32_t thread);

/* Starts the threads. `threads` includes the caller; 0 counts as 1. -ENOMEM, or the error of a
 * thread that could not start. */
int workers_new(uint32_t threads, struct workers **ret, struct err *err);
void workers_free(struct workers *w);
CLEANUP_FREEP(workers, struct workers)
uint32_t workers_threads(const struct workers *w);

/* Calls fn for each unit below `units`, in any order, and returns when all are done. */
void workers_run(struct workers *w, uint32_t units, worker_fn fn, void *arg);
