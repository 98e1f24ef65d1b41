/* cmd_override.h - pause, resume and manual counts, which override the policy.
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
