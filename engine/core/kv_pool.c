/* kv_pool.c - keeps free pages on a stack, and the parts that windows have left behind in a list.
 *
 * The page handed out is the one touched last: its bytes are most likely in a cache. The index orders the
 * cached pages.
 *
 * A page keeps its number when it gives back the part of layers with a window: memory is counted and
 * returned (kv_store_discard), and nothing else knows of two parts. Tables of pages for each group of layers
 * were rejected: kernels, keys, swap and transfer would have a table more each, to save numbers. */
#include "engine/core/kv_pool.h"

#include "base/core/err.h"

#include <stdlib.h>
#include <string.h>

static int init_parts(struct kv_pool *p, const struct kv_parts *parts)
{
    p->parts = *parts;
    p->window = calloc(p->total, sizeof *p->window);
    p->stale = calloc(p->total, sizeof *p->stale);
    return p->window && p->stale ? 0 : -ENOMEM;
}

int kv_pool_init(struct kv_pool *p, uint32_t pages, const struct kv_parts *parts)
{
    const bool two = parts && parts->window_tokens > 0;
    memset(p, 0, sizeof *p);
    list_init(&p->left);
    uint32_t total = two ? parts->numbers : pages;
    if (pages == 0 || total < pages || total > KV_PAGES_MAX || (two && parts->window == 0))
        return -EINVAL;
    p->refs = calloc(total, sizeof *p->refs);
    p->indexed = calloc(total, sizeof *p->indexed);
    p->free_stack = calloc(total, sizeof *p->free_stack);
    p->total = p->free_count = total;
    p->parts.full = 1;
    if (!p->refs || !p->indexed || !p->free_stack || (two && init_parts(p, parts) < 0)) {
        kv_pool_fini(p);
        return -ENOMEM;
    }
    p->units = (uint64_t)pages * kv_pool_whole(p);
    for (uint32_t i = 0; i < total; i++)
        p->free_stack[i] = total - 1 - i;
    return 0;
}

void kv_pool_fini(struct kv_pool *p)
{
    free(p->refs);
    free(p->indexed);
    free(p->free_stack);
    free(p->window);
    free(p->stale);
    memset(p, 0, sizeof *p);
}

/* ---- the parts of a page ---- */

/* Counts the units of a page's parts out of those in use. */
static void give_back(struct kv_pool *p, uint32_t page, uint32_t units)
{
    p->used_units -= units;
    if (!p->window || p->window[page].stale) return;
    p->window[page].stale = true;
    p->stale[p->stale_count++] = page;
}

static void drop_part(struct kv_pool *p, uint32_t page)
{
    struct kv_window_part *w = &p->window[page];
    if (list_linked(&w->left)) list_remove(&w->left);
    w->here = false;
    give_back(p, page, p->parts.window);
}

void kv_pool_enter(struct kv_pool *p, uint32_t page)
{
    if (!p->window) return;
    struct kv_window_part *w = &p->window[page];
    must(w->here && p->refs[page] > w->refs);
    if (w->refs++ > 0) return;
    if (list_linked(&w->left)) list_remove(&w->left);
    p->held_units += p->parts.window;
}

/* Looks after a part that no window covers any more, of a page that is held: others may still find it. */
static void leave_unheld(struct kv_pool *p, uint32_t page)
{
    struct kv_window_part *w = &p->window[page];
    if (!w->here || w->refs > 0 || list_linked(&w->left)) return;
    if (p->indexed[page]) {
        list_push_back(&p->left, &w->left);
    } else {
        drop_part(p, page);
    }
}

static void drop_holder(struct kv_pool *p, uint32_t page)
{
    struct kv_window_part *w = &p->window[page];
    must(w->here && w->refs > 0);
    if (--w->refs == 0) p->held_units -= p->parts.window;
}

void kv_pool_leave(struct kv_pool *p, uint32_t page)
{
    if (!p->window) return;
    drop_holder(p, page);
    leave_unheld(p, page);
}

bool kv_pool_regain(struct kv_pool *p, uint32_t page)
{
    must(p->window && p->refs[page] > 0 && !p->window[page].here);
    if (p->units - p->used_units < p->parts.window) return false;
    p->used_units += p->parts.window;
    p->window[page].here = true;
    kv_pool_enter(p, page);
    return true;
}

bool kv_pool_drop_left(struct kv_pool *p)
{
    if (list_empty(&p->left)) return false;
    drop_part(p, (uint32_t)(CONTAINER_OF(p->left.next, struct kv_window_part, left) - p->window));
    return true;
}

static void free_page(struct kv_pool *p, uint32_t page)
{
    if (p->window && p->window[page].here) drop_part(p, page);
    give_back(p, page, p->parts.full);
    p->free_stack[p->free_count++] = page;
}

