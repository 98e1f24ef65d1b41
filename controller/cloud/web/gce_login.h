/* gce_login.h - gets access tokens of Google: from a service account's key, for an identity of another provider
 * (gce_federation.h), or from the metadata server of the machine that the controller runs on.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

#define GCE_SCOPE "https://www.googleapis.com/auth/compute" /* unless the kind says another */
#define GCE_LOGIN_FEDERATED 2 /* the first stage that is gce_federation.h's */

void gce_login(struct web_provider *p, struct web_op *op, const struct web_reply *r, int64_t now_us,
               int64_t wall_us, struct web_step *ret);

/* Takes an OAuth token endpoint's reply into the login and ends the op. */
void gce_take_token(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                    int64_t now_us, struct web_step *ret);
