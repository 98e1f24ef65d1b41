/* look.h - asks an engine about itself: one round of the questions of its kind, one call at a time.
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop
 * Rules:   (1) at most one round is under way; a round ends once, with on_seen, unless it is cancelled
 *          (2) a question marked `once` is not asked again until look_forget
 *          (3) an engine that has started again by itself gets a new boot id and is asked everything
 *              again: its cache is gone
 */
#pragma once
#include "agent/engines/engine_driver.h"
#include "base/io/auth/signed_call.h"

enum look_end {
    LOOK_SEEN,   /* the report is fresh */
    LOOK_SILENT, /* it did not answer, or not well; `why` is a sentence, or empty */
    LOOK_LOCAL,  /* we could not ask: says nothing of the engine */
};

struct look {
    struct loop *loop;
    struct signer *signer;
    struct engine_sight sight;
    struct peer_call call;
    struct peer_question where; /* address; strings are the owner's */
    uint32_t at;                /* the question that is under way */
    uint64_t known;             /* bit i: question i, asked once, is answered */
    uint64_t boot;              /* of the engine, where it has no boot id of its own */
    int64_t deadline_us;        /* of each call of the round */
    bool has_report;
    bool refused;                /* since the last report nothing listened at its address */
    struct engine_report before; /* as the last round ended */
    double before_started_s;
    char why[ERR_TEXT_MAX];
    void (*on_seen)(void *arg, enum look_end end, enum http_end http);
    void *arg;
};

/* Prepares a look; nothing is asked yet. */
void look_init(struct look *l, struct loop *loop, struct signer *signer,
               const struct engine_driver *driver);
void look_fini(struct look *l);

/* Forgets what was seen: another engine is, or will be, at the address. */
void look_forget(struct look *l);

/* Returns true if the report says how many requests run: absent is not zero. */
bool look_knows_load(const struct look *l);

/* Begins a round, unless one is under way. `where` has host, port, tls and identity. Returns false where
 * nothing could be sent: on_seen does not come then. */
bool look_begin(struct look *l, const struct peer_question *where, int64_t deadline_us);
