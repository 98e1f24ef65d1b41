/* helix.c - chooses a range of layers for each device so that the most tokens flow through.
 *
 * Each device holds one contiguous range; a token may go from a device whose range ends before
 * layer l to any that holds l. The value of a layout is the largest flow from clients through the
 * devices and back, devices limited by their tokens a second for the range, links by their bytes.
 * Each request can then take its own pipeline, by interleaved weighted round robin on the flows.
 *
 * Helix (ASPLOS 2025, sections 4 and 5) finds the ranges by a mixed-integer programme. Deviation: a
 * local search (shift, grow, shrink or exchange a range; a change that is not worse is kept) with
 * the flow by Dinic's method. It starts from the better of a chain over all devices and a cover in
 * which each device takes the layers that are served least. */
#include "base/core/bits.h"
#include "policies/layers/layers.h"

#include <float.h>

#define FLOWS_A_ROUND 40 /* a flow takes some 35 us: half a second for 24 devices */

static void cover(const struct layers_problem *p, struct layers_layout *ret)
{
    uint32_t order[LAYERS_DEVICES_MAX];
    double served[LAYERS_MAX] = { 0 };
    layers_by_speed(p, order);
    *ret = (struct layers_layout){ .part_count = p->device_count };
    for (uint32_t k = 0; k < p->device_count; k++) {
        uint32_t d = order[k], width = layers_room(p, 1u << d), best = 0;
        double least = DBL_MAX;
        for (uint32_t first = 0; first + width <= p->layers; first++) {
            double sum = 0;
            for (uint32_t l = first; l < first + width; l++)
                sum += served[l];
            if (sum >= least) continue;
            least = sum;
            best = first;
        }
        ret->part[d] = (struct layers_part){ best, width, 1u << d };
        for (uint32_t l = best; l < best + width; l++)
            served[l] += p->device[d].layer_tokens_s / width;
    }
}

/* Lays the best chain over all devices, with parts in the order of devices; devices that the chain
 * leaves out hold layer 0. */
static void chain(const struct layers_problem *p, struct layers_memory *work,
                  struct layers_layout *ret)
{
    uint32_t order[LAYERS_DEVICES_MAX], group[LAYERS_DEVICES_MAX];
    layers_by_speed(p, order);
    for (uint32_t i = 0; i < p->device_count; i++)
        group[i] = 1u << order[i];
    work->trial = (struct layers_layout){ 0 };
    layers_chain(p, group, p->device_count, work, &work->trial);
    *ret = (struct layers_layout){ .part_count = p->device_count };
    for (uint32_t d = 0; d < p->device_count; d++)
        ret->part[d] = (struct layers_part){ 0, 1, 1u << d };
    for (uint32_t i = 0; i < work->trial.part_count; i++)
        ret->part[__builtin_ctz(work->trial.part[i].devices)] = work->trial.part[i];
}

static uint32_t step(struct rng *rng)
{
    return 1u << rng_below(rng, 4); /* 1, 2, 4, 8 layers */
}

/* Makes one random change of one range, or exchanges two. */
static void change(const struct layers_problem *p, struct rng *rng, struct layers_layout *l)
{
    uint32_t at = (uint32_t)rng_below(rng, l->part_count);
    struct layers_part *a = &l->part[at];
    int64_t first = a->first, end = first + a->count, by = step(rng);
    switch (rng_below(rng, 6)) {
    case 0:
        first += by, end += by;
        break;
    case 1:
        first -= by, end -= by;
        break;
    case 2:
        end += by;
        break;
    case 3:
        end -= by;
        break;
    case 4:
        first -= by;
        break;
    default: {
        struct layers_part *b = &l->part[rng_below(rng, l->part_count)];
        struct layers_part was = *b;
        b->first = a->first, b->count = min_u32(a->count, layers_room(p, b->devices));
        first = was.first, end = was.first + was.count;
        break;
    }
    }
    first = first < 0 ? 0 : first;
    end = end > p->layers ? p->layers : end;
    if (end <= first) return;
    uint32_t room = layers_room(p, a->devices);
    a->first = (uint32_t)first;
    a->count = min_u32((uint32_t)(end - first), room);
}

static void lay(const struct layers_problem *problem, struct layers_memory *work, struct rng *rng,
                struct layers_layout *ret)
{
    struct layers_layout now, other;
    uint32_t rounds = problem->rounds_max ? problem->rounds_max : LAYERS_ROUNDS;
    chain(problem, work, &now);
    cover(problem, &other);
    layers_flow(problem, work, &now);
    layers_flow(problem, work, &other);
    if (other.rate_s > now.rate_s) now = other;
    *ret = now;
    for (uint32_t i = 0; i < rounds * FLOWS_A_ROUND; i++) {
        struct layers_layout *trial = &work->trial;
        *trial = now;
        change(problem, rng, trial);
        if (rng_below(rng, 2)) change(problem, rng, trial);
        layers_flow(problem, work, trial);
        if (trial->rate_s < now.rate_s) continue;
        now = *trial;
        if (now.rate_s > ret->rate_s) *ret = now;
    }
    ret->why = ret->found ? "ranges whose flow is the largest found"
                          : "no ranges of these devices hold the model";
}

const struct layers_policy layers_helix = {
    .name = "helix",
    .about = "planner: a range of layers a device for the largest flow, a pipeline a request",
    .source = "Helix (ASPLOS 2025), local search for its integer programme",
    .lay = lay,
};
