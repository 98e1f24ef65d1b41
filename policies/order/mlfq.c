/* mlfq.c - ranks by a skip-join multi-level feedback queue with ageing (FastServe, arXiv
 * 2305.05920).
 *
 *     quantum of level i = 10 ms * 2^i
 *     first level        = the lowest whose quantum holds the prefill
 *     served in a level beyond its quantum -> one level down;  waited 3 s -> level 0
 *     rank = level; equal levels by arrival
 *
 * It needs no prediction: the time already served stands for one. That pays only where outputs vary
 * more than exponentially; with less variance it loses to fcfs. A session that was preempted inside
 * its quantum keeps its arrival and so stands at the front of its level; running sessions yield to
 * strictly lower levels only. The scheduler keeps three further rules of the paper: it swaps out
 * pages of preempted sessions before they are needed (swaps_early), begins no new session while
 * less than a tenth of the swap space is free, and swaps nothing in during a step that swapped out.
 *
 * Deviation: sessions are promoted and preempted only while the cost of preemptions, for copying
 * pages or computing them again, is at most COST_SHARE of the time of the last steps. Without this
 * the policy spends an overloaded engine's time on moving pages. */
#include "policies/order/order.h"

#include <math.h>

#define QUANTUM_S 0.010
#define PROMOTE_US 3000000
#define COST_SHARE 0.05
#define COST_MEMORY_S 10.0 /* step time after which a cost counts for 1/e */

/* Decayed sums over the last steps. */
struct costs {
    double preempt_s, wall_s;
};

/* scratch.order[0]: level + 1 (0: none yet); [1]: microseconds served in it. */

uint32_t mlfq_level(const struct step_session *session)
{
    return session->scratch->order[0] ? (uint32_t)session->scratch->order[0] - 1 : 0;
}

void mlfq_start(const struct step_session *session, uint32_t level)
{
    session->scratch->order[0] = (level < MLFQ_LEVELS ? level : MLFQ_LEVELS - 1) + 1;
    session->scratch->order[1] = 0;
}

static double quantum_s(uint32_t level)
{
    return QUANTUM_S * (double)(1u << level);
}

void mlfq_ran(const struct step_session *session, double seconds)
{
    struct step_scratch *scratch = session->scratch;
    if (scratch->order[0] == 0) return;
    /* Rounded: a step is whole microseconds, and truncation could lose one in each. */
    scratch->order[1] += (uint64_t)llround(fmax(0, seconds) * 1e6);
    uint32_t level = mlfq_level(session);
    if ((double)scratch->order[1] * 1e-6 > quantum_s(level)) mlfq_start(session, level + 1);
}

static uint32_t first_level(const struct step_session *session)
{
    uint32_t level = 0;
    while (level < MLFQ_LEVELS - 1 && quantum_s(level) < session->prefill_s)
        level++;
    return level;
}

static bool is_cheap(const struct costs *c)
{
    return c->preempt_s <= COST_SHARE * c->wall_s;
}

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    if (session->scratch->order[0] == 0) mlfq_start(session, first_level(session));
    if (!session->running) {
        int64_t promote_us = session->waiting_us + PROMOTE_US;
        if (now_us < promote_us) {
            ret->again_us = promote_us;
        } else if (mlfq_level(session) > 0 && is_cheap(state)) {
            mlfq_start(session, 0);
        } else if (mlfq_level(session) > 0) {
            ret->again_us = now_us + PROMOTE_US;
        }
    }
    ret->base = (double)mlfq_level(session);
}

static bool observe(void *state, const struct step_event *event)
{
    struct costs *c = state;
    if (event->kind == STEP_RAN) mlfq_ran(event->session, event->seconds);
    if (event->kind == STEP_DONE) {
        double kept = exp(-event->seconds / COST_MEMORY_S);
        c->wall_s = c->wall_s * kept + event->seconds;
        c->preempt_s = c->preempt_s * kept + event->preempt_s;
    }
    return false;
}

static bool yields(const void *state, const struct step_session *running)
{
    (void)running;
    return is_cheap(state);
}

const struct order_policy order_mlfq = {
    .name = "mlfq",
    .about = "feedback queues by time served, joined at the level that holds the prefill",
    .source = "FastServe (arXiv 2305.05920)",
    .state_size = sizeof(struct costs),
    .preempts = true,
    .swaps_early = true,
    .rank = rank,
    .yields = yields,
    .observe = observe,
};
