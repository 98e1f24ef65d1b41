/* measure.h - measure what this machine gives the demo's engines, in about a second.
 *
 * Layer:   cli (engine/model)
 * Threads: starts DEMO_THREADS threads and joins them before it returns
 */
#pragma once
#include "base/core/err.h"

#define DEMO_THREADS 4 /* as many engines as the demo's fleet has at most */

struct demo_machine {
    double cores;           /* CPU seconds a second that DEMO_THREADS busy threads got together */
    double step_s;          /* CPU seconds of one thread: of a step, whatever is in it ... */
    double prefill_token_s; /* ... of each prompt token ... */
    double decode_seq_s;    /* ... and of each sequence that decodes */
};

/* Runs the model at `path` on one thread while the others keep their cores busy, so that the figures
 * are those of a fleet under load beside whatever else runs here. -EINVAL and the errors of
 * model_load. */
int demo_measure(const char *path, struct demo_machine *ret, struct err *err);
