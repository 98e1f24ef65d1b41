/* llumnix.c - moves the shortest session from the least free instance to the freest.
 *
 *     freeness = (free pages - pages on their way here - the queue head's demand) / running sessions
 *
 * Instances below `low`, least free first, are paired with those above it, freest first; each pair
 * moves one session a look: the one with the fewest tokens, because its copy is the cheapest and
 * ends soonest. A draining instance has a freeness of minus infinity, so that it is emptied. An
 * instance with no movable session is in no pair: it would take the freest target from another
 * source.
 *
 * Llumnix (OSDI'24) section 4.4 and the defaults of its code. Three deviations. Pages that are on
 * their way to a target count as taken at once, else two looks in a row would fill it twice. A
 * session moves only if the target is at least as free with it as the source is now: two equal
 * instances would else send it to and fro. And instances of equal freeness are taken in the order
 * of their ids, so that two deciders with one view decide alike.
 */
#include "base/core/bits.h"
#include "policies/migrate/migrate.h"

#include <math.h>

struct ranked {
    const struct migrate_instance *in;
    double freeness;
};

/* Inserts one instance into the sorted list: there are mostly few beyond the threshold. */
static void rank(struct ranked *list, uint32_t *count, struct ranked one, bool least_first)
{
    uint32_t at = *count;
    while (at > 0) {
        double other = list[at - 1].freeness;
        bool stays = least_first ? other < one.freeness : other > one.freeness;
        if (stays) break;
        if (!(other < one.freeness) && !(other > one.freeness) && list[at - 1].in->id < one.in->id)
            break;
        list[at] = list[at - 1];
        at--;
    }
    list[at] = one;
    ++*count;
}

static uint32_t session_pages(const struct migrate_view *view, const struct migrate_session *s)
{
    return ceil_div_u32(s->tokens + 1, view->page_tokens);
}

/* Returns true if the target would be at least as free with the session as the source is now. */
static bool improves(const struct migrate_view *view, const struct ranked *from,
                     const struct ranked *to, const struct migrate_session *s)
{
    struct migrate_instance after = *to->in;
    after.receiving_pages += (double)session_pages(view, s);
    after.running++;
    double freeness = migrate_freeness(&after);
    return freeness >= 0 && freeness >= from->freeness;
}

static const struct migrate_session *shortest(const struct migrate_view *view,
                                              const struct ranked *from, const struct ranked *to)
{
    const struct migrate_session *best = NULL;
    for (uint32_t i = 0; i < from->in->session_count; i++) {
        const struct migrate_session *s = &from->in->session[i];
        if (!s->movable || (best && s->tokens > best->tokens)) continue;
        if (best && s->tokens == best->tokens && s->id > best->id) continue;
        if (improves(view, from, to, s)) best = s;
    }
    return best;
}

static bool can_give(const struct migrate_instance *in)
{
    for (uint32_t i = 0; i < in->session_count; i++)
        if (in->session[i].movable) return true;
    return false;
}

static void decide(void *state, const struct migrate_config *config,
                   const struct migrate_view *view, int64_t now_us, struct rng *rng,
                   struct migrate_verdict *ret)
{
    (void)state, (void)rng;
    struct ranked from[MIGRATE_INSTANCES_MAX], to[MIGRATE_INSTANCES_MAX];
    uint32_t from_count = 0, to_count = 0;
    ret->count = 0;
    for (uint32_t i = 0; i < view->instance_count && i < MIGRATE_INSTANCES_MAX; i++) {
        const struct migrate_instance *in = &view->instance[i];
        if (!in->present) continue;
        struct ranked one = { in, migrate_freeness(in) };
        if (one.freeness < config->low) {
            if (can_give(in)) rank(from, &from_count, one, true);
        } else if (in->accepts) {
            rank(to, &to_count, one, false);
        }
    }
    ret->again_us = now_us + config->period_us;
    if (!(view->link_bytes_s > 0)) return;
    uint32_t pairs = min_u32(from_count, to_count);
    for (uint32_t i = 0; i < pairs && ret->count < MIGRATE_MOVES_MAX; i++) {
        const struct migrate_session *s = shortest(view, &from[i], &to[i]);
        if (!s) continue;
        struct migrate_move *move = &ret->move[ret->count++];
        *move =
            (struct migrate_move){ .session = s->id, .from = from[i].in->id, .to = to[i].in->id };
        migrate_estimate(config, view, s->tokens, from[i].in->step_s, move);
    }
}

const struct migrate_policy migrate_llumnix = {
    .name = "llumnix",
    .about = "pairs the least free instance with the freest and moves the shortest session live",
    .source = "Llumnix (OSDI'24) section 4.4",
    .decide = decide,
};
