/* gce_login.h - gets access tokens of Google: from a service account's key, or from the metadata server of the
 * machine that the controller runs on.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

void gce_login(struct web_provider *p, struct web_op *op, const struct web_reply *r, int64_t now_us,
               int64_t wall_us, struct web_step *ret);
