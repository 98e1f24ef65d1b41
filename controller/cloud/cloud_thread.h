/* cloud_thread.h - turns a backend, which waits, into a driver, which does not: one thread makes its calls.
 *
 * Layer:   controller/cloud (base/io)
 * Threads: the loop submits and takes events; one thread of this driver's own calls the backend.
 *          Between them two bounded queues behind one lock
 * Rules:   (1) calls are made in the order in which they were submitted
 *          (2) close lets the call under way end, drops those that wait and joins the thread: the
 *              effects of calls stay, as after a crash
 */
#pragma once
#include "controller/cloud/cloud.h"

/* Takes `ctx` over: closing *ret closes the backend. `pace` gives lag_us, poll_us, calls_per_s. */
int cloud_thread_new(const struct cloud_backend *backend, void *ctx_owned, const struct cloud *pace,
                     struct cloud *ret, struct err *err);
