/* stop.h - end an answer at a stop string, and never show a part of one.
 *
 * Layer:    engine/core (base/core)
 * Threads:  the device thread; one matcher a session
 * Rules:    (1) text that may still become a stop string is held back, at most the longest stop
 *               string less one byte
 *           (2) text comes in whole characters and stop strings are UTF-8, so what goes out is
 *               whole characters too
 *           (3) of several stop strings the one that is complete first ends the answer, as if
 *               the text had come byte by byte; of two that end together, the longer
 */
#pragma once
#include "base/core/buf.h"

struct stop_matcher {
    const struct str *stop; /* the caller's, as long as the matcher; none is empty */
    uint32_t count;
    struct buf held;
};

void stop_init(struct stop_matcher *m, const struct str *stop, uint32_t count);
void stop_fini(struct stop_matcher *m);

/* Appends to `out` what is certain. 1 when a stop string was met (out has all before it, the
 * rest is gone), 0 when not, -ENOMEM. */
int stop_push(struct stop_matcher *m, struct str text, struct buf *out);

/* The answer ended otherwise: what was held back goes out. Returns out->rc. */
int stop_flush(struct stop_matcher *m, struct buf *out);
