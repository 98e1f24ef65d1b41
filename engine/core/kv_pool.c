/* kv_pool.c - counts the holders of a fixed set of pages.
 *
 * The free pages are a stack, so that the page handed out is the one touched last: its bytes
 * are most likely in a cache. The index orders the cached pages.
 */
#include "engine/core/kv_pool.h"

#include "base/core/err.h"

#include <stdlib.h>
#include <string.h>

int kv_pool_init(struct kv_pool *p, uint32_t total)
{
    memset(p, 0, sizeof *p);
    if (total == 0 || total > KV_PAGES_MAX) return -EINVAL;
    p->refs = calloc(total, sizeof *p->refs);
    p->indexed = calloc(total, sizeof *p->indexed);
    p->free_stack = calloc(total, sizeof *p->free_stack);
    if (!p->refs || !p->indexed || !p->free_stack) {
        kv_pool_fini(p);
        return -ENOMEM;
    }
    p->total = p->free_count = total;
    for (uint32_t i = 0; i < total; i++)
        p->free_stack[i] = total - 1 - i;
    return 0;
}

void kv_pool_fini(struct kv_pool *p)
{
    free(p->refs);
    free(p->indexed);
    free(p->free_stack);
    memset(p, 0, sizeof *p);
}

uint32_t kv_pool_take(struct kv_pool *p)
{
    if (p->free_count == 0) return KV_PAGE_NONE;
    uint32_t page = p->free_stack[--p->free_count];
    must(p->refs[page] == 0 && !p->indexed[page]);
    p->refs[page] = 1;
    p->held_count++;
    return page;
}

void kv_pool_ref(struct kv_pool *p, uint32_t page)
{
    must(page < p->total && (p->refs[page] > 0 || p->indexed[page]));
    if (p->refs[page]++ > 0) return;
    p->cached_count--;
    p->held_count++;
}

bool kv_pool_unref(struct kv_pool *p, uint32_t page)
{
    must(page < p->total && p->refs[page] > 0);
    if (--p->refs[page] > 0) return false;
    p->held_count--;
    if (p->indexed[page]) {
        p->cached_count++;
    } else {
        p->free_stack[p->free_count++] = page;
    }
    return true;
}

void kv_pool_set_indexed(struct kv_pool *p, uint32_t page, bool indexed)
{
    must(page < p->total && p->indexed[page] != indexed);
    must(p->refs[page] > 0 || !indexed);
    p->indexed[page] = indexed;
    if (p->refs[page] > 0) return;
    p->cached_count--;
    p->free_stack[p->free_count++] = page;
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
           p->free_count + p->held_count + p->cached_count == p->total;
}
