/* tally.h - what became of every request, counted as it happens.
 *
 * Layer: simulator
 */
#pragma once
#include "simulator/flight.h"
#include "simulator/result.h"

int tally_init(struct sim_result *r, const struct trace *trace, struct err *err);

/* `count` tokens evenly spaced from first_us to last_us; the very first has no gap before it. */
void tally_tokens(struct sim_result *r, struct flight *f, uint32_t count, int64_t first_us,
                  int64_t last_us);
void tally_end(struct sim_result *r, const struct flight *f, enum sim_end end);

/* Requests that never arrived or never ended are unfinished; then the digest. */
void tally_close(struct sim_result *r);
