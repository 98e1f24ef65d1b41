/* zmtp.h - speaks ZMTP 3.0, the protocol under ZeroMQ's sockets, as far as an agent needs it: one socket
 * that subscribes or asks, without authentication.
 *
 * Layer:    agent/core (base/core)
 * Threads:  pure; the caller's
 * Lifetime: parts of a message point into the bytes that were given
 * Rules:    (1) the caller moves bytes: zmtp_take reads from what has come and appends what is to be
 *               sent to `out`
 *           (2) a peer of another version or mechanism, of a socket type that does not fit, or with a
 *               frame beyond the bounds is refused with a sentence; nothing it says is trusted
 *
 *     greeting (64 bytes each way) ──► READY (each way) ──► messages; PING is answered at any time
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define ZMTP_PARTS_MAX 8
#define ZMTP_FRAME_BYTES_MAX ((size_t)8 << 20) /* the caller bounds a whole message */

enum zmtp_role {
    ZMTP_SUB,    /* reads what a PUB or XPUB publishes */
    ZMTP_DEALER, /* asks a ROUTER */
};

enum zmtp_state { ZMTP_GREETING, ZMTP_HANDSHAKE, ZMTP_OPEN };

struct zmtp {
    enum zmtp_role role;
    enum zmtp_state state;
};

struct zmtp_message {
    struct str part[ZMTP_PARTS_MAX];
    uint32_t part_count;
};

/* Starts a connection: appends our greeting to `out`. */
void zmtp_begin(struct zmtp *z, enum zmtp_role role, struct buf *out);

/* Reads from `in`, which begins where the last call left off, and sets *ret_used to the bytes to drop.
 * 1: a message is in *ret, until those bytes are dropped; 0: more must come; -EPROTO and a sentence: the
 * connection is to be closed. When the state becomes ZMTP_OPEN a SUB has subscribed to `topic`. */
int zmtp_take(struct zmtp *z, struct str in, struct str topic, size_t *ret_used,
              struct zmtp_message *ret, struct buf *out, struct err *err);

/* Appends a message of these parts. */
int zmtp_put(struct buf *out, const struct str *part, uint32_t count);
