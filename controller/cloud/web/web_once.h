/* web_once.h - makes single calls of a cloud without a controller, and waits for them; and tells whether instances can be
 * made at a cloud.
 *
 * Layer:   controller/cloud/web (base/io)
 * Threads: a loop of its own, that of the calling thread. For commands
 * Rules:   it is the driver itself that calls, so that what a command sees is what the controller sees
 */
#pragma once

#include "base/core/own.h"
#include "controller/cloud/web/web_section.h"

struct web_once;

/* `settings` and `environment` outlive it. -errno: the cloud cannot be opened, and err says why. */
int web_once_open(const struct web_settings *settings, const char *const *environment,
                  struct web_once **ret, struct err *err);
void web_once_free(struct web_once *o); /* NULL is fine */
CLEANUP_FREEP(web_once, struct web_once)

/* Lists, or asks for prices. The event lives until the next call. */
const struct cloud_event *web_once_call(struct web_once *o, enum cloud_op op);

/* ---- the check, for `muster doctor` ---- */

/* Calls fn with each finding. -errno: the cloud cannot be opened, and err says why. */
int web_check(const struct web_settings *settings, const char *const *environment,
              cloud_finding_fn fn, void *arg, struct err *err);
