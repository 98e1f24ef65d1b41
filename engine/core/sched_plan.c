/* sched_plan.c - fills the batch of a step, stage by stage.
 *
 *     ends ─► running sessions that give way ─► decoding, guesses ─► begun prompts ─► admission, open or closed
 *
 * Nobody is admitted in a step in which a session lost its pages: they must not go to a newcomer. */
#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#define BATCH_MEAN_RATE 0.02 /* of the running mean of sessions in a step */
#define LOSSES_MAX 3
#define CHECK_PAGES_PER_STEP 256 /* a debug build recounts so many pages a step on average */

/* ---- the batch ---------------------------------------------------------------------------- */

static void batch_add(struct scheduler *s, struct session *session, uint32_t count)
{
    struct sched_batch *b = &s->batch;
    must(b->count < s->config.seqs_max && count > 0);
    const uint32_t end = session->computed + count;
    const uint32_t sealed = session->sealed_pages * s->config.page_tokens;
    const uint32_t score_to = min_u32(end + 1, session->score_end);
    uint32_t scored = score_to > session->score_next ? score_to - session->score_next : 0;
    b->item[b->count++] = (struct sched_item){
        .session = session,
        .score_from = session->score_next,
        .scored = scored,
        .start = session->computed,
        .count = count,
        .import_from = session->imported_tokens ? session->import_from : session->computed,
        .stored = sealed > session->computed ? min_u32(sealed - session->computed, count) : 0,
        .sample = session->computed + count == session->total,
    };
    session->item = b->count;
    b->tokens += count;
    b->score_rows += sched_item_rows_before(&b->item[b->count - 1]);
}

void sched_batch_remove(struct scheduler *s, struct session *x)
{
    if (x->item == 0) return;
    struct sched_batch *b = &s->batch;
    uint32_t at = x->item - 1;
    b->tokens -= b->item[at].count;
    b->score_rows -= sched_item_rows_before(&b->item[at]);
    b->count--;
    for (uint32_t i = at; i < b->count; i++) {
        b->item[i] = b->item[i + 1];
        b->item[i].session->item = i + 1;
    }
    x->item = 0;
}

void sched_batch_shape(struct sched_batch *b)
{
    b->shape = (struct perf_shape){ 0 };
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t start = b->item[i].start, n = b->item[i].count;
        if (n == 1 + b->item[i].drafted) {
            b->shape.decoding_seqs += (uint32_t)n;
            b->shape.kv_tokens_decoding += start + 1;
        } else {
            b->shape.prefill_tokens += (uint32_t)n;
            b->shape.prefill_chunks++;
        }
        b->shape.kv_tokens_read += n * start + n * (n + 1) / 2;
    }
}

/* ---- running sessions that give way --------------------------------------------------------- */

static void return_running(struct scheduler *s)
{
    uint32_t slice = s->policies.chunk->slice_tokens;
    bool (*outgrown)(void *, const struct step_session *) = s->policies.admit->outgrown;
    if (sched_queued_count(s) == 0) slice = 0;
    if (!slice && !outgrown) return;
    LIST_EACH_SAFE (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (x->held) continue;
        if (slice && session_generated(x) - x->slice_from >= slice) {
            sched_park(s, x);
        } else if (outgrown) {
            struct step_session view = sched_view(s, x);
            if (outgrown(s->memory.admit_state, &view)) sched_give_up(s, x, NULL);
        }
    }
}

/* Returns true if the session lost its pages so often that it keeps its place until it has computed
 * more than ever before: where ranks age, two sessions that take each other's place would otherwise
 * compute the same tokens for ever. */
static bool catches_up(const struct session *x)
{
    return x->preemptions >= LOSSES_MAX && x->computed <= x->reached;
}

