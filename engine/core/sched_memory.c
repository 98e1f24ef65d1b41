/* sched_memory.c - takes, gives up and swaps KV pages; admits sessions.
 *
 * Moves are recorded in the order in which they were decided and done in that order before the
 * step, so that one plan may swap a page out, give it to another session and fill it from the swap
 * space. A session is swapped whole: its shared pages are copied too, because nothing guarantees
 * that they are still cached when it comes back. Pages that are cached then are shared again
 * instead of copied.
 */
#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#include <stdlib.h>

#define SWAP_FREE_PART 10 /* with less than this part of the swap space free no session begins */

int sched_memory_init(struct scheduler *s, struct err *err)
{
    const struct sched_config *c = &s->config;
    struct sched_memory *m = &s->memory;
    const uint32_t numbers = c->parts.window_tokens > 0 ? c->parts.numbers : c->pages;
    m->moves_max = c->swap_pages ? 2 * numbers : 0;
    s->batch.move = calloc((size_t)m->moves_max + 1, sizeof *s->batch.move);
    m->match = calloc(sched_pages_for(s, c->context_max), sizeof *m->match);
    m->swap_free = calloc((size_t)c->swap_pages + 1, sizeof *m->swap_free);
    m->admit_state = calloc(1, max_u32(s->policies.admit->state_size, 1));
    if (!s->batch.move || !m->match || !m->swap_free || !m->admit_state) return -ENOMEM;
    for (uint32_t i = c->swap_pages; i-- > 0;)
        m->swap_free[m->swap_free_count++] = i;
    int rc = kv_pool_init(&m->pool, c->pages, &c->parts);
    if (rc < 0) return err_set(err, rc, "KV pool of %u pages", c->pages);
    rc = kv_index_init(&m->index, &m->pool, c->page_tokens, s->policies.evict, c->events_max);
    return rc < 0 ? err_set(err, rc, "index of %u KV pages", c->pages) : 0;
}

void sched_memory_fini(struct scheduler *s)
{
    struct sched_memory *m = &s->memory;
    kv_index_fini(&m->index);
    kv_pool_fini(&m->pool);
    free(s->batch.move);
    free(m->match);
    free(m->swap_free);
    free(m->admit_state);
}

void sched_memory_perf(struct scheduler *s)
{
    const struct perf_coef *perf = &s->perf;
    s->memory.index.depth_cost =
        perf->prefill_token_s > 0 ? perf->attend_s / perf->prefill_token_s : 0;
}

void sched_keep_pages(struct scheduler *s, const struct session *x)
{
    s->memory.kept += x->page_count;
}

void sched_unkeep_pages(struct scheduler *s, const struct session *x)
{
    s->memory.kept -= x->page_count;
}

uint32_t sched_pages_for(const struct scheduler *s, uint32_t tokens)
{
    return ceil_div_u32(tokens, s->config.page_tokens);
}

uint64_t sched_units_of(const struct sched_config *c, uint32_t tokens, uint32_t fresh)
{
    const struct kv_parts *parts = &c->parts;
    const uint64_t pages = ceil_div_u32(tokens, c->page_tokens);
    if (parts->window_tokens == 0) return pages;
    const uint64_t seen = (uint64_t)parts->window_tokens - 1 + max_u32(fresh, 1);
    const uint64_t covered = (seen + c->page_tokens - 1) / c->page_tokens + 1;
    return pages * parts->full + min_u64(pages, covered) * parts->window;
}

uint64_t sched_units_to_run(const struct scheduler *s, const struct session *x)
{
    return sched_units_of(&s->config, x->total,
                          min_u32(x->total - x->computed, s->config.batch_tokens_max));
}

static uint64_t units_of_pages(const struct scheduler *s, uint32_t pages, uint32_t covered)
{
    const struct kv_parts *parts = &s->memory.pool.parts;
    return (uint64_t)pages * parts->full + (uint64_t)covered * parts->window;
}

uint64_t sched_units_kept(const struct scheduler *s, const struct session *x)
{
    return units_of_pages(s, x->page_count, x->page_count - x->window_from);
}

