/* splitwise.c - keep a prompt pool and a token pool that lend each other machines.
 *
 *     every machine of the prompt pool has more than 8,192 pending prompt tokens:
 *         the token machine with the fewest becomes mixed
 *     every machine of the token pool has less than 2,048 tokens of room:
 *         the prompt machine with the fewest becomes mixed
 *
 * A borrowed machine goes home when no work of the foreign phase is left there. In Splitwise a
 * planner sizes the pools; here the rates of the two phases do (as in pd_serve), at first and then
 * every minute in which no machine is borrowed, by one machine: the paper's coarse re-purposing.
 * Deviation: Splitwise's simulator bounds the tokens of a batch by 2,048; with paged memory the
 * bound of a token machine is its KV, so it counts as full 2,048 tokens before the end.
 */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "policies/role/role.h"

#define PROMPT_PENDING_MAX 8192
#define DECODE_SLACK_TOKENS 2048
#define AGAIN_US 1000000
#define RESIZE_US (60 * (int64_t)1000000)

struct splitwise {
    int64_t sized_us;                 /* when the pools were sized last */
    uint8_t home[ROLE_INSTANCES_MAX]; /* role + 1 by id; 0: not assigned */
};

static enum role home_of(const struct splitwise *s, const struct role_instance *in)
{
    return (enum role)(s->home[in->id] - 1);
}

static bool is_mine(const struct splitwise *s, const struct role_instance *in)
{
    return role_is_free(in) && s->home[in->id];
}

/* Returns true if the pools must be sized: an instance is new, or a pool has died out. */
static bool are_stale(const struct splitwise *s, const struct role_view *v)
{
    bool fresh = false;
    uint32_t homes[ROLE_COUNT] = { 0 };
    for (uint32_t i = 0; i < v->instance_count; i++) {
        const struct role_instance *in = &v->instance[i];
        must(in->id < ROLE_INSTANCES_MAX);
        if (!role_is_free(in) || !in->has_perf) continue;
        fresh |= s->home[in->id] == 0;
        if (s->home[in->id]) homes[home_of(s, in)]++;
    }
    return fresh || !homes[ROLE_PREFILL] || !homes[ROLE_DECODE];
}

/* Returns the least loaded instance of a pool that is not lent out; NULL when there is none. */
static const struct role_instance *least(const struct splitwise *s, const struct role_view *v,
                                         enum role pool, bool by_prompt)
{
    const struct role_instance *best = NULL;
    for (uint32_t i = 0; i < v->instance_count; i++) {
        const struct role_instance *in = &v->instance[i];
        if (!is_mine(s, in) || home_of(s, in) != pool || in->role != pool) continue;
        uint64_t x = by_prompt ? in->prompt_pending : in->decode_pending;
        uint64_t y = !best ? 0 : by_prompt ? best->prompt_pending : best->decode_pending;
        if (!best || x < y || (x == y && in->id < best->id)) best = in;
    }
    return best;
}

/* Returns true if a minute has passed since the pools were sized and every machine works at home. */
static bool may_resize(struct splitwise *s, const struct role_view *v, int64_t now_us)
{
    if (s->sized_us > now_us) s->sized_us = now_us; /* a wall clock that was set back */
    if (now_us - s->sized_us < RESIZE_US) return false;
    for (uint32_t i = 0; i < v->instance_count; i++)
        if (is_mine(s, &v->instance[i]) && v->instance[i].role == ROLE_BOTH) return false;
    return true;
}

static void send_home(const struct splitwise *s, const struct role_view *v,
                      struct role_verdict *ret)
{
    for (uint32_t i = 0; i < v->instance_count; i++) {
        const struct role_instance *in = &v->instance[i];
        if (!is_mine(s, in)) continue;
        bool foreign =
            home_of(s, in) == ROLE_PREFILL ? in->decode_pending > 0 : in->prompt_pending > 0;
        if (in->role == ROLE_BOTH && !foreign) ret->role[i] = home_of(s, in);
    }
}

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    struct splitwise *s = state;
    if (are_stale(s, view) || may_resize(s, view, now_us)) {
        role_pd_serve.decide(NULL, view, now_us, rng, ret);
        s->sized_us = now_us;
        ret->again_us = now_us + AGAIN_US;
        for (uint32_t i = 0; i < view->instance_count; i++) {
            if (ret->role[i] != ROLE_BOTH && role_is_free(&view->instance[i]))
                s->home[view->instance[i].id] = (uint8_t)(ret->role[i] + 1);
        }
        return;
    }
    role_keep(view, "the pools", now_us, ret);
    send_home(s, view, ret);
    const struct role_instance *prompt = least(s, view, ROLE_PREFILL, true);
    const struct role_instance *token = least(s, view, ROLE_DECODE, false);
    bool prompts_wait = prompt && prompt->prompt_pending > PROMPT_PENDING_MAX;
    bool tokens_wait = token && token->decode_pending + DECODE_SLACK_TOKENS > token->kv_tokens_max;
    /* A lent machine goes on with its own phase too. */
    if (prompts_wait && !tokens_wait && token) ret->role[token - view->instance] = ROLE_BOTH;
    if (tokens_wait && !prompts_wait && prompt) ret->role[prompt - view->instance] = ROLE_BOTH;
    role_answer(view,
                prompts_wait  ? "the prompt pool borrows"
                : tokens_wait ? "the token pool borrows"
                              : "the pools",
                now_us + AGAIN_US, ret);
}

const struct role_policy role_splitwise = {
    .name = "splitwise",
    .about = "prompt and token pools that borrow from each other beyond 8,192 pending tokens",
    .source = "Splitwise (ISCA'24) section IV and its simulator",
    .state_size = sizeof(struct splitwise),
    .decide = decide,
};
