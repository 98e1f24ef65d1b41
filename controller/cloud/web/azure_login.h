/* azure_login.h - gets access tokens of Microsoft Entra: for an application, by its secret or by a token of a
 * workload's own, or for the machine that the controller runs on.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

void azure_login(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 int64_t now_us, struct web_step *ret);
