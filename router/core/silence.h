/* silence.h - decides when a silent engine is taken for hung, so that the request goes elsewhere.
 *
 * Layer:   router/core (base/core)
 * Threads: pure; a byte loop calls
 * Rules:   (1) an engine of ours that names a heartbeat sends one while its device makes progress,
 *              so that a long queue is no silence; several beats in a row are missed before it counts
 *          (2) one of ours that names none (an older one) is given the head's limit only
 *          (3) another engine is silent while a request waits in its queue: its limits are longer
 *              and are for streamed answers; a whole one comes at once, at its end
 *          (4) what comes late because this side was late, or did not read, is no silence
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define SILENCE_BEATS 4        /* of those that an engine names, missed in a row, at least */
#define SILENCE_LATE_US 500000 /* a look that comes later than this was late itself */

struct silence_config {
    int64_t head_us;        /* ours: to the head of its reply */
    int64_t gap_us;         /* ours: between bytes of it */
    int64_t other_first_us; /* another's streamed answer: to its first byte */
    int64_t other_gap_us;   /* and between bytes */
};

struct silence {
    bool ours, streams;
    bool has_head;    /* the reply's head is there */
    bool has_bytes;   /* and some of its body */
    int64_t beat_us;  /* named by the engine; 0: none */
    int64_t heard_us; /* last byte, or the beginning of the call */
    int64_t look_us; /* when silence_look wants to be asked again; INT64_MAX: not before a change */
};

/* The call begins. */
void silence_begin(struct silence *s, const struct silence_config *c, bool ours, bool streams,
                   int64_t now_us);
void silence_head(struct silence *s, const struct silence_config *c, int64_t beat_us,
                  int64_t now_us);
/* Bytes came; or none could, because this side did not read. */
void silence_heard(struct silence *s, const struct silence_config *c, int64_t now_us);

/* True when the engine was silent for too long. Else look_us is the time of the next look. */
bool silence_look(struct silence *s, const struct silence_config *c, int64_t now_us);
