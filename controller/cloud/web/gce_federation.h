/* gce_federation.h - gets access tokens of Google for an identity that another provider vouches for: credentials of the
 * type external_account, as `gcloud iam workload-identity-pools create-cred-config` writes them.
 *
 *     source, a file or a URL ──subject token──► POST token_url (RFC 8693) ──federated token──┬─► access token
 *                                                     POST service_account_impersonation_url ◄┘ (where it is named)
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure, but for what web_host reads
 * Rules:   (1) the subject token and the federated token go to https:// or to this machine alone, and stand in no error.
 *              Meanwhile the one that was sent last is p->login.key, which the run blots out of a provider's words
 *          (2) a subject token is read anew at each login: others rotate it
 */
#pragma once
#include "controller/cloud/web/provider.h"

/* Returns true if the credentials are of this type. */
bool gce_is_federated(struct str credentials);

/* A step of the login. `reply` NULL: it begins, with stage 0. `credentials` are the same at each step. */
void gce_federate(struct web_provider *p, struct web_op *op, struct str credentials,
                  const struct web_reply *reply, int64_t now_us, int64_t wall_us,
                  struct web_step *ret);
