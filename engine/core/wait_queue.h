/* wait_queue.h - finds the first waiting session: a kinetic tournament over ranks linear in time.
 *
 * Layer:    engine/core (policies/order/order.h, base/core)
 * Threads:  the device thread, or the simulator
 * Lifetime: nodes are embedded in sessions; a queue neither frees nor keeps them
 * Rules:    (1) the first is the node that a walk over all of them by order_rank_at, tie and id
 *               would find, at any time, in any order of calls
 *           (2) only wait_queue_reserve takes memory; put never fails
 */
#pragma once
#include "policies/order/order.h"

#define WAIT_NONE UINT32_MAX

struct wait_node {
    struct order_rank rank;
    uint64_t id;
    uint32_t slot; /* plus 1; 0: in no queue */
};

struct wait_queue {
    struct wait_node **node; /* by slot */
    uint32_t *spare;         /* free slots, a stack */
    uint32_t *winner;        /* heap order: match i plays winners of 2i and 2i + 1 */
    int64_t *until_us;       /* when match i has to be played again; INT64_MIN: now */
    uint32_t capacity, spare_count, count;
};

void wait_queue_fini(struct wait_queue *q);

/* Reserves room for `count` nodes in all. -ENOMEM. */
int wait_queue_reserve(struct wait_queue *q, uint32_t count);

void wait_queue_put(struct wait_queue *q, struct wait_node *n); /* with its rank and id set */
void wait_queue_remove(struct wait_queue *q, struct wait_node *n);
struct wait_node *wait_queue_first(struct wait_queue *q, int64_t now_us); /* NULL: empty */

/* Returns true if `a` goes before `b` at this time. */
bool wait_before(const struct wait_node *a, const struct wait_node *b, int64_t now_us);
