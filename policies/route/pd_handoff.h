/* pd_handoff.h - which instance decodes after a prefill instance gave the first token?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 */
#pragma once
#include "policies/route/route.h"

/* The index in the view of the instance whose sessions, this one included, decode the fastest:
 *
 *     step = step_s + decode_seq_s * (decoding + 1) + kv_read_s * (kv_tokens + prompt + 1)
 *
 * among those that accept and, where any has, those with a slot free. Instances
 * of unknown speed come last, by their tokens. Ties by chance; ROUTE_NONE when none accepts. */
uint32_t handoff_pick(const struct route_view *view, const struct route_req *req, struct rng *rng);
