/* cmd_override.h - overrides policies: pause, resume and manual counts; sets all pools to zero and back.
 *
 * Layer: cli
 */
#pragma once
#include "cli/remote.h"

int override_pause(const struct remote *api, struct str service, bool paused, struct err *err);
/* Sets a pool's count; ORDER_BY_POLICY gives it back to the policy. */
int override_scale(const struct remote *api, struct str service, struct str pool, int64_t count,
                   struct err *err);

/* Takes SERVICE[/POOL] apart; *ret_service is a part of `target`. Without a pool it is the service's only one;
 * -EINVAL with their names when it has several. -ENOENT. */
int override_target(const struct remote *api, struct str target, struct str *ret_service,
                    struct buf *ret_pool, struct err *err);

/* scale_to_zero_begin and _end keep every pool at zero while a fleet is down, and set it back afterwards.
 *
 * Why:   manual counts outlive the controller, so the next `muster up` must take back the zeros of
 *        `muster down`; STATE/rest.json remembers the counts before
 */

/* Remembers the count of every pool and sets it to 0. A second call before scale_to_zero_end keeps the
 * counts that are remembered. */
int scale_to_zero_begin(const struct remote *api, struct str state, struct err *err);

/* Sets the pools back to the remembered counts. Passes over pools that are not configured any more, and
 * does nothing without scale_to_zero_begin. */
int scale_to_zero_end(const struct remote *api, struct str state, struct err *err);
