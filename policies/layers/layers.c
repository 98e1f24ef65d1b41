/* layers.c - the table of layer policies; rates of parts, the best chain, and the largest flow of a
 * layout. */
#include "policies/layers/layers.h"

#include "base/core/bits.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SOURCE 0
#define SINK 1
#define FLOW_MIN 1e-9 /* relative: smaller residues are rounding errors */

const struct layers_policy *const layers_table[] = {
#define POLICY(name) &layers_##name,
#include "policies/layers/layers.def"
#undef POLICY
};
const uint32_t layers_count = COUNT_OF(layers_table);

const struct layers_policy *layers_find(struct str name)
{
    for (uint32_t i = 0; i < layers_count; i++)
        if (str_eq(name, str_from(layers_table[i]->name))) return layers_table[i];
    return NULL;
}

static uint32_t in_node(uint32_t part)
{
    return 2 + 2 * part;
}

static uint32_t out_node(uint32_t part)
{
    return 3 + 2 * part;
}

static uint32_t least_room(const struct layers_problem *p, uint32_t devices)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t d = 0; d < p->device_count; d++)
        if (devices >> d & 1) least = min_u32(least, p->device[d].layers_max);
    return least;
}

uint32_t layers_room(const struct layers_problem *p, uint32_t devices)
{
    if (devices == 0) return 0;
    uint64_t room = (uint64_t)least_room(p, devices) * (uint64_t)__builtin_popcount(devices);
    return room < p->layers ? (uint32_t)room : p->layers;
}

double layers_part_rate(const struct layers_problem *p, const struct layers_part *part)
{
    double slowest = DBL_MAX, cost = 0;
    uint32_t machine = UINT32_MAX;
    if (part->count == 0 || part->count > layers_room(p, part->devices)) return 0;
    for (uint32_t d = 0; d < p->device_count; d++) {
        if (!(part->devices >> d & 1)) continue;
        if (machine != UINT32_MAX && p->device[d].machine != machine) return 0;
        machine = p->device[d].machine;
        slowest = fmin(slowest, p->device[d].layer_tokens_s);
    }
    for (uint32_t l = part->first; l < part->first + part->count; l++)
        cost += p->cost[l];
    double width = __builtin_popcount(part->devices);
    return slowest * width * pow(p->split_efficiency, log2(width)) / cost;
}

double layers_link_rate(const struct layers_problem *p, uint32_t from, uint32_t to)
{
    double best = 0;
    for (uint32_t a = 0; a < p->device_count; a++)
        for (uint32_t b = 0; b < p->device_count; b++)
            if ((from >> a & 1) && (to >> b & 1)) best = fmax(best, p->bytes_s[a][b]);
    return best / p->token_bytes;
}

void layers_by_speed(const struct layers_problem *p, uint32_t order[LAYERS_DEVICES_MAX])
{
    for (uint32_t i = 0; i < p->device_count; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            uint32_t before = order[at - 1];
            if (p->device[before].layer_tokens_s >= p->device[i].layer_tokens_s) break;
            order[at] = before;
        }
        order[at] = i;
    }
}

/* Fills best[i][l]: the rate of the first l layers on groups up to i, where i holds the last of
 * them. */
static void fill_chain(const struct layers_problem *p, const uint32_t *group, uint32_t count,
                       struct layers_memory *w)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t room = layers_room(p, group[i]);
        double link[LAYERS_PARTS_MAX];
        for (uint32_t j = 0; j < i; j++)
            link[j] = layers_link_rate(p, group[j], group[i]);
        for (uint32_t l = 0; l <= p->layers; l++) {
            w->best[i][l] = 0;
            for (uint32_t s = l > room ? l - room : 0; s < l; s++) {
                struct layers_part part = { s, l - s, group[i] };
                double rate = layers_part_rate(p, &part);
                if (s == 0 && rate > w->best[i][l]) {
                    w->best[i][l] = rate;
                    w->first[i][l] = 0;
                    w->before[i][l] = (uint8_t)i;
                }
                for (uint32_t j = 0; j < i && s > 0; j++) {
                    double through = fmin(fmin(w->best[j][s], link[j]), rate);
                    if (through <= w->best[i][l]) continue;
                    w->best[i][l] = through;
                    w->first[i][l] = (uint8_t)s;
                    w->before[i][l] = (uint8_t)j;
                }
            }
        }
    }
}

