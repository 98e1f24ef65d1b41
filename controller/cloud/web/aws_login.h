/* aws_login.h - finds credentials of Amazon's services, the login of kinds that sign by them.
 *
 *     credentials_file, credentials_env          a credentials file, by its profile
 *     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY   with AWS_SESSION_TOKEN, of a session
 *     AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN  ──► POST AssumeRoleWithWebIdentity
 *     AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials
 *     the machine's role                         ──► PUT token ──► GET role ──► GET key
 *
 * Layer:   controller/cloud/web (base/io/xml, base/core)
 * Threads: pure, but for what web_host reads
 * Rules:   (1) the first source that is there is taken, in the order above; one that is there and has no key is an
 *              error, and no later one is tried: a machine's role must not stand in for a mistyped profile
 *          (2) credentials with an end are renewed before it by the run (WEB_LOGIN_MARGIN_US)
 *          (3) `sts` is the endpoint of the token service
 */
#pragma once
#include "controller/cloud/web/provider.h"

void aws_login(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
               struct str sts, int64_t now_us, int64_t wall_us, struct web_step *ret);
