/* spotserve.c - assigns devices to the places of the new layout so that the most bytes are reused.
 *
 *     max  sum over pairs of reused_bytes[from][to],   each device and each place at most once
 *
 * SpotServe (ASPLOS 2024, section 3.3) maps devices by the Kuhn-Munkres method on the surviving
 * weights and KV; here it uses potentials and shortest augmenting paths (O(n^3)). Devices and
 * places may differ in number; the surplus stays without a partner. */
#include "base/core/bits.h"
#include "policies/move/move.h"

#include <float.h>
#include <math.h>

/* Returns the cost of a pair. Devices and places count from 1; pairs that fill up the square cost
 * 0. */
static double cost(const struct move_problem *p, uint32_t from, uint32_t to)
{
    if (from > p->from_count || to > p->to_count) return 0;
    return -p->reused_bytes[from - 1][to - 1];
}

/* Finds a place for device `row`, and moves others where that is better. */
static void augment(const struct move_problem *p, uint32_t n, uint32_t row, struct move_memory *w)
{
    w->match[0] = row;
    for (uint32_t j = 0; j <= n; j++) {
        w->slack[j] = DBL_MAX;
        w->used[j] = false;
    }
    uint32_t at = 0;
    do {
        w->used[at] = true;
        uint32_t from = w->match[at], next = 0;
        double least = DBL_MAX;
        for (uint32_t j = 1; j <= n; j++) {
            if (w->used[j]) continue;
            double rest = cost(p, from, j) - w->dual_from[from] - w->dual_to[j];
            if (rest < w->slack[j]) {
                w->slack[j] = rest;
                w->way[j] = at;
            }
            if (w->slack[j] < least) {
                least = w->slack[j];
                next = j;
            }
        }
        for (uint32_t j = 0; j <= n; j++) {
            if (w->used[j]) {
                w->dual_from[w->match[j]] += least;
                w->dual_to[j] -= least;
            } else {
                w->slack[j] -= least;
            }
        }
        at = next;
    } while (w->match[at] != 0);
    while (at != 0) {
        uint32_t before = w->way[at];
        w->match[at] = w->match[before];
        at = before;
    }
}

static void map(const struct move_problem *problem, struct move_memory *work,
                struct move_verdict *ret)
{
    uint32_t n = max_u32(problem->from_count, problem->to_count);
    *work = (struct move_memory){ 0 };
    *ret = (struct move_verdict){ 0 };
    for (uint32_t row = 1; row <= n; row++)
        augment(problem, n, row, work);
    for (uint32_t i = 0; i < MOVE_MAX; i++)
        ret->to[i] = MOVE_NONE;
    for (uint32_t j = 1; j <= problem->to_count; j++)
        if (work->match[j] <= problem->from_count) ret->to[work->match[j] - 1] = j - 1;
    move_weigh(problem, ret);
}

const struct move_policy move_spotserve = {
    .name = "spotserve",
    .about = "planner: after a loss, devices to places so that most weights and KV are reused",
    .source = "SpotServe (ASPLOS 2024)",
    .map = map,
};
