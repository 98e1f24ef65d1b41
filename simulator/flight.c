/* flight.c - keeps flights in a free list over pages, schedules copies on links, and makes prompts' ids.
 *
 * The free list grows only while more flights are under way. Links are first come, first served at both ends:
 *
 *     start = max(now, sender's way out free, receiver's way in free)
 *     end   = start + bytes / speed, arrival = end + latency
 *
 * Sharing a port fairly would give the same last arrival and make every other one later. */

#include "simulator/flight.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/list.h"

#include <stdlib.h>

#define COPIES_MAX (1u << 20)

bool kv_link_init(struct kv_link *t, uint32_t ports, double bytes_s, int64_t latency_us)
{
    *t = (struct kv_link){ .ports = ports, .bytes_s = bytes_s, .latency_us = latency_us };
    heap_init(&t->under_way, COPIES_MAX);
    t->out_free_us = calloc(ports, sizeof *t->out_free_us);
    t->in_free_us = calloc(ports, sizeof *t->in_free_us);
    return t->out_free_us && t->in_free_us;
}

void kv_link_fini(struct kv_link *t)
{
    heap_fini(&t->under_way);
    free(t->out_free_us);
    free(t->in_free_us);
}

bool kv_link_begin(struct kv_link *t, struct kv_copy *copy, uint32_t from, uint32_t to,
                   double bytes, int64_t now_us, int64_t until_us)
{
    must(from < t->ports && to < t->ports && from != to);
    int64_t start_us = max_i64(now_us, max_i64(t->out_free_us[from], t->in_free_us[to]));
    int64_t end_us = start_us + max_i64(1, (int64_t)(bytes / t->bytes_s * 1e6));
    t->out_free_us[from] = t->in_free_us[to] = end_us;
    t->bytes += bytes;
    copy->first_us = start_us + t->latency_us;
    copy->last_us = end_us + t->latency_us;
    return heap_push(&t->under_way, &copy->node, min_i64(copy->last_us, until_us)) == 0;
}

void kv_link_drop(struct kv_link *t, struct kv_copy *copy)
{
    if (heap_has(&copy->node)) heap_remove(&t->under_way, &copy->node);
}

void kv_link_port_new(struct kv_link *t, uint32_t port)
{
    t->out_free_us[port] = t->in_free_us[port] = 0;
}

struct kv_copy *kv_link_over(struct kv_link *t, int64_t now_us)
{
    struct heap_node *first = heap_peek(&t->under_way);
    if (!first || first->key > now_us) return NULL;
    return CONTAINER_OF(heap_pop(&t->under_way), struct kv_copy, node);
}

double kv_copy_share(const struct kv_copy *copy, int64_t now_us)
{
    if (now_us >= copy->last_us) return 1;
    if (now_us <= copy->first_us) return 0;
    return (double)(now_us - copy->first_us) / (double)(copy->last_us - copy->first_us);
}

int64_t kv_link_next_us(const struct kv_link *t)
{
    const struct heap_node *first = heap_peek(&t->under_way);
    return first ? first->key : INT64_MAX;
}

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

/* Ids are made by multiplication: cheaply, and equal only where block and place are. */

#define ID_MASK 0x7fffffffu

static uint32_t id_at(uint64_t block, uint32_t offset)
{
    uint64_t mixed = (block + 1) * 0x9e3779b97f4a7c15u + offset * 0xc2b2ae3d27d4eb4fu;
    return (uint32_t)(mixed >> 29) & ID_MASK;
}

void prompt_ids(const struct trace *t, const struct trace_request *r, uint32_t *ret)
{
    const uint64_t *block = t->block + r->block_first;
    for (uint32_t i = 0; i < r->prompt_tokens;) {
        /* A prompt may be longer than its blocks: the last one goes on. */
        uint32_t b = min_u32(i / t->block_tokens, r->block_count - 1);
        uint32_t end = b + 1 == r->block_count ? r->prompt_tokens : (b + 1) * t->block_tokens;
        end = min_u32(end, r->prompt_tokens);
        for (uint32_t first = b * t->block_tokens; i < end; i++)
            ret[i] = id_at(block[b], i - first);
    }
}

void prompt_block_keys(const struct trace *t, const struct trace_request *r, uint64_t seed,
                       struct block_key salt, struct block_key *ret)
{
    struct block_key parent = salt;
    for (uint32_t b = 0; b < r->block_count; b++) {
        uint32_t ids[BLOCK_TOKENS];
        for (uint32_t i = 0; i < BLOCK_TOKENS; i++)
            ids[i] = id_at(t->block[r->block_first + b], i);
        ret[b] = parent = block_key_next(seed, parent, ids);
    }
}
