/* order_shortest_predicted.c - least predicted work first, aged.
 *
 *     rank = work_s - wait_s / AGE
 *
 * Work is seconds of the performance model, prompt and predicted answer together: where prefill
 * is the bottleneck an order by output length alone gains next to nothing. The ageing term bounds
 * the wait of a long session: after AGE times its work it passes everything that arrives. */
#include "policies/order.h"

#define AGE 10.0 /* waiting ten seconds is worth being one second shorter */

extern const struct order_policy order_shortest_predicted;

static double rank(const struct step_session *session, int64_t now_us)
{
    double wait_s = (double)(now_us - session->arrival_us) * 1e-6;
    return session->work_s - wait_s / AGE;
}

const struct order_policy order_shortest_predicted = {
    .name = "shortest_predicted",
    .about = "least predicted seconds of work first, with ageing",
    .rank = rank,
};
