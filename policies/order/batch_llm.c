/* batch_llm.c - runs sessions with a common prefix together (BatchLLM, arXiv 2412.03594).
 *
 *     first the group admitted last, then the largest  decode tokens / prefill tokens,
 *     where the common prefix of a group counts once
 *
 * A group that runs at one go computes its prefix once, before the cache can drop it. Groups with
 * much decoding for little prefill go early, so that their decodes overlap the prefills of later
 * ones. The paper cuts the prefix tree to one level by a dynamic programme over a known batch; a
 * queue never ends, so ours takes the level that the request names (`group`). 128 groups are known
 * at a time; sessions of further groups, or without one, rank by their own ratio.
 *
 * Ranks do not age: while members of the group admitted last keep coming, all others wait. The
 * policy is made for batches, which end. */
#include "policies/order/order.h"

#define GROUPS 128

struct group {
    uint64_t key;     /* 0: free */
    uint32_t waiting; /* members that wait for the first time */
    uint32_t prefill; /* tokens of one member: the common prefix is most of them */
    double decode;    /* expected output tokens of these members */
};

struct groups {
    uint64_t in_hand;
    struct group group[GROUPS];
};

static struct group *find(struct groups *g, uint64_t key, bool make)
{
    struct group *empty = NULL;
    for (uint32_t i = 0; i < GROUPS; i++) {
        struct group *at = &g->group[(key + i) % GROUPS];
        if (at->key == key) return at;
        if (!empty && (at->key == 0 || at->waiting == 0)) empty = at;
    }
    if (!make || !empty) return NULL;
    *empty = (struct group){ .key = key };
    return empty;
}

static double ratio(double decode, double prefill)
{
    return decode / (prefill > 1 ? prefill : 1);
}

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)now_us;
    struct groups *g = state;
    if (session->group && session->group == g->in_hand) {
        ret->base = -1e18;
        return;
    }
    const struct group *at = session->group ? find(g, session->group, false) : NULL;
    ret->base =
        at ? -ratio(at->decode, at->prefill) : -ratio(session->remaining, session->prompt_tokens);
}

static void leave(struct groups *g, const struct step_session *session)
{
    if (!session->scratch->order[0]) return;
    session->scratch->order[0] = 0;
    struct group *at = find(g, session->group, false);
    if (!at || at->waiting == 0) return;
    at->decode -= at->decode / at->waiting--;
}

static bool observe(void *state, const struct step_event *event)
{
    struct groups *g = state;
    if (!event->session || event->session->group == 0) return false;
    const struct step_session *session = event->session;
    if (event->kind == STEP_ARRIVED) {
        struct group *at = find(g, session->group, true);
        if (!at) return false;
        session->scratch->order[0] = 1; /* counted */
        at->waiting++;
        at->prefill = session->prompt_tokens;
        at->decode += session->remaining;
    } else if (event->kind == STEP_ENDED) {
        leave(g, session);
    } else if (event->kind == STEP_ADMITTED) {
        leave(g, session);
        if (g->in_hand == session->group) return false;
        g->in_hand = session->group;
        return true;
    }
    return false;
}

const struct order_policy order_batch_llm = {
    .name = "batch_llm",
    .about = "groups with a shared beginning at one go, most decode per prefill first",
    .source = "BatchLLM (arXiv 2412.03594)",
    .state_size = sizeof(struct groups),
    .uses_hits = true,
    .rank = rank,
    .observe = observe,
};
