/* load_record.h - what came of every request of a load run, as a trace that can be replayed.
 *
 * Layer:  cli (base/core, base/io)
 * Format: Mooncake's JSONL without blocks, arrivals in milliseconds with a fraction, plus what was
 *         measured: {"timestamp", "input_length", "output_length", "cached", "ttft_s", "e2e_s",
 *         "instance"}; requests that failed have "outcome" and no measurements
 */
#pragma once
#include "base/core/buf.h"
#include "cli/load_run.h"

/* Appends one line a sample. -ENOMEM. */
int load_record(const struct load_sample *sample, uint32_t count, struct buf *out);
