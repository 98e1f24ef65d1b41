/* order.h - defines manual overrides of the controller and of routers: encoded by commands, decoded by
 * the process that applies them.
 *
 * Layer:    base/wire (base/core)
 * Lifetime: decoded texts live in the arena
 * Rules:    (1) an order with an unknown or repeated member is refused: it is applied as it was meant
 *               or not at all
 *           (2) decoding checks the form; the process that applies the order checks that the pool,
 *               policy or prompt exists
 *
 *     scale       {"pool": NAME, "count": NUMBER or null}      null: the policy decides again
 *     drain       {"instance": ID}, {"service": NAME, "pool": NAME} or {"node": NAME};
 *                 "undo": true takes it back
 *     route       {"policy": NAME}                             a router's policy from now on
 *     quarantine  {"fingerprint": 16 hexadecimal digits or "all"}   release it
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"

#define ORDER_BYTES_MAX 4096 /* of a body, and of the arena for decoding */
#define ORDER_BY_POLICY (-1) /* count for null */

struct scale_order {
    struct str pool;
    int64_t count; /* 0 or more, or ORDER_BY_POLICY */
};

/* Exactly one of instance, pool (with its service) and node is set. */
struct drain_order {
    struct str instance, service, pool, node;
    bool undo;
};

/* Decode an order; -EINVAL with a sentence if it is refused or the arena is full. */
int scale_order_decode(struct str text, struct arena *arena, struct scale_order *ret,
                       struct err *err);
int drain_order_decode(struct str text, struct arena *arena, struct drain_order *ret,
                       struct err *err);
int route_order_decode(struct str text, struct arena *arena, struct str *ret, struct err *err);
int quarantine_order_decode(struct str text, struct arena *arena, uint64_t *ret, struct err *err);

/* Parses a prompt's fingerprint as people write it: 16 hexadecimal digits, not all 0; or ORDER_ALL, which
 * gives 0. -EINVAL for other text. */
#define ORDER_ALL "all"
int order_fingerprint(struct str text, uint64_t *ret);

/* Encode an order; return out->rc. */
int scale_order_encode(const struct scale_order *order, struct buf *out);
int drain_order_encode(const struct drain_order *order, struct buf *out);
int route_order_encode(struct str policy, struct buf *out);
int quarantine_order_encode(uint64_t fingerprint, struct buf *out); /* 0: all */
