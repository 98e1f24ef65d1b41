/* cmd_override.h - pause, resume and manual counts, which override the policy; all pools to zero and back.
 *
 * Layer: cli
 */
#pragma once
#include "cli/remote.h"

int override_pause(const struct remote *api, struct str service, bool paused, struct err *err);
/* `count` may be ORDER_BY_POLICY. */
int override_scale(const struct remote *api, struct str service, struct str pool, int64_t count,
                   struct err *err);

/* Appends the name of a service's pool. -EINVAL when it has several, and names them. */
int override_only_pool(const struct remote *api, struct str service, struct buf *ret,
                       struct err *err);

/* Every pool at zero for the time that a fleet is down, and back as it was.
 *
 * Why:   counts set by hand outlive the controller, so that the zeros of `muster down` must be
 *        taken back by the next `muster up`; STATE/rest.json remembers what stood there before
 */

/* Remembers and sets every pool to 0. A second call before scale_to_zero_end remembers nothing anew. */
int scale_to_zero_begin(const struct remote *api, struct str state, struct err *err);

/* Gives the pools back. Pools that are not configured any more are passed over. Nothing to do
 * without scale_to_zero_begin. */
int scale_to_zero_end(const struct remote *api, struct str state, struct err *err);
