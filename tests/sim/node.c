/* node.c - keeps a node's clocks and its stops. */
#include "tests/sim/node.h"

#include "tests/sim/world.h"

#define BOOTED_S 1000000 /* longest time that a machine has been up */
#define FAST_PPM 2000    /* ten times the drift of a disciplined clock */
#define DATE_OFF_US (3600 * SECOND)
#define JITTER_US (3 * MS)

static int64_t both_ways(struct rng *rng, int64_t most)
{
    return (int64_t)rng_below(rng, (uint64_t)(2 * most + 1)) - most;
}

void node_start(struct world *w, struct node *n)
{
    struct rng *rng = &w->rng_nodes;
    *n = (struct node){ .boot = rng_u64(rng),
                        .since_us = w->time.now_us,
                        .mono_us = SECOND * (1 + (int64_t)rng_below(rng, BOOTED_S)) };
    int64_t fast_ppm = both_ways(rng, FAST_PPM), date_off_us = both_ways(rng, DATE_OFF_US);
    if (!w->faults.on[FAULT_CLOCK_SKEW]) return;
    n->fast_ppm = fast_ppm;
    n->date_off_us = date_off_us;
}

int64_t node_mono_us(const struct world *w, const struct node *n)
{
    int64_t passed_us = w->time.now_us - n->since_us;
    return n->mono_us + passed_us + passed_us * n->fast_ppm / 1000000;
}

int64_t node_date_us(const struct world *w, const struct node *n)
{
    return w->time.now_us + n->date_off_us;
}

struct fleet_moment node_moment(const struct world *w, const struct node *n)
{
    return (struct fleet_moment){ .boot = n->boot,
                                  .mono_us = node_mono_us(w, n),
                                  .wall_us = node_date_us(w, n) };
}

int64_t node_world_us(const struct node *n, int64_t mono_us)
{
    int64_t passed_us = mono_us - n->mono_us;
    return n->since_us + passed_us - passed_us * n->fast_ppm / (1000000 + n->fast_ppm);
}

void node_step_date(struct world *w, struct node *n, int64_t by_us)
{
    timeline_note(&w->time, "date_steps", w->name, by_us);
    n->date_off_us += by_us;
}

bool node_is_stopped(const struct world *w, const struct node *n)
{
    return w->time.now_us < n->stopped_until;
}

void node_stop(struct world *w, struct node *n, int64_t for_us)
{
    if (node_is_stopped(w, n)) return;
    timeline_note(&w->time, "stopped", w->name, for_us);
    n->stopped_until = w->time.now_us + for_us;
    if (for_us >= NODE_NOTICED_US) n->stopped_us += for_us;
}

bool node_defers(struct world *w, const struct node *n, bool jitter)
{
    if (!node_is_stopped(w, n)) return false;
    int64_t later_us = jitter ? (int64_t)rng_below(&w->rng_nodes, (uint64_t)JITTER_US) : 0;
    timeline_again(&w->time, n->stopped_until + later_us);
    return true;
}
