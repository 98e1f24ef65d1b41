/* move_view.h - what the migrate policy sees of one endpoint: pages by what its engine says.
 *
 * Layer:   router/core (policies/migrate/migrate.h)
 * Threads: pure
 * Rules:   (1) absent is not zero: who does not tell its load, or has not told it since a move from
 *              or to there ended, is not present
 *          (2) who has nothing says nothing more: then its last word stays true
 */
#pragma once
#include "policies/migrate/migrate.h"
#include "router/core/dispatch.h"

#define MOVE_SETTLE_US \
    1000000 /* after a move; an engine that has told nothing new by then has not */

struct move_place {
    const struct dispatch_endpoint *ep;
    uint32_t page_tokens; /* at least 1 */
    bool draining;
    int64_t leaves_us;                /* when it is taken away, as told; 0: not told */
    uint32_t incoming_pages;          /* of moves on their way there, */
    uint32_t sending_pages;           /* and from there */
    const struct reported_load *load; /* told last, at told_us; NULL: it cannot tell */
    int64_t told_us, moved_us;        /* the end of the last move there or from there; 0: none */
};

/* Fills all members but id and sessions, which stay as they are. */
void move_view_fill(const struct move_place *p, int64_t now_us, struct migrate_instance *ret);