uint32_t sched_whole_pages(const struct scheduler *s, uint64_t units)
{
    const uint32_t whole = kv_pool_whole(&s->memory.pool);
    return (uint32_t)min_u64((units + whole - 1) / whole, UINT32_MAX);
}

static void add_move(struct scheduler *s, struct sched_move move)
{
    must(s->batch.move_count < s->memory.moves_max);
    s->batch.move[s->batch.move_count++] = move;
}

/* Drops a session's hold of its page `at`. */
static void release_page(struct scheduler *s, const struct session *x, uint32_t at)
{
    if (at >= x->window_from) {
        kv_index_release(&s->memory.index, x->pages[at]);
    } else {
        kv_index_release_full(&s->memory.index, x->pages[at]);
    }
}

void sched_release_pages(struct scheduler *s, struct session *x)
{
    /* Tail first: where time is counted in releases the tail is then the first to be evicted. */
    while (x->page_count > 0) {
        x->page_count--;
        if (x->swapped) {
            s->memory.swap_free[s->memory.swap_free_count++] = x->pages[x->page_count];
        } else {
            release_page(s, x, x->page_count);
        }
    }
    x->swapped = false;
    x->computed = x->sealed_pages = x->window_from = 0;
}

bool sched_make_room(struct scheduler *s, struct session *x, uint32_t upto)
{
    if ((uint64_t)x->page_count * s->config.page_tokens >= upto) return true; /* most tokens */
    uint32_t whole = max_u32(sched_pages_for(s, upto), x->page_count);
    if (kv_index_available(&s->memory.index) < whole - x->page_count) return false;
    while (x->page_count < whole)
        x->pages[x->page_count++] = kv_index_take(&s->memory.index);
    return true;
}

/* Finds the cached pages of the session's beginning, whole or not. */
static uint32_t find_pages(struct scheduler *s, struct session *x)
{
    if (!s->config.prefix_cache) return 0;
    session_extend_keys(x, s->config.key_seed);
    return kv_index_match(&s->memory.index, x->salt, x->keys, x->ids,
                          session_hit_max(x) / s->config.page_tokens, s->memory.match);
}

/* Counts what the first `hits` found pages take, from `window_from` on with both parts. */
static void count_hits(const struct scheduler *s, uint32_t hits, uint32_t window_from,
                       struct sched_need *ret)
{
    const struct kv_pool *p = &s->memory.pool;
    ret->hit_pages = hits;
    ret->hit_units = units_of_pages(s, hits, hits - min_u32(hits, window_from));
    ret->idle_units = 0;
    for (uint32_t i = 0; i < hits; i++) {
        const uint32_t page = s->memory.match[i];
        if (p->refs[page] == 0) ret->idle_units += p->parts.full;
        if (p->window && i >= window_from && p->window[page].refs == 0)
            ret->idle_units += p->parts.window;
    }
}

