/* weights.h - has the engine's model file fetched before the engine starts, where its machine does not have it.
 *
 *     NONE ──► FETCHING ──whole, compared──► THERE
 *                 ▲  └── `muster pull` failed ──► WAITING ──back-off──┘
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop. `muster pull` does the work in a process of its own, so that neither a slow disk nor a
 *          digest of a large file holds up probes and reports; it ends with the agent, and what it has written stays
 * Rules:   (1) a model that is at its path is not fetched; the engine compares its digest
 *          (2) a fetch that fails is tried again, after a wait that doubles; what came so far is gone on with
 *          (3) after WEIGHTS_FAILURES_MAX in a row that brought nothing new, on_end says so and the instance ends
 */
#pragma once
#include "agent/instance.h"
#include "base/io/loop/loop.h"
#include "base/wire/weights.h"

#define WEIGHTS_FAILURES_MAX 8u
#define WEIGHTS_WHY_BYTES 384

struct weights;

/* Starts to fetch if the launch document says where from and the model is not there. *ret is NULL: there is nothing to
 * fetch, nor to report. `on_end` comes once, from the loop: 0, or -EIO with a sentence. */
int weights_open(struct loop *loop, const struct instance *in,
                 void (*on_end)(void *arg, int rc, const char *why), void *arg,
                 struct weights **ret, struct err *err);
void weights_close(struct weights *w); /* ends the process */

/* True until on_end was called. NULL: false. */
bool weights_is_coming(const struct weights *w);

/* Why the last try failed; empty: none did. */
const char *weights_trouble(const struct weights *w);

/* Notes how long the engine took from its start to its first ready. */
void weights_loaded(struct weights *w, int64_t us);

/* Fills the report; texts are the launch document's. False: there is nothing to say. */
bool weights_report(const struct weights *w, struct wire_weights *ret);
