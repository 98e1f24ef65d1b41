/* base64.h - writes and reads base64 (RFC 4648).
 *
 * Layer: base/core (libc). Pure
 */
#pragma once
#include "base/core/buf.h"

/* Appends with padding; base64_put_url has the alphabet for URLs and no padding, as JWTs want it. */
int base64_put(struct buf *out, struct str bytes);
int base64_put_url(struct buf *out, struct str bytes);

/* Appends what a text in either alphabet stands for, with or without padding; line breaks are skipped. -EINVAL. */
int base64_take(struct buf *out, struct str text);
