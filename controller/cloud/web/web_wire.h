/* web_wire.h - makes a provider's requests through base/io/fetch, and turns their replies into those of steps.
 *
 * Layer:   controller/cloud/web (base/io)
 * Threads: the loop's
 */
#pragma once
#include "base/io/fetch.h"
#include "controller/cloud/web/web_run.h"

/* Starts a run's request; on_end gets the reply, for web_wire_reply. */
int web_wire_start(struct fetch *f, const struct web_run *run, int64_t now_us, int64_t loop_now_us,
                   void (*on_end)(void *arg, const struct fetch_reply *reply), void *arg,
                   struct fetch_call **ret, struct err *err);

/* Makes the reply of a step; its texts live as long as `from` and `call`. */
void web_wire_reply(const struct web_kind *kind, const struct fetch_call *call,
                    const struct fetch_reply *from, struct web_reply *ret);

/* The word for metrics: 2xx, 4xx, throttled, 5xx, or why there was no reply. */
const char *web_wire_result(const struct fetch_reply *r);
