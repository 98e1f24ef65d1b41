/* placement.h - holds a request's part on the decision thread: where it is placed, and its tenant.
 *
 * Layer:   router
 * Threads: the decision thread's
 */
#pragma once
#include "router/core/director.h"

struct tenant;

struct placement {
    struct director_request routed;
    struct tenant *tenant;
    int64_t told_us;    /* when its client was last told that it is held; 0: never */
    bool counted;       /* in its tenant's concurrency and requests */
    uint64_t told_pins; /* of the tokenizers of targets mailed to the byte loop */
};