/* ---- pages ---- */

uint32_t kv_pool_take(struct kv_pool *p, bool whole)
{
    const uint32_t units = whole ? kv_pool_whole(p) : p->parts.full;
    if (p->free_count == 0 || p->units - p->used_units < units) return KV_PAGE_NONE;
    uint32_t page = p->free_stack[--p->free_count];
    must(p->refs[page] == 0 && !p->indexed[page]);
    p->refs[page] = 1;
    p->held_count++;
    p->used_units += units;
    p->held_units += p->parts.full;
    if (!p->window || !whole) return page;
    p->window[page].here = true;
    kv_pool_enter(p, page);
    return page;
}

void kv_pool_ref(struct kv_pool *p, uint32_t page)
{
    must(page < p->total && (p->refs[page] > 0 || p->indexed[page]));
    if (p->refs[page]++ > 0) return;
    p->cached_count--;
    p->held_count++;
    p->held_units += p->parts.full;
    if (p->window) leave_unheld(p, page);
}

bool kv_pool_unref(struct kv_pool *p, uint32_t page, bool window)
{
    must(page < p->total && p->refs[page] > 0);
    if (p->window && window) drop_holder(p, page);
    if (--p->refs[page] > 0) {
        if (p->window) leave_unheld(p, page);
        return false;
    }
    p->held_count--;
    p->held_units -= p->parts.full;
    if (p->indexed[page]) {
        p->cached_count++;
    } else {
        free_page(p, page);
    }
    return true;
}

void kv_pool_set_indexed(struct kv_pool *p, uint32_t page, bool indexed)
{
    must(page < p->total && p->indexed[page] != indexed);
    must(p->refs[page] > 0 || !indexed);
    p->indexed[page] = indexed;
    if (p->refs[page] == 0) {
        p->cached_count--;
        free_page(p, page);
    } else if (p->window && !indexed && p->window[page].refs == 0 && p->window[page].here) {
        drop_part(p, page);
    }
}

struct kv_pool_pages kv_pool_pages(const struct kv_pool *p)
{
    const uint32_t whole = kv_pool_whole(p);
    struct kv_pool_pages ret = {
        .free = (uint32_t)min_u64((p->units - p->used_units) / whole, p->free_count),
        .held = (uint32_t)((p->held_units + whole - 1) / whole),
    };
    ret.cached = (uint32_t)(p->units / whole) - ret.held;
    ret.free = min_u32(ret.free, ret.cached);
    ret.cached -= ret.free;
    return ret;
}

bool kv_pool_next_stale(struct kv_pool *p, uint32_t *ret_page, bool *ret_whole)
{
    while (p->stale_count > 0) {
        uint32_t page = p->stale[--p->stale_count];
        bool is_free = p->refs[page] == 0 && !p->indexed[page];
        p->window[page].stale = false;
        if (!is_free && p->window[page].here) continue;
        *ret_page = page;
        *ret_whole = is_free;
        return true;
    }
    return false;
}

static bool check_parts(const struct kv_pool *p)
{
    uint64_t used = 0, held = 0;
    for (uint32_t i = 0; i < p->total; i++) {
        const bool is_used = p->refs[i] > 0 || p->indexed[i];
        if (is_used) used += p->parts.full;
        if (p->refs[i] > 0) held += p->parts.full;
        if (!p->window) continue;
        const struct kv_window_part *w = &p->window[i];
        if (w->here) used += p->parts.window;
        if (w->refs > 0) held += p->parts.window;
        if (w->refs > p->refs[i] || (w->refs > 0 && !w->here) || (w->here && !is_used))
            return false;
        if (list_linked(&w->left) && (!w->here || w->refs > 0 || !p->indexed[i])) return false;
        if (w->here && w->refs == 0 && p->refs[i] > 0 && !list_linked(&w->left)) return false;
    }
    return used == p->used_units && held == p->held_units && held <= used && used <= p->units;
}

bool kv_pool_check(const struct kv_pool *p)
{
    uint32_t held = 0, cached = 0, idle = 0;
    for (uint32_t i = 0; i < p->total; i++) {
        if (p->refs[i] > 0) {
            held++;
        } else if (p->indexed[i]) {
            cached++;
        } else {
            idle++;
        }
    }
    for (uint32_t i = 0; i < p->free_count; i++) {
        uint32_t page = p->free_stack[i];
        if (page >= p->total || p->refs[page] > 0 || p->indexed[page]) return false;
    }
    return held == p->held_count && cached == p->cached_count && idle == p->free_count &&
           p->free_count + p->held_count + p->cached_count == p->total && check_parts(p);
}
