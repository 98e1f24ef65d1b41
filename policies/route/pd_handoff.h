/* pd_handoff.h - picks the instance that decodes after a prefill instance gave the first token.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 */
#pragma once
#include "policies/route/route.h"

/* Returns the view index of the instance with the shortest step, this session included:
 *
 *     step = step_s + decode_seq_s * (in_flight + 1) + kv_read_s * (kv_tokens + prompt + 1)
 *
 * Only accepting instances count, and only those with a free slot where there are any. Instances
 * of unknown speed come last, by their tokens. Ties are broken by chance; ROUTE_NONE when none
 * accepts. */
uint32_t handoff_pick(const struct route_view *view, const struct route_req *req, struct rng *rng);
