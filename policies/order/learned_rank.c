/* learned_rank.c - admits by learned rank, with a starvation guard (LTR, arXiv 2408.15792).
 *
 *     rank = the ranker's score (lower is shorter); without one the predicted mean; without
 *            either the running mean of outputs
 *     waited through 200 steps -> first of all, until it has run in 10 steps
 *
 * The router's predictor gives the score with the request (predict/ngram_rank, ssjf_pairwise):
 * ranking is relative, so any monotone scale does, if all requests use the same one: a request that
 * did not come through the router has tokens in place of a score. Static ranks with preemption lose
 * badly when pages are short, so this policy only orders admissions, and the boost protects a
 * session that is preempted for lack of pages. The guard's numbers are those of the paper's
 * scripts. The rank is asked for again after the time that so many steps usually take. */
#include "policies/order/order.h"

#include <math.h>

#define IDLE_STEPS 200
#define BOOST_STEPS 10
#define MEAN_RATE 0.05  /* of the running mean of a step's seconds: about 20 steps */
#define STEP_US_MAX 1e9 /* a longer step, a quarter of an hour, means that the machine slept */

struct ranker {
    uint64_t steps;
    double step_s; /* running mean; 0: none yet */
};

/* scratch.order[0]: step at which it began to wait, plus 1; [1]: steps of boost left. */

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    const struct ranker *r = state;
    struct step_scratch *scratch = session->scratch;
    if (scratch->order[0] == 0) scratch->order[0] = r->steps + 1;
    uint64_t idle = r->steps + 1 - scratch->order[0];
    if (!session->running && scratch->order[1] == 0 && idle >= IDLE_STEPS) {
        scratch->order[1] = BOOST_STEPS;
    }
    if (scratch->order[1] > 0) {
        ret->base = -1e18;
        return;
    }
    double left = idle < IDLE_STEPS ? (double)(IDLE_STEPS - idle) : 0;
    double left_us = left * fmin(fmax(r->step_s * 1e6, 1), STEP_US_MAX);
    ret->again_us = now_us + 1 + (int64_t)left_us;
    ret->base = session->has_rank ? session->rank : (double)session->generated + session->remaining;
}

static bool observe(void *state, const struct step_event *event)
{
    struct ranker *r = state;
    if (event->kind == STEP_DONE) {
        r->steps++;
        r->step_s =
            r->step_s > 0 ? r->step_s + MEAN_RATE * (event->seconds - r->step_s) : event->seconds;
    } else if (event->kind == STEP_RAN) {
        struct step_scratch *scratch = event->session->scratch;
        if (scratch->order[1] > 0) scratch->order[1]--;
        scratch->order[0] = 0; /* its wait is counted anew */
    }
    return false;
}

const struct order_policy order_learned_rank = {
    .name = "learned_rank",
    .about = "by a learned rank; a session that waited through 200 steps goes first for 10",
    .source = "Learning to Rank (arXiv 2408.15792), vllm-ltr",
    .state_size = sizeof(struct ranker),
    .rank = rank,
    .observe = observe,
};
