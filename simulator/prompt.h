/* prompt.h - the token ids that a trace's blocks stand for, and the keys a router chains of them.
 *
 * Layer: simulator (base/core)
 * Rule:  equal blocks give equal ids, so that router, index and cache see exactly the sharing that
 *        the trace names; prompts without blocks share nothing and need no ids
 */
#pragma once
#include "base/core/block_key.h"
#include "simulator/trace.h"

/* `ret` has room for the request's prompt_tokens. */
void prompt_ids(const struct trace *t, const struct trace_request *r, uint32_t *ret);

/* One key for each block of the trace, chained; for engines whose cache has pages of that size. */
void prompt_block_keys(const struct trace *t, const struct trace_request *r, uint64_t seed,
                       struct block_key salt, struct block_key *ret);
