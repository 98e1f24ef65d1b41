/* order.h - the interface of order policies, which choose the session to admit next.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) the lowest rank goes first; equal ranks go by tie, then by id
 *          (2) a rank is a line in time that never rises, so that waiting can only help; a rank that
 *              changes in another way is asked for again at again_us, or after observe returned true
 *          (3) a policy that preempts ranks running sessions too: the worst of those that yield
 *              gives its place to a waiting session of strictly lower rank
 */
#pragma once
#include "policies/step.h"

/* Seconds of waiting that weigh as much as one second of work. Work is a session's share of the
 * machine, mostly well below a second, and waits under overload are minutes: with a smaller value
 * the order would become that of arrival just when it matters, and without ageing the longest
 * sessions starve. */
#define ORDER_AGE 2000.0

struct order_rank {
    double base;
    double slope;     /* per second, <= 0 */
    int64_t from_us;  /* moment at which the rank is `base` */
    int64_t tie_us;   /* equal ranks: the earlier goes first */
    int64_t again_us; /* when to ask again; INT64_MAX: never */
};

struct order_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    bool preempts;
    bool uses_hits;   /* the scheduler looks up the cached prefixes of waiting sessions again */
    bool swaps_early; /* pages of preempted sessions leave before they are needed */

    /* Sets the rank of a session. *ret comes as { base 0, slope 0, from and tie at arrival, again
     * never }. May write the session's scratch.order. */
    void (*rank)(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret);
    bool (*yields)(const void *state, const struct step_session *running); /* NULL: all yield */
    /* Optional. Returns true if ranks of waiting sessions have changed. */
    bool (*observe)(void *state, const struct step_event *event);
};

#define POLICY(name) extern const struct order_policy order_##name;
#include "policies/order/order.def"
#undef POLICY

extern const struct order_policy *const order_table[];
extern const uint32_t order_count;
#define ORDER_DEFAULT "response_ratio"

const struct order_policy *order_find(struct str name); /* NULL when there is none */

/* Prepares *ret and asks the policy for the rank. */
void order_rank_of(const struct order_policy *policy, void *state,
                   const struct step_session *session, int64_t now_us, struct order_rank *ret);

static inline double order_rank_at(const struct order_rank *r, int64_t now_us)
{
    return r->base + r->slope * (double)(now_us - r->from_us) * 1e-6;
}

/* Levels of feedback queues, shared by mlfq and prefill_sjf (mlfq.c). */
#define MLFQ_LEVELS 24
uint32_t mlfq_level(const struct step_session *session);
void mlfq_start(const struct step_session *session, uint32_t level);
void mlfq_ran(const struct step_session *session, double seconds);
