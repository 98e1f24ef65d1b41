/* plain.h - text that somebody else wrote, made safe to print on a terminal.
 *
 * Layer:   cli (base/core)
 * Rules:   (1) newline and tab stay; every other C0 or C1 control, DEL, the bidirectional controls and
 *              bytes that are no UTF-8 become U+FFFD each. Without its ESC or CSI the rest of a
 *              sequence is plain text, so no sequence needs to be known
 *          (2) a character torn between two pieces is put together; only plain_end gives it up
 * Applies: always, not on terminals only: what is piped often ends on one, and the same answer is
 *          the same text wherever it goes. The API gives the model's own bytes.
 */
#pragma once
#include "base/core/buf.h"

struct plain { /* { 0 } is a beginning */
    unsigned char torn[4];
    uint32_t torn_len;
};

int plain_add(struct plain *p, struct str piece, struct buf *out); /* appends; -ENOMEM, -E2BIG */
int plain_end(struct plain *p, struct buf *out);
int plain_whole(struct str text, struct buf *out); /* one text that is all there */
