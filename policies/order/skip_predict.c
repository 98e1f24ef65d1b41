/* skip_predict.c - admits predicted short sessions by arrival, then long ones by their remaining
 * tokens (SkipPredict, 2402.03564).
 *
 *     short:  predicted output <= the running mean of outputs    rank 0, equal ranks by arrival
 *     long:   rank = 1 + remaining tokens - wait_s * 100, since it last began to wait
 *
 * One cheap bit decides for most sessions; only the long ones need a full prediction. The bit is
 * set when a session is first ranked and stays: if it followed the mean, a session that waited as a
 * short one could run as a long one and yield at once. Short sessions preempt long ones and never
 * yield.
 *
 * Deviation: long sessions age by a hundred tokens a second, so that they do not starve; after a
 * long wait they go before short ones. A running long session does not age and so yields to short
 * ones at once: this is the gain of the policy, and its loss where memory is short. A session
 * without any prediction counts as short. */
#include "policies/order/order.h"

#define MEAN_RATE 0.02 /* of the running mean of outputs: about the last 50 */
#define AGE_TOKENS 100.0

struct lengths {
    double mean; /* of whole outputs; 0: none seen */
};

enum { UNRANKED, SHORT, LONG }; /* scratch.order[0] */

static double predicted(const struct step_session *session)
{
    return session->predicted_mean ? (double)session->predicted_mean
                                   : (double)session->predicted_p50;
}

static bool is_long(const struct lengths *l, const struct step_session *session)
{
    uint64_t *kept = &session->scratch->order[0];
    if (*kept == UNRANKED) {
        double tokens = predicted(session);
        *kept = tokens > 0 && l->mean > 0 && tokens > l->mean ? LONG : SHORT;
    }
    return *kept == LONG;
}

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)now_us;
    if (!is_long(state, session)) return;
    ret->base = 1 + session->remaining;
    ret->from_us = session->waiting_us;
    if (!session->running) ret->slope = -AGE_TOKENS;
}

static bool yields(const void *state, const struct step_session *running)
{
    return is_long(state, running);
}

static bool observe(void *state, const struct step_event *event)
{
    struct lengths *l = state;
    if (event->kind != STEP_ENDED || !event->whole) return false;
    double tokens = (double)event->output_tokens;
    l->mean = l->mean > 0 ? l->mean + MEAN_RATE * (tokens - l->mean) : tokens;
    return false;
}

const struct order_policy order_skip_predict = {
    .name = "skip_predict",
    .about = "predicted shorts by arrival, then longs by what remains",
    .source = "SkipPredict (arXiv 2402.03564)",
    .state_size = sizeof(struct lengths),
    .preempts = true,
    .rank = rank,
    .yields = yields,
    .observe = observe,
};
