/* web_cloud.h - makes a provider's HTTP API a cloud of the controller.
 *
 * Layer:   controller/cloud/web (base/io)
 * Threads: the controller's loop. Requests are made by base/io/fetch and never waited for
 * Rules:   (1) CLOUD_CALLS_MAX calls are under way at most, each with one request at a time
 *          (2) the fence is looked at before each request, those of a login included
 *          (3) logs and metrics name the cloud, the op, the intent and the status: no URL, header or body
 */
#pragma once
#include "base/io/loop/loop.h"
#include "controller/cloud/web/web_section.h"

/* Opens the cloud without a request. `settings`, what it borrows and `environment` outlive it. Closing leaves the
 * machines as they are. */
int web_cloud_open(struct loop *l, const struct web_settings *settings,
                   const char *const *environment, uint64_t seed, struct cloud *ret,
                   struct err *err);

/* Reads a file with a secret for a login, as web_host wants it. */
int web_read_secret(void *ctx, const char *path, struct buf *out, struct err *err);
