/* hands.h - orders of people to the controller: pause, resume, manual counts.
 *
 * Layer: cli
 */
#pragma once
#include "cli/remote.h"

int hands_pause(const struct remote *api, struct str service, bool paused, struct err *err);
/* `count` may be ORDER_BY_POLICY. */
int hands_scale(const struct remote *api, struct str service, struct str pool, int64_t count,
                struct err *err);

/* Appends the name of a service's pool. -EINVAL when it has several, and names them. */
int hands_only_pool(const struct remote *api, struct str service, struct buf *ret, struct err *err);