/* Returns the running session with the worst rank that yields to `w`; NULL: there is none. */
static struct session *yielding_session(struct scheduler *s, const struct session *w,
                                        int64_t now_us)
{
    struct session *worst = NULL;
    LIST_EACH (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (session_stands(x) || catches_up(x)) continue;
        if (!wait_before(&w->wait, &x->wait, now_us)) continue;
        if (order_rank_at(&w->wait.rank, now_us) >= order_rank_at(&x->wait.rank, now_us)) continue;
        if (worst && wait_before(&x->wait, &worst->wait, now_us)) continue;
        if (s->policies.order->yields) {
            struct step_session view = sched_view(s, x);
            if (!s->policies.order->yields(s->queue.order_state, &view)) continue;
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
        order_rank_of(s->policies.order, s->queue.order_state, &view, now_us, &x->wait.rank);
    }
}

static void reorder_running(struct scheduler *s, int64_t now_us)
{
    uint32_t places = s->config.seqs_max - s->counts.running, tokens = 0;
    if (s->counts.running > 0) rank_running(s, now_us);
    sched_sum_demand(s);
    while (s->queue.aside_count < SCHED_ASIDE_MAX && tokens < s->config.batch_tokens_max) {
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
        struct session *out = yielding_session(s, w, now_us);
        if (!out) break;
        if (fits) {
            sched_park(s, out);
        } else if (!sched_give_up(s, out, w)) {
            break;
        }
        places++;
        sched_sum_demand(s);
        for (uint32_t i = 0; i < s->queue.aside_count; i++)
            sched_add_demand(s, s->queue.aside[i]);
    }
    sched_put_back(s);
}

/* ---- the stages of a plan ------------------------------------------------------------------ */

static void plan_decoding(struct scheduler *s)
{
    /* A preempted session leaves the list, so the walk starts again; those that have an item
     * are passed over. */
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session->total - session->computed != 1 || session->item) continue;
            if (session_stands(session)) continue;
            uint32_t before = s->counts.running;
            if (sched_force_room(s, session, session->total)) batch_add(s, session, 1);
            changed = s->counts.running != before;
            if (changed) break;
        }
    }
}

static void plan_begun(struct scheduler *s)
{
    if (s->batch.count == s->counts.running) return; /* all decode */
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session_stands(session) || session->item) continue;
            uint32_t n = sched_chunk_tokens(s, session);
            if (n == 0 && session_scores(session)) continue; /* others need no rows of logits */
            if (n == 0) return;
            uint32_t before = s->counts.running;
            if (sched_force_room(s, session, session->computed + n)) batch_add(s, session, n);
            changed = s->counts.running != before;
            if (changed) break;
        }
    }
}

/* Returns the parked session with the best rank among those in a queue; NULL: none. */
static struct session *best_parked(struct scheduler *s, int64_t now_us)
{
    struct session *best = NULL;
    LIST_EACH (&s->parked, node) {
        struct session *x = SESSION_OF(node);
        if (!x->wait.slot) continue;
        if (!best || wait_before(&x->wait, &best->wait, now_us)) best = x;
    }
    return best;
}

/* Makes room for a session that was just admitted: from pages of paused sessions, then, if it is
 * the only one that runs, of parked ones, whatever the preempt policy says. Returns false if
 * it needs more than the admit policy estimated; the session then waits again. */
static bool first_room(struct scheduler *s, struct session *x, uint32_t upto)
{
    bool room = sched_make_room(s, x, upto);
    for (struct session *out; !room && (out = sched_victim(s, true));) {
        sched_give_up(s, out, NULL);
        room = sched_make_room(s, x, upto);
    }
    if (!room && s->counts.running == 1) room = sched_force_room(s, x, upto);
    if (!room && x->state == SESSION_RUNNING) sched_give_up(s, x, NULL);
    return room;
}

/* Takes pages for imported tokens, less those that the cache held already. Until the first commit
 * their K and V can be written again; a session that is preempted later recomputes them. */
static bool import(struct scheduler *s, struct session *x)
{
    if (x->imported_tokens <= x->computed || x->imported_from > x->computed) {
        x->imported_tokens = 0;
        return true;
    }
    if (!first_room(s, x, x->imported_tokens)) return false;
    x->import_from = x->computed;
    x->computed = x->imported_tokens;
    return true;
}

/* Puts the first chunk of an admitted session into the batch. Returns false if this step can take
 * no further session. */
static bool give_first_tokens(struct scheduler *s, struct session *x)
{
    if (!import(s, x)) return false;
    uint32_t n = sched_chunk_tokens(s, x);
    if (n == 0) return false; /* no time */
    if (!first_room(s, x, x->computed + n)) return false;
    batch_add(s, x, n);
    sched_add_demand(s, x);
    return true;
}