/* Holds found page `at` for a session. */
static void hold_hit(struct scheduler *s, struct session *x, uint32_t at)
{
    kv_index_hit(&s->memory.index, s->memory.match[at]);
    if (at >= x->window_from) kv_pool_enter(&s->memory.pool, s->memory.match[at]);
    x->pages[at] = s->memory.match[at];
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void swap_out(struct scheduler *s, struct session *x)
{
    uint32_t full = sched_pages_for(s, x->computed);
    while (x->page_count > full)
        release_page(s, x, --x->page_count);
    for (uint32_t i = full; i-- > 0;) {
        uint32_t place = s->memory.swap_free[--s->memory.swap_free_count];
        add_move(s, (struct sched_move){ SCHED_SWAP_OUT, x->pages[i], place, i >= x->window_from });
        release_page(s, x, i);
        x->pages[i] = place;
    }
    x->swapped = true;
    s->counts.swaps++;
    s->batch.swapped_out += full;
    s->counts.swapped_out += full;
}

static bool swap_in(struct scheduler *s, struct session *x)
{
    struct kv_index *index = &s->memory.index;
    const struct kv_pool *pool = &s->memory.pool;
    struct sched_need found;
    uint32_t hits = min_u32(find_pages(s, x), x->computed / s->config.page_tokens), held = 0;
    for (uint32_t i = x->window_from; i < hits; i++)
        if (!kv_pool_is_whole(pool, s->memory.match[i])) hits = i;
    for (uint32_t i = 0; i < hits; i++)
        held += pool->refs[s->memory.match[i]] > 0;
    count_hits(s, hits, x->window_from, &found);
    uint32_t missing = x->page_count - hits, left = x->page_count - x->window_from;
    uint64_t units = units_of_pages(s, x->page_count, left) - found.hit_units + found.idle_units;
    if (kv_index_units(index) < units) return false;
    if (pool->free_count + pool->cached_count < x->page_count - held) return false;
    if (s->batch.move_count + missing > s->memory.moves_max) return false;
    for (uint32_t i = 0; i < hits; i++) {
        s->memory.swap_free[s->memory.swap_free_count++] = x->pages[i];
        hold_hit(s, x, i);
    }
    for (uint32_t i = hits; i < x->page_count; i++) {
        const bool both = i >= x->window_from;
        uint32_t page = both ? kv_index_take(index) : kv_index_take_full(index);
        must(page != KV_PAGE_NONE);
        add_move(s, (struct sched_move){ SCHED_SWAP_IN, x->pages[i], page, both });
        s->memory.swap_free[s->memory.swap_free_count++] = x->pages[i];
        x->pages[i] = page;
    }
    x->swapped = false;
    s->batch.swapped_in += missing;
    s->counts.swapped_in += missing;
    return true;
}

static enum preempt_how how_to(struct scheduler *s, struct session *x, struct session *newcomer,
                               double *ret_cost_s)
{
    struct step_session victim = sched_view(s, x), other;
    if (newcomer) other = sched_view(s, newcomer);
    uint32_t pages = sched_pages_for(s, x->computed);
    double tokens = (double)x->computed;
    struct preempt_view view = {
        .victim = &victim,
        .newcomer = newcomer ? &other : NULL,
        .can_swap = pages > 0 && pages <= s->memory.swap_free_count &&
                    s->batch.move_count + pages <= s->memory.moves_max,
        .swap_s = 2 * (double)pages * s->config.swap_page_s,
        .recompute_s = tokens * (s->perf.prefill_token_s + s->perf.attend_s * tokens / 2),
        .running = s->counts.running,
    };
    enum preempt_how how =
        s->policies.preempt->how ? s->policies.preempt->how(&view) : preempt_cheaper(&view);
    if (how == PREEMPT_SWAP && !view.can_swap) how = PREEMPT_RECOMPUTE;
    if (how == PREEMPT_NOT && !newcomer) how = PREEMPT_RECOMPUTE;
    *ret_cost_s = how == PREEMPT_SWAP ? view.swap_s : view.recompute_s;
    return how;
}

bool sched_give_up(struct scheduler *s, struct session *x, struct session *newcomer)
{
    double cost_s;
    enum preempt_how how = how_to(s, x, newcomer, &cost_s);
    if (how == PREEMPT_NOT) return false;
    s->preempt_s += cost_s;
    bool ran = x->state == SESSION_RUNNING, had_pages = x->page_count > 0;
    if (ran) sched_stop_running(s, x);
    x->reached = max_u32(x->reached, x->computed);
    if (how == PREEMPT_SWAP) {
        swap_out(s, x);
    } else {
        sched_release_pages(s, x);
    }
    x->preemptions += had_pages; /* a session admitted without room lost nothing */
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
    sched_stop_running(s, x);
    list_remove(&x->link);
    list_push_back(x->page_count > 0 ? &s->parked : &s->waiting, &x->link);
    s->counts.parked++;
    sched_enqueue_later(s, x);
    sched_tell(s, x, (struct step_event){ .kind = STEP_PREEMPTED });
}

/* Returns the parked session with the worst rank; those that parked in this plan, and paused ones,
 * come first. */
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
    while (kv_index_available(&s->memory.index) < s->config.seqs_max) {
        struct session *x = worst_parked(s);
        if (!x) return;
        uint32_t pages = sched_pages_for(s, x->computed);
        if (pages > s->memory.swap_free_count || s->batch.move_count + pages > s->memory.moves_max)
            return;
        if (!sched_give_up(s, x, NULL)) return;
    }
}

/* Applies FastServe's two rules: no session is swapped in during a step that swaps out, and no new
 * one begins while the swap space is nearly full. */
