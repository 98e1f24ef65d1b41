/* step_log.h - every step's shape and seconds as a line of CSV: what a performance model is fitted to.
 *
 * Layer:    engine/serve (base/perf/perf.h, libc)
 * Threads:  the device thread
 * Rules:    (1) at most STEP_LOG_LINES; later steps are not written, and a log line says so once
 *           (2) a disk that fails ends the log, never the engine
 *
 *     prefill_tokens,prefill_chunks,decoding_seqs,kv_tokens_read,kv_tokens_decoding,seconds
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/perf/perf.h"

#include <stdio.h>

#define STEP_LOG_LINES 1000000

struct step_log {
    FILE *file; /* NULL: off */
    uint32_t lines;
};

/* An empty path: off. The file is overwritten. */
int step_log_open(struct step_log *log, struct str path, struct err *err);
void step_log_add(struct step_log *log, const struct perf_shape *shape, double seconds);
void step_log_close(struct step_log *log);
