/* nova_login.h - logs in at OpenStack's Identity API (Keystone v3), and finds Compute in its catalogue.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure, but for what web_host reads
 * Reads:   OS_AUTH_URL, OS_REGION_NAME, OS_INTERFACE, and OS_APPLICATION_CREDENTIAL_ID with _SECRET, or OS_USERNAME,
 *          OS_PASSWORD, OS_USER_DOMAIN_NAME, OS_PROJECT_NAME or OS_PROJECT_ID, OS_PROJECT_DOMAIN_NAME: from a file of
 *          such lines (an openrc), from a variable that holds one, or from the environment
 */
#pragma once
#include "controller/cloud/web/web_keyless.h"

/* A step of LOGIN: fills p->login.token, endpoint (of Compute) and expires_us; key is the password, so that it is
 * blotted out of a provider's words. */
void nova_login(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                const struct web_moment *at, struct web_step *ret);
