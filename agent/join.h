/* join.h - gets the instance's own key for the one-time token that its user data has (base/io/auth/join.h).
 *
 * Layer:   agent (base/io, base/wire, fleet)
 * Threads: a loop of its own, before the agent's
 * Files:   in the instance's folder, all 0600: join.seed, drawn before the first request, so that an agent that starts
 *          again asks as the same one; then launch.secret_file, the key. Seed and token are removed once it is there
 */
#pragma once
#include "agent/instance.h"
#include "fleet/controllers.h"

/* Returns at once where the launch document names no token, or the key is there. Otherwise asks the controllers, one
 * after the other, until one lets it in. -EACCES: the fleet has refused it for good. -ETIMEDOUT: none let it in for the
 * grace of the launch document. -ECANCELED: a signal. */
int join_fleet(const struct instance *in, struct controllers *controllers, struct err *err);
