/* hexgen.c - lays several pipelines side by side, each of unequal tensor-parallel stages.
 *
 * Outer search: devices of one machine form groups that share layers; groups are dealt to replicas.
 * Inner search: each replica is the chain of its groups, fastest first, with the fastest slowest
 * stage, by the dynamic programme of layers_chain, which may leave groups out.
 *
 * HexGen (arXiv 2311.11514) searches asymmetric tensor and pipeline parallelism by a dynamic
 * programme inside a genetic search. Deviation: the outer search is a deterministic descent (deal a
 * group to another replica, split a group, merge two of a machine; the first move that helps is
 * taken) from two starts: one group for each machine, all in one replica, and one replica for each
 * machine. Flow between replicas whose stages happen to meet counts, as with every policy. */
#include "base/core/bits.h"
#include "policies/layers/layers.h"

#define REPLICAS_MAX 8

struct deal {
    uint32_t group[LAYERS_PARTS_MAX];
    uint32_t replica[LAYERS_PARTS_MAX];
    uint32_t count;
};

struct search {
    const struct layers_problem *p;
    struct layers_memory *work;
    struct layers_layout *best;
    uint32_t left; /* evaluations left */
};

static double group_speed(const struct layers_problem *p, uint32_t devices)
{
    double speed = 0;
    for (uint32_t d = 0; d < p->device_count; d++)
        if (devices >> d & 1) speed += p->device[d].layer_tokens_s;
    return speed;
}

static bool evaluate(struct search *s, const struct deal *deal)
{
    struct layers_layout *trial = &s->work->trial;
    if (s->left == 0) return false;
    s->left--;
    *trial = (struct layers_layout){ 0 };
    for (uint32_t r = 0; r < REPLICAS_MAX; r++) {
        uint32_t group[LAYERS_PARTS_MAX], count = 0;
        for (uint32_t i = 0; i < deal->count; i++) {
            if (deal->replica[i] != r) continue;
            uint32_t at = count++;
            for (; at > 0; at--) {
                if (group_speed(s->p, group[at - 1]) >= group_speed(s->p, deal->group[i])) break;
                group[at] = group[at - 1];
            }
            group[at] = deal->group[i];
        }
        if (count > 0) layers_chain(s->p, group, count, s->work, trial);
    }
    layers_flow(s->p, s->work, trial);
    if (trial->rate_s <= s->best->rate_s * (1 + 1e-9)) return false;
    *s->best = *trial;
    return true;
}

static bool split(struct search *s, struct deal *deal)
{
    for (uint32_t i = 0; i < deal->count && deal->count < LAYERS_PARTS_MAX; i++) {
        int width = __builtin_popcount(deal->group[i]);
        if (width < 2) continue;
        struct deal next = *deal;
        uint32_t half = 0, rest = deal->group[i];
        for (int k = 0; k < width / 2; k++) {
            half |= rest & -rest;
            rest &= rest - 1;
        }
        next.group[i] = half;
        next.group[next.count] = rest;
        next.replica[next.count++] = deal->replica[i];
        if (!evaluate(s, &next)) continue;
        *deal = next;
        return true;
    }
    return false;
}

static uint32_t machine_of(const struct layers_problem *p, uint32_t group)
{
    return p->device[__builtin_ctz(group)].machine;
}

static bool merge(struct search *s, struct deal *deal)
{
    for (uint32_t i = 0; i < deal->count; i++)
        for (uint32_t j = i + 1; j < deal->count; j++) {
            if (machine_of(s->p, deal->group[i]) != machine_of(s->p, deal->group[j])) continue;
            struct deal next = *deal;
            next.group[i] |= next.group[j];
            next.count--;
            next.group[j] = next.group[next.count];
            next.replica[j] = next.replica[next.count];
            if (!evaluate(s, &next)) continue;
            *deal = next;
            return true;
        }
    return false;
}

static bool deal_elsewhere(struct search *s, struct deal *deal)
{
    for (uint32_t i = 0; i < deal->count; i++)
        for (uint32_t r = 0; r < REPLICAS_MAX; r++) {
            if (r == deal->replica[i]) continue;
            struct deal next = *deal;
            next.replica[i] = r;
            if (!evaluate(s, &next)) continue;
            *deal = next;
            return true;
        }
    return false;
}

/* Deals one group for each machine; with `apart` each has its own replica, as far as there are
 * replicas. */
static void first_deal(const struct layers_problem *p, bool apart, struct deal *ret)
{
    *ret = (struct deal){ 0 };
    for (uint32_t d = 0; d < p->device_count; d++) {
        uint32_t i = 0;
        while (i < ret->count && machine_of(p, ret->group[i]) != p->device[d].machine)
            i++;
        if (i == ret->count) ret->replica[ret->count++] = apart ? i % REPLICAS_MAX : 0;
        ret->group[i] |= 1u << d;
    }
}

static void lay(const struct layers_problem *problem, struct layers_memory *work, struct rng *rng,
                struct layers_layout *ret)
{
    (void)rng;
    uint32_t rounds = problem->rounds_max ? problem->rounds_max : LAYERS_ROUNDS;
    *ret = (struct layers_layout){ .why = "no pipeline of these devices holds the model" };
    for (int apart = 0; apart < 2; apart++) {
        struct search s = { problem, work, ret, max_u32(rounds / 2, 1) };
        struct deal deal;
        first_deal(problem, apart, &deal);
        evaluate(&s, &deal);
        while (deal_elsewhere(&s, &deal) || split(&s, &deal) || merge(&s, &deal)) {
        }
    }
    if (ret->found) ret->why = "pipelines of unequal groups, the best found";
}

const struct layers_policy layers_hexgen = {
    .name = "hexgen",
    .about = "planner: pipelines of unequal tensor-parallel stages, by descent over a programme",
    .source = "HexGen (arXiv 2311.11514), descent for its genetic search",
    .lay = lay,
};
