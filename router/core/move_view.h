/* move_view.h - what the migrate row sees of one endpoint: pages by what its engine says.
 *
 * Layer:   router/core (policies/migrate.h)
 * Threads: pure
 * Rules:   (1) absent is not zero: who does not tell its load, or has not told it since a move from
 *              or to there ended, is not present
 *          (2) who has nothing says nothing more: then its last word stays true
 */
#pragma once
#include "policies/migrate.h"
#include "router/core/core.h"

#define MOVE_SETTLE_US \
    1000000 /* after a move; an engine that has told nothing new by then has not */

struct move_place {
    const struct core_endpoint *ep;
    uint32_t page_tokens; /* at least 1 */
    bool draining;
    uint32_t incoming_pages;      /* of moves on their way there, */
    uint32_t sending_pages;       /* and from there */
    const struct core_load *load; /* told last, at told_us; NULL: it cannot tell */
    int64_t told_us, moved_us;    /* the end of the last move there or from there; 0: none */
};

/* All but id and sessions, which stay as they are. When a draining one will be gone no engine and no
 * controller tells. */
void move_view_fill(const struct move_place *p, int64_t now_us, struct migrate_instance *ret);
