/* sched_admit.c - who may run: the pages that a session needs, those that answers will grow by, and
 * the admit row's word. */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

static uint32_t growth_bin(uint32_t pages)
{
    if (pages < 16) return pages;
    uint32_t octave = 31 - (uint32_t)__builtin_clz(pages);
    uint32_t bin = 16 + (octave - 4) * 4 + ((pages >> (octave - 2)) & 3);
    return min_u32(bin, GROWTH_BINS - 1);
}

static uint64_t growth_most(uint32_t bin) /* pages of what is in it */
{
    if (bin < 16) return bin;
    uint32_t octave = 4 + (bin - 16) / 4, quarter = (bin - 16) % 4;
    return ((uint64_t)(5 + quarter) << (octave - 2)) - 1;
}

/* Answers grow side by side, and who ends gives everything back: when all still alive have grown by
 * `t` pages the pool holds  alive(t) * t - held by those that ended  more than now. The most that
 * this will be, with `pages` more held by one who is to grow by `growth`. */
static uint32_t peak_growth(const struct scheduler *s, uint32_t growth, uint32_t pages)
{
    uint64_t alive = s->growing.sessions + 1, given_back = 0, peak = 0;
    uint32_t own = growth_bin(growth);
    for (uint32_t bin = 0; bin < GROWTH_BINS && alive > 0; bin++) {
        uint32_t here = s->growing.count[bin] + (bin == own);
        if (here == 0) continue;
        uint64_t grown = alive * growth_most(bin);
        if (grown > given_back + peak) peak = grown - given_back;
        given_back += s->growing.held[bin] + (bin == own ? pages : 0);
        alive -= min_u32(here, (uint32_t)alive);
    }
    return (uint32_t)min_size(peak, UINT32_MAX);
}

/* Pages that the known tokens still need, and those that the expected answer needs beyond. */
void sched_add_demand(struct scheduler *s, struct session *x)
{
    uint32_t known = max_u32(sched_pages_for(s, x->total), x->page_count);
    uint32_t grown = max_u32(sched_pages_for(s, sched_expected_total(s, x)), known);
    s->promised += known - x->page_count;
    s->growth += grown - known;
    uint32_t bin = growth_bin(grown - known);
    s->growing.count[bin]++;
    s->growing.held[bin] += known;
    s->growing.sessions++;
}

void sched_sum_demand(struct scheduler *s)
{
    s->promised = s->growth = 0;
    s->growing = (struct growth){ 0 };
    LIST_EACH (&s->running, node)
        sched_add_demand(s, SESSION_OF(node));
}

static bool may_admit(struct scheduler *s, struct session *x, const struct sched_need *n)
{
    uint64_t taken = n->idle_hits + s->promised;
    uint32_t available = kv_index_available(&s->index);
    uint32_t needed = sched_pages_for(s, x->total);
    uint32_t held = n->hit_pages + (x->swapped ? 0 : x->page_count);
    struct admit_view view = {
        .pages_available = available > taken ? available - (uint32_t)taken : 0,
        .pages_needed = (needed > held ? needed - held : 0) + n->copied,
        .pages_growth = max_u32(sched_pages_for(s, sched_expected_total(s, x)), needed) - needed,
        .running = s->growing.sessions,
        .running_growth = (uint32_t)min_size(s->growth, UINT32_MAX),
    };
    /* The sum of all growth is above its peak, and needs no walk: often it fits as well. */
    uint64_t sum = s->growth + view.pages_growth;
    bool ample = view.pages_needed + sum + view.running <= view.pages_available;
    view.peak_growth = ample ? (uint32_t)sum : peak_growth(s, view.pages_growth, needed);
    /* Alone it may have every page but those that are being copied elsewhere: for them it waits. */
    bool alone =
        s->counts.running == 0 && (s->kept == 0 || view.pages_needed <= view.pages_available);
    bool yes = s->rows.admit->decide(s->admit_state, &view);
    return yes || alone;
}

/* First by an estimate that can only be too good, so that a no costs a few probes. */
bool sched_find_need(struct scheduler *s, struct session *x, struct sched_need *ret,
                     uint32_t *ret_hits)
{
    *ret = (struct sched_need){ 0 };
    *ret_hits = 0;
    if (session_is_parked(x)) return may_admit(s, x, ret);
    if (!s->config.prefix_cache) return may_admit(s, x, ret);
    session_extend_keys(x, s->config.key_seed);
    uint32_t pages_max = x->total / s->config.page_tokens;
    ret->hit_pages = kv_index_probe(&s->index, x->keys, pages_max);
    if (!may_admit(s, x, ret)) return false;
    if (ret->hit_pages == 0) return true;
    *ret_hits = sched_find_pages(s, x, &ret->hit_pages);
    for (uint32_t i = 0; i < ret->hit_pages; i++)
        ret->idle_hits += s->pool.refs[s->match[i]] == 0;
    ret->copied = *ret_hits % s->config.page_tokens != 0 && ret->hit_pages > 0;
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
        if (!sched_swap_in(s, x)) return false;
    } else if (!session_is_parked(x)) {
        for (uint32_t i = 0; i < need->hit_pages; i++) {
            kv_index_hit(&s->index, s->match[i]);
            x->pages[i] = s->match[i];
        }
        x->page_count = need->hit_pages;
        x->computed = hit_tokens;
        x->sealed_pages = need->hit_pages;
    }
    bool first = !x->admitted_once;
    if (first) count_first_admission(s, x, hit_tokens, now_us);
    sched_dequeue(s, x);
    x->state = SESSION_RUNNING;
    x->slice_from = session_generated(x);
    list_remove(&x->link);
    list_push_back(&s->running, &x->link);
    s->counts.waiting--;
    s->counts.running++;
    s->tenant[x->tenant_slot].running++;
    if (s->watched) {
        sched_tell(s, x,
                   (struct step_event){ .kind = STEP_ADMITTED,
                                        .input_tokens = first ? x->prompt_tokens : 0,
                                        .cached_tokens = first ? hit_tokens : 0 });
    }
    return true;
}
