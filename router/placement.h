/* placement.h - a request's part on the decision thread: where it is, and what it counts for.
 *
 * Layer:   router
 * Threads: the decision thread's
 */
#pragma once
#include "fleet/kv_transfer.h"
#include "fleet/telemetry.h"
#include "router/core/dispatch.h"

struct tenant;

struct placement {
    struct dispatch_request dispatch;
    struct tenant *tenant;
    bool counted;                /* in its tenant's concurrency and requests */
    bool arrived;                /* ASK_ARRIVE was heard */
    struct telemetry_place told; /* in its service's telemetry */
    struct kv_transfer kv; /* as this thread sees it; its `from` is where the request was sent */
    uint64_t told_pins;    /* of the tokenizers of targets that the byte loop was told */
};
