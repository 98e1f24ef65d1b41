/* admit.h - the interface of admission policies, which decide if a waiting session may start.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) sessions are asked for in the order of the order policy; the first refusal ends the
 *              admissions of this step, unless the policy tries the next (first_fit)
 *          (2) with nothing running a session is admitted whatever the policy says: it always fits an
 *              empty engine; while pages of ended sessions are still copied elsewhere, only if
 *              these leave room
 *          (3) a session that is admitted would be admitted with more pages available too
 *          (4) a policy that forms batches sees all waiting sessions when nothing runs; its batches
 *              then run one after the other, and `decide` is asked for their members only
 */
#pragma once
#include "base/perf/perf.h"
#include "policies/step.h"

#define ADMIT_POOL_MAX 1024 /* candidates of one round of batches */

struct admit_view {
    uint32_t pages_available; /* free, or cached and evictable, less those that this session hits */
    uint32_t pages_needed;    /* for the tokens that this session already has, less its hits */
    uint32_t pages_growth;    /* that this session will need later, by what the policy reserves */
    uint32_t running;         /* sessions running now */
    uint32_t running_growth;  /* pages that those will need later, by what the policy reserves */
    uint32_t peak_growth;     /* the most that all of these will need at one time, beyond now: a
                               * session that ends returns its pages before others have grown */
};

/* A waiting session, as a policy that forms batches sees it. */
struct admit_candidate {
    uint32_t tokens;   /* prompt and output so far */
    uint32_t uncached; /* of these, not yet computed; from 1 to tokens */
    uint32_t output;   /* output tokens in this batch at most; at least 1 */
    uint32_t pages;    /* that it holds when the batch ends, cached ones included */
};

struct admit_pool {
    const struct admit_candidate *candidate;
    uint32_t count;            /* 1 to ADMIT_POOL_MAX */
    uint32_t pages;            /* that all members of a batch may hold together */
    uint32_t seqs_max;         /* members of a batch; at least 1 */
    uint32_t batch_tokens_max; /* token budget of a step; at least 1 */
    struct perf_coef perf;
};

struct admit_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    bool first_fit; /* if a session does not fit, the ones after it are tried */
    bool (*decide)(void *state, const struct admit_view *view);
    /* Optional: returns the total output tokens to reserve memory for. Without it: the tokens so
     * far plus those expected to come. May read scratch.admit. */
    uint32_t (*reserve)(const void *state, const struct step_session *session);
    /* Optional: returns true if a running session has outgrown its reserve, which sends it back to
     * the queue. */
    bool (*outgrown)(void *state, const struct step_session *session);
    void (*observe)(void *state, const struct step_event *event); /* optional */
    /* Optional: splits the pool into closed batches. ret[i] is the batch of candidate i; batches are
     * numbered from 0, without gaps, in the order in which they run. */
    void (*batch)(const struct admit_pool *pool, uint32_t *ret);
};

#define POLICY(name) extern const struct admit_policy admit_##name;
#include "policies/admit/admit.def"
#undef POLICY

extern const struct admit_policy *const admit_table[];
extern const uint32_t admit_count;
#define ADMIT_DEFAULT "reserve"

const struct admit_policy *admit_find(struct str name); /* NULL when there is none */

/* Returns true if pages_needed + pages_growth + running_growth <= pages_available. */
bool admit_fits_grown(const struct admit_view *view);

/* Returns true if pages_needed + peak_growth + a page for each running session <= pages_available. */
bool admit_fits_peak(const struct admit_view *view);
