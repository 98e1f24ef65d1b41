/* quarantine_board.h - shows the decision thread's quarantine to byte loops and takes their orders.
 *
 * Layer:    router
 * Threads:  publish and orders belong to the decision thread; render and ask may be called by any
 * Lifetime: embedded in struct decide; its thread has ended before fini
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/loop/lock.h"
#include "router/core/quarantine.h"

#define QUARANTINE_ORDERS_MAX 16

struct quarantine_board {
    struct lock lock;
    struct quarantine_item *item; /* QUARANTINE_MAX of them */
    uint32_t count;
    int64_t as_of_us;
    uint64_t changes;                      /* of what was copied */
    uint64_t order[QUARANTINE_ORDERS_MAX]; /* fingerprints to forget; 0: all */
    uint32_t order_count;
};

int quarantine_board_init(struct quarantine_board *b); /* -ENOMEM */
void quarantine_board_fini(struct quarantine_board *b);

/* Copies the quarantine if it has changed. */
void quarantine_board_publish(struct quarantine_board *b, const struct quarantine *q,
                              int64_t now_us);
/* Carries out the orders; returns how many fingerprints were forgotten. */
uint32_t quarantine_board_orders(struct quarantine_board *b, struct quarantine *q);

/* Renders {"quarantine":[{"fingerprint":...}, ...]}. */
int quarantine_board_render(struct quarantine_board *b, int64_t now_us, struct buf *out);

/* Orders that a fingerprint (0: all) be forgotten. -EAGAIN when QUARANTINE_ORDERS_MAX orders wait;
 * else the caller wakes the decision thread. */
int quarantine_board_ask(struct quarantine_board *b, uint64_t fingerprint);
