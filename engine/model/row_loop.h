/* row_loop.h - cuts the rows of a step into units, which workers claim.
 *
 * Layer: engine/model, for the steps of decoders and encoders
 */
#pragma once
#include "base/core/bits.h"

#define TOKENS_PER_UNIT 8 /* below that a thread is not worth waking */

/* Runs through the rows r of a unit, in a step of row_count rows. */
#define EACH_ROW_OF_UNIT(s, unit, r)                                                               \
    for (uint32_t r = (unit)*TOKENS_PER_UNIT, end_ = min_u32(r + TOKENS_PER_UNIT, (s)->row_count); \
         r < end_; r++)
