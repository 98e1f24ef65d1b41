/* flight.c - a free list over pages of flights, which only grows while more are under way. */
#include "simulator/flight.h"

#include "base/core/err.h"

#include <stdlib.h>

#define FLIGHTS_A_PAGE 256

struct page {
    struct list link;
    struct flight flight[FLIGHTS_A_PAGE];
};

void flights_init(struct flights *fs)
{
    list_init(&fs->free);
    list_init(&fs->all_pages);
    fs->taken = 0;
}

void flights_fini(struct flights *fs)
{
    for (struct list *node; (node = list_pop_front(&fs->all_pages));) {
        struct page *page = CONTAINER_OF(node, struct page, link);
        for (uint32_t i = 0; i < FLIGHTS_A_PAGE; i++)
            free(page->flight[i].keys);
        free(page);
    }
}

static bool add_page(struct flights *fs)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page) return false;
    list_push_back(&fs->all_pages, &page->link);
    for (uint32_t i = 0; i < FLIGHTS_A_PAGE; i++)
        list_push_back(&fs->free, &page->flight[i].link);
    return true;
}

struct flight *flight_take(struct flights *fs)
{
    if (list_empty(&fs->free) && !add_page(fs)) return NULL;
    struct list *node = list_pop_front(&fs->free);
    must(node != NULL);
    struct flight *f = CONTAINER_OF(node, struct flight, link);
    *f = (struct flight){ .keys = f->keys, .keys_max = f->keys_max };
    fs->taken++;
    return f;
}

void flight_give(struct flights *fs, struct flight *f)
{
    list_push_front(&fs->free, &f->link);
    fs->taken--;
}

bool flight_keys_reserve(struct flight *f, uint32_t count)
{
    if (count <= f->keys_max) return true;
    struct block_key *more = realloc(f->keys, count * sizeof *more);
    if (!more) return false;
    f->keys = more;
    f->keys_max = count;
    return true;
}
