/* cmd_explain.h - a decision of the controller in words.
 *
 * Layer: cli (base/core)
 */
#pragma once
#include "base/core/buf.h"

/* `decision` is one item of /api/v1/decisions. -EINVAL when it is none. */
int explain_decision(struct str decision, int64_t now_us, struct buf *out);
