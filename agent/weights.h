/* weights.h - has the engine's model file fetched before the engine starts, where its machine does not have it.
 *
 *     ASKING ──told, or not within a while──► FETCHING ──whole, compared──► THERE
 *                 ▲  └── `muster pull` failed ──► WAITING ──back-off──┘
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop. `muster pull` does the work in a process of its own, so that neither a slow disk nor a
 *          digest of a large file holds up probes and reports; it ends with the agent, and what it has written stays
 * Rules:   (1) a model that is at its path is not fetched; the engine compares its digest
 *          (2) a fetch that fails is tried again, after a wait that doubles; what came so far is gone on with
 *          (3) the controller's reply names agents that have the model, which are asked before its source; a model
 *              that was fetched so, or from its source, is given to others in turn (seed.h)
 *          (4) after WEIGHTS_FAILURES_MAX in a row that brought nothing new, on_end says so and the instance ends
 */
#pragma once
#include "agent/instance.h"
#include "base/io/auth/credentials.h"
#include "base/io/loop/loop.h"
#include "base/wire/machine.h"

#define WEIGHTS_FAILURES_MAX 8u
#define WEIGHTS_ASK_US 3000000 /* for the controller to name agents that have the model */
#define WEIGHTS_WHY_BYTES 384

struct weights;

struct weights_config {
    const struct credentials *held;
    bool gives;    /* to other agents */
    uint64_t rate; /* bytes a second that it gives; 0: any */
};

/* Starts to fetch if the launch document says where from and the model is not there. *ret is NULL: there is nothing to
 * fetch, nor to report. `on_end` comes once, from the loop: 0, or -EIO with a sentence. */
int weights_open(struct loop *loop, const struct instance *in, const struct weights_config *config,
                 void (*on_end)(void *arg, int rc, const char *why), void *arg,
                 struct weights **ret, struct err *err);
void weights_close(struct weights *w); /* ends the process */

/* True until on_end was called. NULL: false. */
bool weights_is_coming(const struct weights *w);

/* Takes the agents that a reply of the controller names. */
void weights_told(struct weights *w, const struct wire_seed *seeds, uint32_t count);

/* Why the last try failed; empty: none did. */
const char *weights_trouble(const struct weights *w);

/* Notes how long the engine took from its start to its first ready. */
void weights_loaded(struct weights *w, int64_t us);

/* Fills the report; texts are the launch document's. False: there is nothing to say. */
bool weights_report(const struct weights *w, struct wire_weights *ret);
