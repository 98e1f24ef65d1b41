/* web_check.h - tells whether instances can be made at a cloud: credentials, listing, prices.
 *
 * Layer:   controller/cloud/web (base/io)
 * Threads: a loop of its own; it waits for replies, WEB_RUN_US for each call. For `muster doctor`
 * Rules:   it makes nothing: it logs in, lists and asks for prices
 */
#pragma once
#include "controller/cloud/web/web_section.h"

/* Calls fn with each finding. -errno: the cloud cannot be opened, and err says why. */
int web_check(const struct web_settings *settings, const char *const *environment,
              cloud_finding_fn fn, void *arg, struct err *err);
