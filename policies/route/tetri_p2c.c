/* tetri_p2c.c - TetriInfer: take of two instances with room for the output the less heavily loaded.
 *
 *     room     KV that is free there >= prompt + predicted output (P90)
 *     two of those, drawn at random; the one with fewer heavy decodes / in flight
 *     outputs predicted longer than 128 tokens are heavy
 *
 * Where prefill and decode are split, the prefill instance is the one with the least TTFT and the
 * two are drawn from the decode instances. If none has room, the two are drawn from all.
 * Deviations: the paper's predictor gives a class of 200 tokens, ours a quantile; the limit between
 * light and heavy is 128 tokens, the median output it evaluates with. Ties go to the fewer in flight.
 * Source: TetriInfer (arXiv 2401.11181), inter-decode scheduling.
 */
#include "policies/route/route.h"

static bool wanted(const struct route_instance *in, bool decode)
{
    return in->accepts && (decode ? in->role == ROLE_DECODE : in->role != ROLE_DECODE);
}

static bool has_room(const struct route_instance *in, const struct route_req *req)
{
    if (in->kv_tokens_max == 0) return true;
    double needs = (double)in->active_tokens + (double)req->prompt_tokens + req->output_p90;
    return needs <= (double)in->kv_tokens_max;
}

static bool counts(const struct route_instance *in, const struct route_req *req, bool decode,
                   bool roomy)
{
    return wanted(in, decode) && (!roomy || has_room(in, req));
}

static uint32_t count_of(const struct route_view *view, const struct route_req *req, bool decode,
                         bool roomy)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        n += counts(&view->instance[i], req, decode, roomy);
    return n;
}

/* Returns the view index of the nth instance that counts; ROUTE_NONE past the last. */
static uint32_t nth_of(const struct route_view *view, const struct route_req *req, bool decode,
                       bool roomy, uint64_t nth)
{
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!counts(&view->instance[i], req, decode, roomy)) continue;
        if (nth-- == 0) return i;
    }
    return ROUTE_NONE;
}

/* Returns 1, 0 or -1 as `a` is more, equally or less heavily loaded than `b`. It compares shares of
 * heavy decodes, multiplied out so that equal shares are equal; the number in flight breaks ties. */
static int heavier(const struct route_instance *a, const struct route_instance *b)
{
    uint64_t x = (uint64_t)a->heavy * b->in_flight, y = (uint64_t)b->heavy * a->in_flight;
    if (x != y) return x > y ? 1 : -1;
    return (a->in_flight > b->in_flight) - (a->in_flight < b->in_flight);
}

static struct route_best choose(const struct route_view *view, const struct route_req *req,
                                bool decode, struct rng *rng)
{
    struct route_best best = ROUTE_BEST_INIT;
    bool roomy = nth_of(view, req, decode, true, 0) != ROUTE_NONE;
    uint64_t count = count_of(view, req, decode, roomy);
    if (count == 0) return best;
    uint64_t first = rng_below(rng, count);
    uint32_t index = nth_of(view, req, decode, roomy, first);
    route_best_offer(&best, index, 0, rng);
    if (count == 1) return best;
    uint64_t second = rng_below(rng, count - 1);
    uint32_t other = nth_of(view, req, decode, roomy, second + (second >= first));
    route_best_offer(&best, other, heavier(&view->instance[other], &view->instance[index]), rng);
    return best;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    struct route_best decode = choose(view, req, true, rng);
    if (decode.index == ROUTE_NONE) {
        struct route_best both = choose(view, req, false, rng);
        route_answer(view, req, both.index, both.second_index, ret);
        return;
    }
    route_shortest_ttft.decide(state, view, req, now_us, rng, ret);
    if (ret->instance_id != ROUTE_NONE) ret->decode_id = view->instance[decode.index].id;
}

const struct route_policy route_tetri_p2c = {
    .name = "tetri_p2c",
    .about = "of two instances with room for the output, the one with fewer long outputs",
    .source = "TetriInfer (arXiv 2401.11181)",
    .decide = decide,
};
