/* sched_pages.c - pages taken, given up, swapped out and in.
 *
 * Moves are written down in the order in which they were decided and done in that order before the
 * step, so that a page may be swapped out, taken by another and filled from the swap space in one
 * plan. A session is swapped whole: its shared pages are copied too, because nothing promises that
 * they are still there when it comes back. What is there then is shared again instead of copied.
 */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

uint32_t sched_pages_for(const struct scheduler *s, uint32_t tokens)
{
    return ceil_div_u32(tokens, s->config.page_tokens);
}

static void add_move(struct scheduler *s, enum sched_move_kind kind, uint32_t from, uint32_t to)
{
    must(s->batch.move_count < s->moves_max);
    s->batch.move[s->batch.move_count++] = (struct sched_move){ kind, from, to };
}

void sched_release_pages(struct scheduler *s, struct session *x)
{
    /* Tail first: under a clock of releases the tail is then the first to be evicted. */
    while (x->page_count > 0) {
        uint32_t page = x->pages[--x->page_count];
        if (x->swapped) {
            s->swap_free[s->swap_free_count++] = page;
        } else {
            kv_index_release(&s->index, page);
        }
    }
    x->swapped = false;
    x->computed = x->sealed_pages = 0;
}

/* Only a page that was found whole, for a session short of its last token, is written while shared. */
static bool copies_first(const struct scheduler *s, const struct session *x)
{
    uint32_t pt = s->config.page_tokens;
    return x->computed < x->sealed_pages * pt &&
           kv_pool_shared(&s->pool, x->pages[x->computed / pt]);
}

bool sched_make_room(struct scheduler *s, struct session *x, uint32_t upto)
{
    bool copy = copies_first(s, x);
    uint32_t whole = max_u32(sched_pages_for(s, upto), x->page_count);
    if (kv_index_available(&s->index) < whole - x->page_count + copy) return false;
    if (copy) {
        uint32_t first = x->computed / s->config.page_tokens, from = x->pages[first];
        if (s->batch.move_count == s->moves_max) return false;
        x->pages[first] = kv_index_take(&s->index);
        add_move(s, SCHED_COPY, from, x->pages[first]);
        s->counts.pages_copied++;
        kv_index_release(&s->index, from);
    }
    while (x->page_count < whole)
        x->pages[x->page_count++] = kv_index_take(&s->index);
    return true;
}

uint32_t sched_find_pages(struct scheduler *s, struct session *x, uint32_t *ret_pages)
{
    *ret_pages = 0;
    if (!s->config.prefix_cache) return 0;
    session_extend_keys(x, s->config.key_seed);
    *ret_pages = kv_index_match(&s->index, x->salt, x->keys, x->ids,
                                x->total / s->config.page_tokens, s->match);
    return min_u32(*ret_pages * s->config.page_tokens, x->total - 1);
}

/* ---- the batch, from which a victim goes too ------------------------------------------------- */

