/* thunderserve.c - search the phases of instances by tabu search: flip one, or exchange two.
 *
 *     start from the roles in place; each step takes the best neighbour that is not tabu (or beats
 *     the best so far); flipped instances are tabu for some steps; the best roles seen win
 *
 * ThunderServe (MLSys'25) searches groups of devices and their phases and then re-plans phases alone
 * when the load shifts, because a flip needs no reload of the weights. This policy is that second,
 * online part; its groups are the given instances. Like machines are interchangeable, so each step
 * looks at one flip at most for each class of speed and role. */
#include "base/core/err.h"
#include "policies/role/role.h"

#include <string.h>

#define STEPS 40
#define EXCHANGES_MAX 32 /* instances; in a larger fleet only single flips are looked at */
#define GAIN_MIN 1.02    /* a flip disturbs what runs there */
#define AGAIN_US 30000000

struct search {
    const struct role_view *view;
    uint32_t order[ROLE_INSTANCES_MAX], count;
    uint32_t tabu_until[ROLE_INSTANCES_MAX]; /* by place in order */
    enum role role[ROLE_INSTANCES_MAX];
    uint32_t prefill; /* instances of the order that prefill */
};

static enum role other(enum role role)
{
    return role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
}

/* Returns true if the instance before it in the order has a like speed and role: flipping that one
 * would do the same. */
static bool is_twin(const struct search *s, uint32_t i)
{
    if (i == 0 || s->role[s->order[i]] != s->role[s->order[i - 1]]) return false;
    const struct perf_coef *a = &s->view->instance[s->order[i]].perf;
    const struct perf_coef *b = &s->view->instance[s->order[i - 1]].perf;
    return a->prefill_token_s < b->prefill_token_s * 1.05 &&
           b->prefill_token_s < a->prefill_token_s * 1.05 && a->kv_read_s < b->kv_read_s * 1.05 &&
           b->kv_read_s < a->kv_read_s * 1.05;
}

static double value(const struct search *s)
{
    return s->view->evaluator->goodput_rps(s->view->evaluator->ctx, s->view, s->role);
}

/* Flips the places `a` and `b` (once if they are the same). Returns false and changes nothing if one
 * phase would be left without an instance, or if `a` and `b` have the same phase. */
static bool flip(struct search *s, uint32_t a, uint32_t b)
{
    enum role *x = &s->role[s->order[a]], *y = &s->role[s->order[b]];
    if (a != b && *x == *y) return false;
    if (a == b) {
        uint32_t prefill = *x == ROLE_PREFILL ? s->prefill - 1 : s->prefill + 1;
        if (prefill == 0 || prefill == s->count) return false;
        s->prefill = prefill;
    } else {
        *y = other(*y);
    }
    *x = other(*x);
    return true;
}

/* Takes one step of the search and returns the goodput it leads to; < 0 when no neighbour may be
 * taken. */
static double step(struct search *s, uint32_t number, double best)
{
    double found = -1;
    uint32_t at_a = 0, at_b = 0;
    for (uint32_t a = 0; a < s->count; a++) {
        for (uint32_t b = a; b < (s->count <= EXCHANGES_MAX ? s->count : a + 1); b++) {
            if ((is_twin(s, a) && s->tabu_until[a - 1] <= number) || (b != a && is_twin(s, b)))
                continue;
            if (!flip(s, a, b)) continue;
            double rps = value(s);
            must(flip(s, a, b));
            bool tabu = s->tabu_until[a] > number || s->tabu_until[b] > number;
            if ((tabu && rps <= best) || rps <= found) continue;
            found = rps;
            at_a = a, at_b = b;
        }
    }
    if (found < 0) return found;
    must(flip(s, at_a, at_b));
    /* A tabu is short against the fleet's size, or soon every flip would be tabu. */
    s->tabu_until[at_a] = s->tabu_until[at_b] = number + s->count / 4 + 1;
    return found;
}

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    (void)state, (void)rng;
    struct search s = { .view = view };
    s.count = role_order(view, s.order);
    if (!role_known(view) || s.count < 2) {
        role_keep(view, "no demand is known, or too few instances", now_us, ret);
        return;
    }
    /* Colocated instances have no phase yet: the search starts from halves. */
    role_keep(view, "no flip promises two per cent more", now_us, ret);
    memcpy(s.role, ret->role, view->instance_count * sizeof *s.role);
    bool disaggregated = true;
    for (uint32_t i = 0; i < s.count; i++) {
        disaggregated &= s.role[s.order[i]] != ROLE_BOTH;
        s.prefill += s.role[s.order[i]] == ROLE_PREFILL;
    }
    if (!disaggregated || s.prefill == 0 || s.prefill == s.count) {
        s.prefill = s.count / 2;
        role_assign(view, s.order, s.count, s.prefill, s.count - s.prefill, s.role);
        memcpy(ret->role, s.role, view->instance_count * sizeof *s.role);
    }
    double first = value(&s), best = first;
    for (uint32_t number = 1; number <= STEPS; number++) {
        double rps = step(&s, number, best);
        if (rps < 0) break;
        if (rps < first * GAIN_MIN || rps <= best) continue;
        best = rps;
        memcpy(ret->role, s.role, view->instance_count * sizeof *s.role);
    }
    role_answer(view, best > first ? "flipped phases promise more" : ret->reason, now_us + AGAIN_US,
                ret);
    if (best > first) ret->runner_up_rps = first;
}

const struct role_policy role_thunderserve = {
    .name = "thunderserve",
    .about = "tabu search over prefill and decode phases, flipped without a reload",
    .source = "ThunderServe (MLSys'25) sections 3.2 and 3.4",
    .decide = decide,
};
