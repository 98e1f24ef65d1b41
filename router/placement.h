/* placement.h - a request's part on the decision thread: where it is, and what it counts for.
 *
 * Layer:   router
 * Threads: the decision thread's
 */
#pragma once
#include "fleet/telemetry.h"
#include "router/core/dispatch.h"

struct tenant;

/* The same as the decision thread knows it (migrate_plan.h). */
enum request_moves { MOVES_NOT, MOVES_COPYING, MOVES_ARRIVING };

struct placement {
    struct dispatch_request dispatch;
    struct tenant *tenant;
    bool counted;                /* in its tenant's concurrency and requests */
    bool arrived;                /* ASK_ARRIVE was heard */
    struct telemetry_place told; /* in its service's telemetry */
    bool handing;                /* it was sent where it shall not stay */
    struct list decoding;        /* of the migration's */
    enum request_moves moves;
    uint64_t told_pins;              /* of the tokenizers of targets that the byte loop was told */
    uint32_t move_to, move_pages;    /* slot, unless MOVES_NOT; with the next one */
    uint64_t move_serial, at_serial; /* of the endpoints it moves to and is at */
};
