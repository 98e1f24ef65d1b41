/* sched_round.c - splits all waiting sessions into batches at once, then admits batch by batch.
 *
 * Most admit policies decide on one session at a time, whenever there is a place. A policy that
 * forms batches is shown all waiting sessions, once, when the engine is free; its batches then run
 * one after the other. Rounds keep that fair: all members of a round run before any session that
 * came later, whatever the order of its batches.
 *
 * A pool holds ADMIT_POOL_MAX sessions, the first in the order of fair and order policies. */
#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sched_round_init(struct scheduler *s)
{
    struct sched_round *r = &s->round;
    if (!s->policies.admit->batch) return 0;
    uint64_t most = (uint64_t)s->config.waiting_max + s->config.seqs_max;
    r->capacity = (uint32_t)min_u64(most, ADMIT_POOL_MAX);
    r->member = calloc(r->capacity, sizeof(struct session *));
    r->candidate = calloc(r->capacity, sizeof *r->candidate);
    r->batch = calloc(r->capacity, sizeof *r->batch);
    return r->member && r->candidate && r->batch ? 0 : -ENOMEM;
}

void sched_round_fini(struct scheduler *s)
{
    free(s->round.member);
    free(s->round.candidate);
    free(s->round.batch);
}

static struct admit_candidate candidate_of(struct scheduler *s, struct session *x)
{
    struct step_session view = sched_view(s, x);
    return (struct admit_candidate){ .tokens = x->total,
                                     .uncached = view.uncached,
                                     .output = view.slice_left,
                                     .pages = sched_whole_pages(
                                         s, sched_units_of(&s->config, x->total + view.slice_left,
                                                           view.uncached)) };
}

/* Sorts the members by batch, and within one in the order of the queue: a counting sort. Before it
 * `batch` holds the batch that the policy gave to each member. */
static void sort_members(struct sched_round *r)
{
    struct session *by_queue[ADMIT_POOL_MAX];
    uint32_t of[ADMIT_POOL_MAX], from[ADMIT_POOL_MAX + 1] = { 0 };
    memcpy(by_queue, r->member, r->count * sizeof *by_queue);
    memcpy(of, r->batch, r->count * sizeof *of);
    for (uint32_t i = 0; i < r->count; i++) {
        must(of[i] < r->count);
        from[of[i] + 1]++;
    }
    for (uint32_t b = 0; b < r->count; b++)
        from[b + 1] += from[b];
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t at = from[of[i]]++;
        r->member[at] = by_queue[i];
        r->batch[at] = of[i];
        by_queue[i]->round = at + 1;
    }
}

static void form(struct scheduler *s, int64_t now_us)
{
    struct sched_round *r = &s->round;
    r->next = r->open_end = 0;
    r->count = sched_first_waiting(s, now_us, r->capacity, r->member);
    if (r->count == 0) return;
    for (uint32_t i = 0; i < r->count; i++)
        r->candidate[i] = candidate_of(s, r->member[i]);
    uint64_t kept = s->memory.kept; /* of ended sessions: they are being copied elsewhere */
    struct admit_pool pool = {
        .candidate = r->candidate,
        .count = r->count,
        .pages = s->config.pages - (uint32_t)min_u64(kept, s->config.pages),
        .seqs_max = max_u32(s->config.seqs_max - s->counts.running, 1), /* those stand */
        .batch_tokens_max = s->config.batch_tokens_max,
        .perf = s->perf,
    };
    s->policies.admit->batch(&pool, r->batch);
    sort_members(r);
}

static void skip_left(struct sched_round *r)
{
    while (r->next < r->count && !r->member[r->next])
        r->next++;
}

void sched_round_open(struct scheduler *s, int64_t now_us)
{
    struct sched_round *r = &s->round;
    /* If all members of a batch have left or stand, the batch behind it opens. */
    while (!sched_round_head(s)) {
        skip_left(r);
        if (r->next == r->count) form(s, now_us);
        if (r->count == 0) return;
        r->open_end = r->next;
        while (r->open_end < r->count && r->batch[r->open_end] == r->batch[r->next])
            r->open_end++;
    }
}

struct session *sched_round_head(struct scheduler *s)
{
    struct sched_round *r = &s->round;
    for (; r->next < r->open_end; r->next++) {
        struct session *x = r->member[r->next];
        if (x && !session_stands(x)) return x;
        if (x) sched_round_leave(s, x);
    }
    return NULL;
}

void sched_round_leave(struct scheduler *s, struct session *x)
{
    if (x->round == 0) return;
    s->round.member[x->round - 1] = NULL;
    x->round = 0;
}

bool sched_round_reclaim(struct scheduler *s)
{
    struct session *last = NULL;
    LIST_EACH (&s->parked, node) {
        struct session *x = SESSION_OF(node);
        /* A session without a round runs after all that have one. */
        bool open = x->round > 0 && x->round <= s->round.open_end;
        if (x->held || open) continue;
        if (!last || last->round > 0) {
            if (!last || x->round == 0 || x->round > last->round) last = x;
        }
    }
    return last && sched_give_up(s, last, NULL);
}

bool sched_round_check(const struct scheduler *s)
{
    const struct sched_round *r = &s->round;
    for (uint32_t i = r->next; i < r->count; i++) {
        const struct session *x = r->member[i];
        if (x && (x->round != i + 1 || x->state != SESSION_WAITING)) return false;
    }
    return r->next <= r->count && r->open_end <= r->count;
}
