/* spotserve.c - moves sessions off an instance within its notice, as late as is safe.
 *
 *     needs = copies under way from there / link + sum of copy_s over its sessions
 *     begins when needs * SLACK + RESERVE_S >= the time left
 *     then moves the session with the fewest tokens, if its copy ends in time, to the freest instance
 *
 * While there is time, sessions decode where they are: the machine is paid for, and some end by
 * themselves. Copies follow one another: begun all at once, they would share the link and all be
 * late. Shortest first saves the most outputs; a copy that cannot end in time is not begun, because
 * its bytes would delay others. An instance that drains without a known end begins at once. Only
 * draining instances are sources.
 *
 * The source is SpotServe (ASPLOS 2024), section 4: the interruption arranger's just-in-time use of
 * the grace period and recovery without recomputing. Deviations: whole sessions go to instances
 * that serve already, so there is no new parallel layout to fill (`muster plan move` plans that),
 * and copies are live.
 */
#include "base/core/bits.h"
#include "policies/migrate/migrate.h"

#include <math.h>

#define SLACK 1.5     /* copies grow while they are made, and wait for each other */
#define RESERVE_S 1.0 /* several looks, and the steps after which sessions stop */
#define QUEUE_S 0.2   /* copies that may wait for the link: about two looks */

/* One look, with the pages that targets have left after the moves decided so far. */
struct look {
    const struct migrate_config *config;
    const struct migrate_view *view;
    double room[MIGRATE_INSTANCES_MAX]; /* < 0: not a target */
    struct migrate_verdict *ret;
};

static double room_of(const struct migrate_instance *in)
{
    if (!in->present || !in->accepts || in->draining) return -1;
    return (double)in->pages_free - in->receiving_pages - (double)in->queue_pages;
}

static struct migrate_move estimate(const struct look *l, const struct migrate_instance *from,
                                    const struct migrate_session *s)
{
    struct migrate_move move = { .session = s->id, .from = from->id };
    migrate_estimate(l->config, l->view, s->tokens, from->step_s, &move);
    return move;
}

/* Returns the seconds for which copies under way occupy the link of `from`. */
static double under_way_s(const struct look *l, const struct migrate_instance *from)
{
    return from->sending_pages * l->view->page_bytes / l->view->link_bytes_s;
}

static bool is_time(const struct look *l, const struct migrate_instance *from, double left_s)
{
    double needs_s = under_way_s(l, from);
    for (uint32_t i = 0; i < from->session_count; i++)
        if (from->session[i].movable) needs_s += estimate(l, from, &from->session[i]).copy_s;
    return needs_s * SLACK + RESERVE_S >= left_s;
}

static bool is_chosen(const struct migrate_verdict *v, uint64_t session)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (v->move[i].session == session) return true;
    return false;
}

static const struct migrate_session *shortest(const struct look *l,
                                              const struct migrate_instance *from)
{
    const struct migrate_session *best = NULL;
    for (uint32_t i = 0; i < from->session_count; i++) {
        const struct migrate_session *s = &from->session[i];
        if (!s->movable || is_chosen(l->ret, s->id)) continue;
        if (best && s->tokens > best->tokens) continue;
        if (best && s->tokens == best->tokens && s->id > best->id) continue;
        best = s;
    }
    return best;
}

/* Returns the index of the instance with the most room, the least id on equal room; instance_count
 * if none has room for `pages`. */
static uint32_t freest(const struct look *l, double pages)
{
    const struct migrate_instance *in = l->view->instance;
    uint32_t best = l->view->instance_count;
    for (uint32_t i = 0; i < l->view->instance_count && i < MIGRATE_INSTANCES_MAX; i++) {
        bool first = best == l->view->instance_count;
        if (l->room[i] < pages || (!first && l->room[i] < l->room[best])) continue;
        if (!first && l->room[i] <= l->room[best] && in[i].id > in[best].id) continue;
        best = i;
    }
    return best;
}

/* Returns the next draining instance by id, whatever the order of the view; NULL after the last. */
static const struct migrate_instance *next_to_go(const struct migrate_view *v,
                                                 const struct migrate_instance *after)
{
    const struct migrate_instance *next = NULL;
    for (uint32_t i = 0; i < v->instance_count && i < MIGRATE_INSTANCES_MAX; i++) {
        const struct migrate_instance *in = &v->instance[i];
        if (!in->present || !in->draining || (after && in->id <= after->id)) continue;
        if (!next || in->id < next->id) next = in;
    }
    return next;
}

static void leave(struct look *l, const struct migrate_instance *from, double left_s)
{
    double busy_s = under_way_s(l, from);
    while (busy_s < QUEUE_S && l->ret->count < MIGRATE_MOVES_MAX) {
        const struct migrate_session *s = shortest(l, from);
        if (!s) return;
        struct migrate_move move = estimate(l, from, s);
        double pages = ceil_div_u32(s->tokens + 1, l->view->page_tokens);
        uint32_t to = freest(l, pages);
        if (busy_s + move.copy_s * SLACK > left_s || to == l->view->instance_count) return;
        move.to = l->view->instance[to].id;
        l->room[to] -= pages;
        l->ret->move[l->ret->count++] = move;
        busy_s += move.copy_s;
    }
}

static void decide(void *state, const struct migrate_config *config,
                   const struct migrate_view *view, int64_t now_us, struct rng *rng,
                   struct migrate_verdict *ret)
{
    (void)state, (void)rng;
    struct look l = { .config = config, .view = view, .ret = ret };
    ret->count = 0;
    ret->again_us = now_us + config->period_us;
    if (!(view->link_bytes_s > 0)) return;
    for (uint32_t i = 0; i < view->instance_count && i < MIGRATE_INSTANCES_MAX; i++)
        l.room[i] = room_of(&view->instance[i]);
    const struct migrate_instance *from = NULL;
    while ((from = next_to_go(view, from))) {
        bool told = from->leaves_us > 0;
        double left_s = told ? (double)(from->leaves_us - now_us) * 1e-6 : (double)INFINITY;
        if (!told || is_time(&l, from, left_s)) leave(&l, from, left_s);
    }
}

const struct migrate_policy migrate_spotserve = {
    .name = "spotserve",
    .about = "empties instances that are to go, in their notice and no sooner than it must",
    .source = "SpotServe (ASPLOS 2024) section 4",
    .decide = decide,
};
