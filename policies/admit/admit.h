/* admit.h - the interface of admission policies: may this session start now?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) asked in order; the first no ends the admissions of this step, except for policies
 *              that try the next (first_fit)
 *          (2) with nothing running a session is admitted whatever the answer: it always fits an
 *              empty engine; while pages of ended ones are copied elsewhere, if they leave room
 *          (3) more pages available never turn a yes into a no
 *          (4) a policy that forms batches sees all that waits when nothing runs; its batches then
 *              run one after the other, and `decide` is asked for their members only
 */
#pragma once
#include "base/perf/perf.h"
#include "policies/step.h"

#define ADMIT_POOL_MAX 1024 /* candidates of one round of batches */

struct admit_view {
    uint32_t pages_available; /* free, or cached and evictable, less what this one hits */
    uint32_t pages_needed;    /* for the tokens this session already has, less its hits */
    uint32_t pages_growth;    /* it will need later, by what the policy reserves */
    uint32_t running;         /* sessions running now */
    uint32_t running_growth;  /* pages those will need later, by what the policy reserves */
    uint32_t peak_growth;     /* the most that these and this one will need at one time, beyond now:
                               * who ends gives his pages back before others have grown */
};

/* A waiting session, for a policy that forms batches. */
struct admit_candidate {
    uint32_t tokens;   /* prompt and output so far */
    uint32_t uncached; /* of those, still to be computed; from 1 to tokens */
    uint32_t output;   /* tokens that it generates at most in this batch; at least 1 */
    uint32_t pages;    /* that it holds at the end of the batch, cached ones included */
};

struct admit_pool {
    const struct admit_candidate *candidate;
    uint32_t count;            /* 1 to ADMIT_POOL_MAX */
    uint32_t pages;            /* that the members of a batch may hold together */
    uint32_t seqs_max;         /* members of a batch; at least 1 */
    uint32_t batch_tokens_max; /* of one step; at least 1 */
    struct perf_coef perf;
};

struct admit_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    bool first_fit; /* when one does not fit, try those behind it */
    bool (*decide)(void *state, const struct admit_view *view);
    /* Optional: answer tokens to reckon with, in all. Without it those so far and those expected to
     * come. May read scratch.admit. */
    uint32_t (*reserve)(const void *state, const struct step_session *session);
    /* Optional: a running session has outgrown its reserve; true sends it back to the queue. */
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

/* needed + growth + running growth fit what is available. */
bool admit_fits_grown(const struct admit_view *view);

/* needed + the peak of growth + a page for each that runs fit what is available. */
bool admit_fits_peak(const struct admit_view *view);