double layers_chain(const struct layers_problem *p, const uint32_t *group, uint32_t count,
                    struct layers_memory *work, struct layers_layout *ret)
{
    uint32_t last = UINT32_MAX, l = p->layers;
    double rate = 0;
    fill_chain(p, group, count, work);
    for (uint32_t i = 0; i < count; i++) {
        if (work->best[i][l] <= rate) continue;
        rate = work->best[i][l];
        last = i;
    }
    while (last != UINT32_MAX && l > 0 && ret->part_count < LAYERS_PARTS_MAX) {
        uint32_t first = work->first[last][l];
        ret->part[ret->part_count++] = (struct layers_part){ first, l - first, group[last] };
        last = work->before[last][l];
        l = first;
    }
    return rate;
}

/* Returns true if a token that left `a` may go on in `b`. */
static bool follows(const struct layers_part *a, const struct layers_part *b)
{
    uint32_t end = a->first + a->count;
    return b->first <= end && end < b->first + b->count;
}

static void build(const struct layers_problem *p, struct layers_memory *w,
                  const struct layers_layout *l)
{
    memset(w->room, 0, sizeof w->room);
    for (uint32_t i = 0; i < l->part_count; i++) {
        const struct layers_part *a = &l->part[i];
        w->room[in_node(i)][out_node(i)] = layers_part_rate(p, a);
        if (a->first == 0) w->room[SOURCE][in_node(i)] = DBL_MAX / 4;
        if (a->first + a->count == p->layers) w->room[out_node(i)][SINK] = DBL_MAX / 4;
        for (uint32_t j = 0; j < l->part_count; j++)
            if (i != j && follows(a, &l->part[j]))
                w->room[out_node(i)][in_node(j)] =
                    layers_link_rate(p, a->devices, l->part[j].devices);
    }
}

/* Sets levels breadth first from the source; returns false if the sink cannot be reached. */
static bool layer_out(struct layers_memory *w, uint32_t nodes, double least)
{
    uint32_t queue[LAYERS_NODES_MAX], head = 0, tail = 0;
    for (uint32_t n = 0; n < nodes; n++)
        w->level[n] = UINT32_MAX;
    w->level[SOURCE] = 0;
    queue[tail++] = SOURCE;
    while (head < tail) {
        uint32_t a = queue[head++];
        for (uint32_t b = 0; b < nodes; b++) {
            if (w->room[a][b] <= least || w->level[b] != UINT32_MAX) continue;
            w->level[b] = w->level[a] + 1;
            queue[tail++] = b;
        }
    }
    return w->level[SINK] != UINT32_MAX;
}

/* Pushes flow depth first along the levels and returns its amount; recursion is at most as deep as
 * there are nodes. */
static double push(struct layers_memory *w, uint32_t nodes, uint32_t at, double most, double least)
{
    if (at == SINK) return most;
    for (; w->next[at] < nodes; w->next[at]++) {
        uint32_t to = w->next[at];
        if (w->room[at][to] <= least || w->level[to] != w->level[at] + 1) continue;
        double sent = push(w, nodes, to, fmin(most, w->room[at][to]), least);
        if (sent <= least) continue;
        w->room[at][to] -= sent;
        w->room[to][at] += sent;
        return sent;
    }
    return 0;
}

void layers_flow(const struct layers_problem *p, struct layers_memory *work,
                 struct layers_layout *layout)
{
    struct layers_memory *w = work;
    uint32_t nodes = 2 + 2 * layout->part_count;
    double largest = 0;
    build(p, w, layout);
    for (uint32_t i = 0; i < layout->part_count; i++)
        largest = fmax(largest, w->room[in_node(i)][out_node(i)]);
    double least = largest * FLOW_MIN;
    layout->rate_s = 0;
    while (layer_out(w, nodes, least)) {
        memset(w->next, 0, sizeof w->next);
        for (double sent; (sent = push(w, nodes, SOURCE, DBL_MAX / 8, least)) > least;)
            layout->rate_s += sent;
    }
    layout->found = layout->rate_s > 0;
    for (uint32_t i = 0; i < layout->part_count; i++) {
        /* The residual capacity backwards is the flow. */
        layout->flow_in[i] = w->room[in_node(i)][SOURCE];
        layout->flow_out[i] = w->room[SINK][out_node(i)];
        for (uint32_t j = 0; j < layout->part_count; j++)
            layout->flow[i][j] = i == j ? 0 : w->room[in_node(j)][out_node(i)];
    }
}