void sched_batch_remove(struct scheduler *s, struct session *x)
{
    if (x->item == 0) return;
    struct sched_batch *b = &s->batch;
    uint32_t at = x->item - 1;
    b->tokens -= b->item[at].count;
    b->count--;
    for (uint32_t i = at; i < b->count; i++) {
        b->item[i] = b->item[i + 1];
        b->item[i].session->item = i + 1;
    }
    x->item = 0;
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void swap_out(struct scheduler *s, struct session *x)
{
    uint32_t full = sched_pages_for(s, x->computed);
    while (x->page_count > full)
        kv_index_release(&s->index, x->pages[--x->page_count]);
    for (uint32_t i = full; i-- > 0;) {
        uint32_t place = s->swap_free[--s->swap_free_count];
        add_move(s, SCHED_SWAP_OUT, x->pages[i], place);
        kv_index_release(&s->index, x->pages[i]);
        x->pages[i] = place;
    }
    x->swapped = true;
    s->counts.swaps++;
    s->batch.swapped_out += full;
    s->counts.swapped_out += full;
}

bool sched_swap_in(struct scheduler *s, struct session *x)
{
    uint32_t hits, whole = x->computed / s->config.page_tokens;
    sched_find_pages(s, x, &hits);
    if (hits > whole) hits = whole;
    uint32_t idle_hits = 0, missing = x->page_count - hits;
    for (uint32_t i = 0; i < hits; i++)
        idle_hits += s->pool.refs[s->match[i]] == 0;
    if (kv_index_available(&s->index) < idle_hits + missing) return false;
    if (s->batch.move_count + missing > s->moves_max) return false;
    for (uint32_t i = 0; i < hits; i++) {
        kv_index_hit(&s->index, s->match[i]);
        s->swap_free[s->swap_free_count++] = x->pages[i];
        x->pages[i] = s->match[i];
    }
    for (uint32_t i = hits; i < x->page_count; i++) {
        uint32_t page = kv_index_take(&s->index);
        must(page != KV_PAGE_NONE);
        add_move(s, SCHED_SWAP_IN, x->pages[i], page);
        s->swap_free[s->swap_free_count++] = x->pages[i];
        x->pages[i] = page;
    }
    x->swapped = false;
    s->batch.swapped_in += missing;
    s->counts.swapped_in += missing;
    return true;
}

static enum preempt_how how_to(struct scheduler *s, struct session *x, struct session *newcomer)
{
    struct step_session victim = sched_view(s, x), other;
    if (newcomer) other = sched_view(s, newcomer);
    uint32_t pages = sched_pages_for(s, x->computed);
    double tokens = (double)x->computed;
    struct preempt_view view = {
        .victim = &victim,
        .newcomer = newcomer ? &other : NULL,
        .can_swap =
            pages > 0 && pages <= s->swap_free_count && s->batch.move_count + pages <= s->moves_max,
        .swap_s = 2 * (double)pages * s->config.swap_page_s,
        .recompute_s = tokens * (s->perf.b + s->perf.e * tokens / 2),
        .running = s->counts.running,
    };
    enum preempt_how how =
        s->rows.preempt->how ? s->rows.preempt->how(&view) : preempt_cheaper(&view);
    if (how == PREEMPT_SWAP && !view.can_swap) how = PREEMPT_RECOMPUTE;
    if (how == PREEMPT_NOT && !newcomer) how = PREEMPT_RECOMPUTE;
    return how;
}

/* From running to waiting, with whatever pages it has that hold something. */
static void stop_running(struct scheduler *s, struct session *x)
{
    if (x->imported_tokens > 0) sched_release_pages(s, x); /* nothing was written there yet */
    sched_batch_remove(s, x);
    x->state = SESSION_WAITING;
    x->waiting_us = s->now_us;
    s->counts.running--;
    s->counts.waiting++;
    s->tenant[x->tenant_slot].running--;
}

bool sched_give_up(struct scheduler *s, struct session *x, struct session *newcomer)
{
    enum preempt_how how = how_to(s, x, newcomer);
    if (how == PREEMPT_NOT) return false;
    bool ran = x->state == SESSION_RUNNING, had_pages = x->page_count > 0;
    if (ran) stop_running(s, x);
    x->reached = max_u32(x->reached, x->computed);
    if (how == PREEMPT_SWAP) {
        swap_out(s, x);
    } else {
        sched_release_pages(s, x);
    }
    x->preemptions += had_pages; /* who was admitted and found no room lost nothing */
    s->counts.preemptions += had_pages;
    list_remove(&x->link);
    list_push_front(&s->waiting, &x->link);
    sched_dequeue(s, x); /* its rank is another now */
    sched_enqueue_later(s, x);
    if (ran) sched_tell(s, x, (struct step_event){ .kind = STEP_PREEMPTED });
    return true;
}

void sched_park(struct scheduler *s, struct session *x)
{
    stop_running(s, x);
    list_remove(&x->link);
    list_push_back(x->page_count > 0 ? &s->parked : &s->waiting, &x->link);
    s->counts.parked++;
    sched_enqueue_later(s, x);
    sched_tell(s, x, (struct step_event){ .kind = STEP_PREEMPTED });
}

/* Who parks with the worst rank; those that parked in this plan, or whose reader is slow, are the
 * worst. */
static struct session *worst_parked(struct scheduler *s)
{
    struct session *worst = NULL;
    LIST_EACH (&s->parked, node) {
        struct session *x = SESSION_OF(node);
        if (x->held) continue;
        if (x->paused || list_linked(&x->unranked)) return x;
        if (!worst || wait_before(&worst->wait, &x->wait, s->now_us)) worst = x;
    }
    return worst;
}

bool sched_reclaim(struct scheduler *s, struct session *newcomer)
{
    struct session *x = worst_parked(s);
    if (!x || x == newcomer) return false;
    bool ranked = !x->paused && !list_linked(&x->unranked);
    if (ranked && !wait_before(&newcomer->wait, &x->wait, s->now_us)) return false;
    return sched_give_up(s, x, newcomer);
}

void sched_swap_early(struct scheduler *s)
{
    while (kv_index_available(&s->index) < s->config.seqs_max) {
        struct session *x = worst_parked(s);
        if (!x) return;
        uint32_t pages = sched_pages_for(s, x->computed);
        if (pages > s->swap_free_count || s->batch.move_count + pages > s->moves_max) return;
        if (!sched_give_up(s, x, NULL)) return;
    }
}

/* Whether `a` is a better victim than `b`. A paused session cannot use its pages now. */
static bool worse(struct scheduler *s, struct session *a, struct session *b)
{
    if (a->paused != b->paused) return a->paused;
    struct step_session va = sched_view(s, a), vb = sched_view(s, b);
    double ra = s->rows.preempt->rank(&va), rb = s->rows.preempt->rank(&vb);
    if (ra > rb || ra < rb) return ra > rb;
    if (a->arrival_us != b->arrival_us) return a->arrival_us > b->arrival_us;
    return a->id > b->id;
}

struct session *sched_victim(struct scheduler *s, bool paused_only)
{
    struct session *worst = NULL;
    LIST_EACH (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (x->held || (paused_only && !x->paused)) continue;
        if (!worst || worse(s, x, worst)) worst = x;
    }
    return worst;
}

bool sched_force_room(struct scheduler *s, struct session *x, uint32_t upto)
{
    while (!sched_make_room(s, x, upto)) {
        struct session *out = worst_parked(s);
        if (!out) out = sched_victim(s, false);
        sched_give_up(s, out, NULL);
        if (out == x) return false;
    }
    return true;
}
