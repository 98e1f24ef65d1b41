/* order.h - the interface of order policies: which waiting session is admitted next?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) the lowest rank goes first; equal ranks go by tie, then by id
 *          (2) a rank is a line in time that never rises, so that waiting can only help; what else
 *              changes it is asked for again at again_us, or after observe said so
 *          (3) a policy that preempts has its running sessions ranked too: the worst that yields
 *              gives its place to a waiting one that is strictly better
 */
#pragma once
#include "policies/step.h"

/* Waiting so many seconds is worth being one second of work shorter. Work is a session's share of
 * the machine, mostly well below a second, and waits under overload are minutes: with a lesser age
 * the order would be that of arrival just when it matters, without any the longest starve. */
#define ORDER_AGE 2000.0

struct order_rank {
    double base;
    double slope;     /* per second, <= 0 */
    int64_t from_us;  /* when the rank is `base` */
    int64_t tie_us;   /* earlier first */
    int64_t again_us; /* when to ask again; INT64_MAX: never */
};

struct order_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    bool preempts;
    bool uses_hits;   /* the scheduler looks again for cached beginnings while sessions wait */
    bool swaps_early; /* pages of preempted sessions leave before they are needed */

    /* *ret comes as { base 0, slope 0, from and tie at arrival, again never }. May write the
     * session's scratch.order. */
    void (*rank)(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret);
    bool (*yields)(const void *state, const struct step_session *running); /* optional: always */
    /* Optional. True: the ranks of sessions that wait have changed. */
    bool (*observe)(void *state, const struct step_event *event);
};

#define POLICY(name) extern const struct order_policy order_##name;
#include "policies/order/order.def"
#undef POLICY

extern const struct order_policy *const order_table[];
extern const uint32_t order_count;
#define ORDER_DEFAULT "response_ratio"

const struct order_policy *order_find(struct str name); /* NULL when there is none */

/* Asks the policy, with *ret prepared as it expects. */
void order_rank_of(const struct order_policy *row, void *state, const struct step_session *session,
                   int64_t now_us, struct order_rank *ret);

static inline double order_rank_at(const struct order_rank *r, int64_t now_us)
{
    return r->base + r->slope * (double)(now_us - r->from_us) * 1e-6;
}

/* Quantum levels, shared by the policies with feedback queues (order_mlfq.c). */
#define MLFQ_LEVELS 24
uint32_t mlfq_level(const struct step_session *session);
void mlfq_start(const struct step_session *session, uint32_t level);
void mlfq_ran(const struct step_session *session, double seconds);
