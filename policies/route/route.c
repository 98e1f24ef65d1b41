/* route.c - the table of routing policies and their shared functions: the TTFT estimate, fair ties.
 *
 * The estimate follows the engine's scheduler: prompts are cut into chunks that fill the step's
 * token budget, and every step also pays for the sequences that decode meanwhile.
 */
#include "policies/route/route.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <math.h>

const struct route_policy *const route_table[] = {
#define POLICY(name) &route_##name,
#include "policies/route/route.def"
#undef POLICY
};
const uint32_t route_count = COUNT_OF(route_table);

const struct route_policy *route_find(struct str name)
{
    for (uint32_t i = 0; i < route_count; i++) {
        if (str_eq(str_from(route_table[i]->name), name)) return route_table[i];
    }
    return NULL;
}

double route_hash_weight(const struct route_instance *in, const struct route_req *req)
{
    return (double)hash64(&in->name_hash, sizeof in->name_hash, req->prefix_hash);
}

bool route_takes(const struct route_instance *in)
{
    return in->accepts && in->role != ROLE_DECODE;
}

double route_work_s(const struct perf_coef *perf, uint32_t token_budget, uint32_t prompt_tokens,
                    uint32_t hit_tokens, double output_tokens)
{
    double context = (double)prompt_tokens + output_tokens / 2;
    return (double)(prompt_tokens - hit_tokens) *
               (perf->prefill_token_s + perf->step_s / (double)token_budget) +
           output_tokens * (perf->decode_seq_s + perf->kv_read_s * context);
}

bool route_fleet_perf(const struct route_view *view, struct perf_coef *ret)
{
    struct perf_coef sum = { 0 };
    double known = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!in->accepts || !in->has_perf) continue;
        sum.step_s += in->perf.step_s;
        sum.prefill_token_s += in->perf.prefill_token_s;
        sum.decode_seq_s += in->perf.decode_seq_s;
        sum.kv_read_s += in->perf.kv_read_s;
        sum.attend_s += in->perf.attend_s;
        known += 1;
    }
    if (known == 0) return false;
    sum.step_s /= known;
    sum.prefill_token_s /= known;
    sum.decode_seq_s /= known;
    sum.kv_read_s /= known;
    sum.attend_s /= known;
    *ret = sum;
    return true;
}

double route_faded(double sum, int64_t at_us, int64_t now_us, double window_us)
{
    if (!(sum > 0)) return 0;
    return now_us > at_us ? sum * exp(-((double)now_us - (double)at_us) / window_us) : sum;
}

uint32_t route_hit_tokens(const struct route_instance *in, const struct route_req *req)
{
    return min_u32(in->hit_tokens, req->prompt_tokens - 1);
}

double route_ttft_s(const struct route_instance *in, const struct route_req *req)
{
    if (!in->has_perf) return -1;
    double tokens =
        (double)in->prefill_tokens + (double)(req->prompt_tokens - route_hit_tokens(in, req));
    double steps = ceil(tokens / (double)in->token_budget);
    double step_s = in->perf.step_s + in->perf.decode_seq_s * (double)in->decoding +
                    in->perf.kv_read_s * (double)in->kv_tokens;
    return in->slot_wait_s + steps * step_s + in->perf.prefill_token_s * tokens;
}

struct route_instance route_known(const struct route_instance *in, const struct perf_coef *fleet)
{
    struct route_instance at = *in;
    if (!in->has_perf && fleet) {
        at.perf = *fleet;
        at.has_perf = true;
    }
    return at;
}

double route_wait_s(const struct route_instance *in, const struct route_req *req,
                    const struct perf_coef *fleet)
{
    struct route_instance at = route_known(in, fleet);
    if (at.has_perf) return route_ttft_s(&at, req);
    return (double)in->prefill_tokens + (double)in->decoding +
           (double)(req->prompt_tokens - route_hit_tokens(in, req));
}

void route_best_offer(struct route_best *best, uint32_t index, double score, struct rng *rng)
{
    if (isnan(score)) score = (double)INFINITY;
    if (best->index == ROUTE_NONE || score < best->score) {
        best->second_index = best->index;
        best->second_score = best->score;
        best->index = index;
        best->score = score;
        best->ties = 1;
        return;
    }
    uint32_t loser = index;
    if (score == best->score && rng_below(rng, ++best->ties) == 0) {
        loser = best->index;
        best->index = index;
    }
    if (best->second_index == ROUTE_NONE || score < best->second_score) {
        best->second_index = loser;
        best->second_score = score;
    }
}

void route_answer(const struct route_view *view, const struct route_req *req, uint32_t index,
                  uint32_t second_index, struct route_verdict *ret)
{
    *ret = (struct route_verdict){ .instance_id = ROUTE_NONE,
                                   .estimate_s = -1,
                                   .runner_up_id = ROUTE_NONE,
                                   .runner_up_s = -1,
                                   .fetch_from_id = ROUTE_NONE,
                                   .decode_id = ROUTE_NONE };
    if (index != ROUTE_NONE) {
        ret->instance_id = view->instance[index].id;
        ret->estimate_s = route_ttft_s(&view->instance[index], req);
    }
    if (second_index != ROUTE_NONE) {
        ret->runner_up_id = view->instance[second_index].id;
        ret->runner_up_s = route_ttft_s(&view->instance[second_index], req);
    }
}