static void plan_waiting(struct scheduler *s, int64_t now_us)
{
    bool full = s->counts.running >= s->config.seqs_max;
    if (s->counts.waiting == 0 || (full && s->counts.paused == 0)) return;
    sched_rank_unranked(s, now_us);
    sched_sum_demand(s);
    bool parked_only = false; /* the first in order does not fit; parked ones may go on */
    while (s->batch.tokens < s->config.batch_tokens_max) {
        struct session *x = parked_only ? best_parked(s, now_us) : sched_next_waiting(s, now_us);
        if (!x) break;
        struct sched_need need;
        uint32_t hits;
        bool place = s->counts.running < s->config.seqs_max;
        if (place && x->computed + x->imported_tokens == 0 && sched_chunk_tokens(s, x) == 0) break;
        if (!parked_only && sched_swap_waits(s, x)) {
            parked_only = true;
            continue;
        }
        if (place && sched_find_need(s, x, &need, &hits) &&
            sched_admit(s, x, &need, hits, now_us)) {
            if (!give_first_tokens(s, x)) break;
            continue;
        }
        struct session *out = sched_victim(s, true);
        if (out) { /* a paused session makes way for one that can run */
            sched_give_up(s, out, NULL);
            sched_sum_demand(s);
            continue;
        }
        if (!place) break;
        if (!parked_only && sched_reclaim(s, x)) continue;
        if (parked_only) break;
        if (s->policies.admit->first_fit && s->queue.aside_count < SCHED_ASIDE_MAX) {
            sched_set_aside(s, x);
        } else {
            parked_only = true;
        }
    }
    sched_put_back(s);
}

static bool others_take_steps(const struct scheduler *s)
{
    LIST_EACH (&s->running, node)
        if (!session_stands(SESSION_OF(node))) return true;
    return false;
}

/* Admits members of the open batch; a new one opens when nothing runs. A member that does not fit,
 * because pages of paused or held sessions are missing, waits for the places of those before it. */
static void plan_closed(struct scheduler *s, int64_t now_us)
{
    if (s->counts.waiting == 0) return;
    sched_rank_unranked(s, now_us);
    sched_sum_demand(s);
    if (!others_take_steps(s)) sched_round_open(s, now_us);
    for (struct session *x;
         s->batch.tokens < s->config.batch_tokens_max && (x = sched_round_head(s));) {
        struct sched_need need;
        uint32_t hits;
        bool place = s->counts.running < s->config.seqs_max;
        if (place && x->computed + x->imported_tokens == 0 && sched_chunk_tokens(s, x) == 0) break;
        if (place && sched_find_need(s, x, &need, &hits) &&
            sched_admit(s, x, &need, hits, now_us)) {
            if (!give_first_tokens(s, x)) break;
            continue;
        }
        struct session *out = sched_victim(s, true);
        if (out) { /* a paused session makes way */
            sched_give_up(s, out, NULL);
            sched_sum_demand(s);
        } else if (!place || !sched_round_reclaim(s)) {
            break;
        }
    }
}

const struct sched_batch *sched_plan(struct scheduler *s, int64_t now_us,
                                     const struct perf_coef *perf)
{
    must(!s->planned);
    struct sched_batch *b = &s->batch;
    s->perf = *perf;
    now_us = sched_clock(s, now_us);
    sched_chunk_begin(s);
    sched_memory_perf(s);
    s->batch_mean += BATCH_MEAN_RATE * ((double)s->counts.running - s->batch_mean);
    b->count = b->tokens = b->score_rows = b->move_count = b->swapped_out = b->swapped_in = 0;
    sched_end_due(s, now_us);
    sched_refresh_ranks(s, now_us);
    if (s->policies.chunk->slice_tokens || s->policies.admit->outgrown) return_running(s);
    const bool closed = s->policies.admit->batch != NULL; /* no session takes another's place */
    if (s->policies.order->preempts && !closed && s->counts.waiting > 0) reorder_running(s, now_us);

    uint64_t preempted = s->counts.preemptions;
    plan_decoding(s);
    sched_draft_extend(s);
    plan_begun(s);
    /* Pages lost in this step must not go to a newcomer. */
    if (s->counts.preemptions == preempted) {
        if (closed) {
            plan_closed(s, now_us);
        } else {
            plan_waiting(s, now_us);
        }
    }
    if (s->policies.order->swaps_early) sched_swap_early(s);
    sched_batch_shape(b);
    s->planned = b->count > 0;
#ifdef MUSTER_DEBUG
    /* A large pool is not checked after every step, so that a step costs no more than in a small
     * one. */
    if (++s->unchecked_steps > s->memory.pool.total / CHECK_PAGES_PER_STEP) {
        s->unchecked_steps = 0;
        must(sched_check(s));
    }
#endif
    return b;
}
