/* dynamo_pd.c - change one instance over when the load of prefill and decode crosses thresholds.
 *
 *     prefill load = pending prompt tokens / mean prompt    up: any >= 1.0, down: all < 0.1
 *     decode load  = tokens held / tokens of KV memory      up: any >  1.0, down: all < 0.6
 *
 * NVIDIA Dynamo's planner adds and removes replicas by these rules every 5 s, and holds while a
 * change is under way. In a fixed fleet one side can only gain what the other gives: an instance
 * changes over only when one side says up and the other says down. The first split follows the rates
 * (pd_serve), where Dynamo takes its operator's numbers. */
#include "base/core/bits.h"
#include "policies/role/role.h"

#define AGAIN_US 5000000
#define PREFILL_UP 1.0
#define PREFILL_DOWN 0.1
#define DECODE_UP 1.0
#define DECODE_DOWN 0.6

struct side {
    uint32_t count;
    bool up, down;
};

static struct side look(const struct role_view *v, enum role role)
{
    struct side s = { .down = true };
    for (uint32_t i = 0; i < v->instance_count; i++) {
        const struct role_instance *in = &v->instance[i];
        if (in->role != role || !in->ready) continue;
        bool prefill = role == ROLE_PREFILL;
        double load = prefill ? (double)in->prompt_pending / v->demand.prompt_mean
                              : (double)in->decode_pending / (double)in->kv_tokens_max;
        s.count++;
        s.up |= prefill ? load >= PREFILL_UP : load > DECODE_UP;
        s.down &= load < (prefill ? PREFILL_DOWN : DECODE_DOWN);
    }
    return s;
}

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    if (!role_known(view)) {
        role_keep(view, "no demand is known", now_us, ret);
        return;
    }
    struct side prefill = look(view, ROLE_PREFILL), decode = look(view, ROLE_DECODE);
    bool changing = false;
    for (uint32_t i = 0; i < view->instance_count; i++)
        changing |= view->instance[i].changing;
    if (prefill.count == 0 || decode.count == 0) {
        role_pd_serve.decide(state, view, now_us, rng, ret);
        return;
    }
    role_keep(view, "neither side asks for what the other can give", now_us, ret);
    ret->again_us = now_us + AGAIN_US;
    bool to_prefill = prefill.up && decode.down && decode.count > 1;
    bool to_decode = decode.up && prefill.down && prefill.count > 1;
    if (changing || to_prefill == to_decode) return;
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = order[to_prefill ? i : count - 1 - i];
        if (ret->role[at] != (to_prefill ? ROLE_DECODE : ROLE_PREFILL)) continue;
        ret->role[at] = to_prefill ? ROLE_PREFILL : ROLE_DECODE;
        break;
    }
    role_answer(view, to_prefill ? "prompts wait and decoding has room" : "decoding is full",
                now_us + AGAIN_US, ret);
}

const struct role_policy role_dynamo_pd = {
    .name = "dynamo_pd",
    .about = "an instance changes over when one side's load asks and the other's allows",
    .source = "NVIDIA Dynamo planner, load thresholds of its static mode",
    .decide = decide,
};