bool sched_swap_waits(const struct scheduler *s, const struct session *x)
{
    if (!s->policies.order->swaps_early || s->config.swap_pages == 0 || s->counts.running == 0)
        return false;
    if (x->swapped) return s->batch.swapped_out > 0;
    return x->page_count == 0 &&
           (uint64_t)s->memory.swap_free_count * SWAP_FREE_PART < s->config.swap_pages;
}

/* Returns true if `a` is a better victim than `b`. A paused session cannot use its pages now. */
static bool worse(struct scheduler *s, struct session *a, struct session *b)
{
    if (a->paused != b->paused) return a->paused;
    struct step_session va = sched_view(s, a), vb = sched_view(s, b);
    double ra = s->policies.preempt->rank(&va), rb = s->policies.preempt->rank(&vb);
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

/* ---- admission ------------------------------------------------------------------------------ */

static uint32_t growth_bin(uint32_t pages)
{
    if (pages < 16) return pages;
    uint32_t octave = 31 - (uint32_t)__builtin_clz(pages);
    uint32_t bin = 16 + (octave - 4) * 4 + ((pages >> (octave - 2)) & 3);
    return min_u32(bin, GROWTH_BINS - 1);
}

static uint64_t growth_most(uint32_t bin) /* the most that a session in it grows */
{
    if (bin < 16) return bin;
    uint32_t octave = 4 + (bin - 16) / 4, quarter = (bin - 16) % 4;
    return ((uint64_t)(5 + quarter) << (octave - 2)) - 1;
}

/* Returns the most pages that running sessions will hold beyond those of now, with one session more
 * that holds `pages` and is to grow by `growth`. Outputs grow side by side, and a session that ends
 * gives all pages back: when all still alive have grown by `t` pages the pool holds
 * alive(t) * t - held by those that ended  more than now. */
static uint32_t peak_growth(const struct scheduler *s, uint32_t growth, uint32_t pages)
{
    uint64_t alive = s->memory.growing.sessions + 1, given_back = 0, peak = 0;
    uint32_t own = growth_bin(growth);
    for (uint32_t bin = 0; bin < GROWTH_BINS && alive > 0; bin++) {
        uint32_t here = s->memory.growing.count[bin] + (bin == own);
        if (here == 0) continue;
        uint64_t grown = alive * growth_most(bin);
        if (grown > given_back + peak) peak = grown - given_back;
        given_back += s->memory.growing.held[bin] + (bin == own ? pages : 0);
        alive -= min_u32(here, (uint32_t)alive);
    }
    return (uint32_t)min_size(peak, UINT32_MAX);
}

/* Adds the pages that the known tokens still need, and those that the expected output needs
 * beyond. What a swapped session takes back is not among them: a plan that reserves it preempts
 * more (at commit ea74fdd9, t_gate_presets: FastServe's mean JCT with short memory +36 %). */
void sched_add_demand(struct scheduler *s, struct session *x)
{
    const uint64_t kept = sched_units_kept(s, x), known = max_u64(sched_units_to_run(s, x), kept);
    const uint64_t last = sched_units_of(&s->config, sched_expected_total(s, x), 1);
    const uint32_t grown = sched_whole_pages(s, max_u64(last, known) - known);
    s->memory.committed += sched_whole_pages(s, known - kept);
    s->memory.growth += grown;
    uint32_t bin = growth_bin(grown);
    s->memory.growing.count[bin]++;
    s->memory.growing.held[bin] += sched_whole_pages(s, known);
    s->memory.growing.sessions++;
}

void sched_sum_demand(struct scheduler *s)
{
    s->memory.committed = s->memory.growth = 0;
    s->memory.growing = (struct growth){ 0 };
    LIST_EACH (&s->running, node)
        sched_add_demand(s, SESSION_OF(node));
}

static bool may_admit(struct scheduler *s, struct session *x, const struct sched_need *n)
{
    uint64_t taken = sched_whole_pages(s, n->idle_units) + s->memory.committed;
    uint32_t available = kv_index_available(&s->memory.index);
    const uint64_t needed = sched_units_to_run(s, x);
    const uint64_t held = n->hit_units + (x->swapped ? 0 : sched_units_kept(s, x));
    const uint64_t last = sched_units_of(&s->config, sched_expected_total(s, x), 1);
    struct admit_view view = {
        .pages_available = available > taken ? available - (uint32_t)taken : 0,
        .pages_needed = sched_whole_pages(s, needed - min_u64(needed, held)),
        .pages_growth = sched_whole_pages(s, max_u64(last, needed) - needed),
        .running = s->memory.growing.sessions,
        .running_growth = (uint32_t)min_size(s->memory.growth, UINT32_MAX),
    };
    /* The sum of all growth is an upper bound of its peak that needs no walk; often it fits too. */
    uint64_t sum = s->memory.growth + view.pages_growth;
    bool ample = view.pages_needed + sum + view.running <= view.pages_available;
    view.peak_growth =
        ample ? (uint32_t)sum : peak_growth(s, view.pages_growth, sched_whole_pages(s, needed));
    /* A session that is alone may have every page but those being copied elsewhere: it waits for
     * them. */
    bool alone = s->counts.running == 0 &&
                 (s->memory.kept == 0 || view.pages_needed <= view.pages_available);
    bool yes = s->policies.admit->decide(s->memory.admit_state, &view);
    return yes || alone;
}

/* Asks the policy first with an estimate of the hits that is never too low, so that a refusal costs
 * only a few probes. */
bool sched_find_need(struct scheduler *s, struct session *x, struct sched_need *ret,
                     uint32_t *ret_hits)
{
    *ret = (struct sched_need){ 0 };
    *ret_hits = 0;
    if (session_is_parked(x)) return may_admit(s, x, ret);
    if (!s->config.prefix_cache) return may_admit(s, x, ret);
    session_extend_keys(x, s->config.key_seed);
    uint32_t pages_max = session_hit_max(x) / s->config.page_tokens;
    ret->hit_pages = kv_index_probe(&s->memory.index, x->keys, pages_max);
    ret->hit_units = units_of_pages(s, ret->hit_pages, ret->hit_pages);
    if (!may_admit(s, x, ret)) return false;
    if (ret->hit_pages == 0) return true;
    const uint32_t hits = kv_index_usable(&s->memory.index, s->memory.match, find_pages(s, x));
    *ret_hits = min_u32(hits * s->config.page_tokens, x->total - 1);
    count_hits(s, hits, kv_index_window_from(&s->memory.index, *ret_hits), ret);
    return may_admit(s, x, ret);
}

static void count_first_admission(struct scheduler *s, struct session *x, uint32_t hit_tokens,
                                  int64_t now_us)
{
    x->admitted_once = true;
    x->admitted_us = now_us;
    x->cached_tokens = hit_tokens;
    s->counts.prompt_tokens += x->prompt_tokens;
    s->counts.query_tokens += x->prompt_tokens;
    s->counts.hit_tokens += hit_tokens;
}

bool sched_admit(struct scheduler *s, struct session *x, const struct sched_need *need,
                 uint32_t hit_tokens, int64_t now_us)
{
    if (x->swapped) {
        if (!swap_in(s, x)) return false;
    } else if (!session_is_parked(x)) {
        x->window_from = kv_index_window_from(&s->memory.index, hit_tokens);
        for (uint32_t i = 0; i < need->hit_pages; i++)
            hold_hit(s, x, i);
        x->page_count = need->hit_pages;
        x->computed = hit_tokens;
        x->sealed_pages = need->hit_pages;
    }
    bool first = !x->admitted_once;
    if (first) count_first_admission(s, x, hit_tokens, now_us);
    sched_dequeue(s, x);
    sched_round_leave(s, x);
    x->state = SESSION_RUNNING;
    x->slice_from = session_generated(x);
    list_remove(&x->link);
    list_push_back(&s->running, &x->link);
    s->counts.waiting--;
    s->counts.running++;
    sched_tenant_run(s, x, true);
    if (s->watched) {
        sched_tell(s, x,
                   (struct step_event){ .kind = STEP_ADMITTED,
                                        .input_tokens = first ? x->prompt_tokens : 0,
                                        .cached_tokens = first ? hit_tokens : 0 });
    }
    return true;
}
