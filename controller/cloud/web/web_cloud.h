/* web_cloud.h - makes a provider's HTTP API a cloud of the controller.
 *
 * Layer:   controller/cloud/web (base/io)
 * Threads: the controller's loop. Requests are made by base/io/fetch and never waited for
 * Rules:   (1) CLOUD_CALLS_MAX calls are under way at most, each with one request at a time
 *          (2) the fence is looked at before each request, those of a login included
 *          (3) logs and metrics name the cloud, the op, the intent and the status: no URL, header or body
 */
#pragma once

#include "base/io/fetch.h"
#include "base/io/loop/loop.h"
#include "controller/cloud/web/web_run.h"
#include "controller/cloud/web/web_section.h"

/* Makes a provider's requests through base/io/fetch, and turns their replies into those of steps. */

/* Starts a run's request; on_end gets the reply, for web_wire_reply. */
int web_wire_start(struct fetch *f, const struct web_run *run, int64_t now_us, int64_t loop_now_us,
                   void (*on_end)(void *arg, const struct fetch_reply *reply), void *arg,
                   struct fetch_call **ret, struct err *err);

/* Makes the reply of a step; its texts live as long as `from` and `call`. */
void web_wire_reply(const struct web_kind *kind, const struct fetch_call *call,
                    const struct fetch_reply *from, struct web_reply *ret);

/* The word for metrics: 2xx, 4xx, throttled, 5xx, or why there was no reply. */
const char *web_wire_result(const struct fetch_reply *r);

/* Opens the cloud without a request. `settings`, what it borrows and `environment` outlive it. Closing leaves the
 * machines as they are. */
int web_cloud_open(struct loop *l, const struct web_settings *settings,
                   const char *const *environment, uint64_t seed, struct cloud *ret,
                   struct err *err);

/* Reads a file with a secret for a login, as web_host wants it. */
int web_read_secret(void *ctx, const char *path, struct buf *out, struct err *err);
