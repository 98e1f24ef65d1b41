/* sched_yield.c - who runs gives way, before anybody is admitted: to his slice, to what he was admitted
 * for, and, with rows that preempt, to who waits with a better rank. */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

void sched_return(struct scheduler *s)
{
    uint32_t slice = s->rows.chunk->slice_tokens;
    bool (*outgrown)(void *, const struct step_session *) = s->rows.admit->outgrown;
    if (sched_queued(s) == 0) slice = 0;
    if (!slice && !outgrown) return;
    LIST_EACH_SAFE (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (x->held) continue;
        if (slice && session_generated(x) - x->slice_from >= slice) {
            sched_park(s, x);
        } else if (outgrown) {
            struct step_session view = sched_view(s, x);
            if (outgrown(s->admit_state, &view)) sched_give_up(s, x, NULL);
        }
    }
}

#define LOSSES_MAX 3

/* It lost its pages so often that it keeps its place until it is further than it ever was: where
 * ranks age, two that take each other's place would otherwise compute the same tokens for ever. */
static bool catches_up(const struct session *x)
{
    return x->preemptions >= LOSSES_MAX && x->computed <= x->reached;
}

/* The running session with the worst rank that yields to `w`; NULL: there is none. */
static struct session *who_yields(struct scheduler *s, const struct session *w, int64_t now_us)
{
    struct session *worst = NULL;
    LIST_EACH (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (session_stands(x) || catches_up(x)) continue;
        if (!wait_before(&w->wait, &x->wait, now_us)) continue;
        if (order_rank_at(&w->wait.rank, now_us) >= order_rank_at(&x->wait.rank, now_us)) continue;
        if (worst && wait_before(&x->wait, &worst->wait, now_us)) continue;
        if (s->rows.order->yields) {
            struct step_session view = sched_view(s, x);
            if (!s->rows.order->yields(s->order_state, &view)) continue;
        }
        worst = x;
    }
    return worst;
}

static void rank_running(struct scheduler *s, int64_t now_us)
{
    LIST_EACH (&s->running, node) {
        struct session *x = SESSION_OF(node);
        struct step_session view = sched_view(s, x);
        x->wait.id = x->id;
        order_rank_of(s->rows.order, s->order_state, &view, now_us, &x->wait.rank);
    }
}

void sched_reorder(struct scheduler *s, int64_t now_us)
{
    uint32_t places = s->config.seqs_max - s->counts.running, tokens = 0;
    if (s->counts.running > 0) rank_running(s, now_us);
    sched_sum_demand(s);
    while (s->aside_count < SCHED_ASIDE_MAX && tokens < s->config.batch_tokens_max) {
        struct session *w = sched_next_waiting(s, now_us);
        if (!w) break;
        struct sched_need need;
        uint32_t hits;
        bool fits = sched_find_need(s, w, &need, &hits);
        if (places > 0 && fits) {
            places--;
            tokens += w->total - min_u32(w->total - 1, session_known(w));
            sched_add_demand(s, w);
            sched_set_aside(s, w);
            continue;
        }
        if (!fits && sched_reclaim(s, w)) continue;
        struct session *out = who_yields(s, w, now_us);
        if (!out) break;
        if (fits) {
            sched_park(s, out);
        } else if (!sched_give_up(s, out, w)) {
            break;
        }
        places++;
        sched_sum_demand(s);
        for (uint32_t i = 0; i < s->aside_count; i++)
            sched_add_demand(s, s->aside[i]);
    }
    sched_put_back(s);
}
