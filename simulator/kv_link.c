/* kv_link.c - first come, first served at both ends.
 *
 *     start = max(now, sender's way out free, receiver's way in free)
 *     end   = start + bytes / speed, arrival = end + latency
 *
 * Sharing a port fairly would give the same last arrival and make every other one later. */
#include "simulator/kv_link.h"

#include "base/core/bits.h"
#include "base/core/err.h"

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

bool kv_link_begin(struct kv_link *t, struct heap_node *copy, uint32_t from, uint32_t to,
                   double bytes, int64_t now_us)
{
    must(from < t->ports && to < t->ports && from != to);
    int64_t start_us = max_i64(now_us, max_i64(t->out_free_us[from], t->in_free_us[to]));
    int64_t end_us = start_us + max_i64(1, (int64_t)(bytes / t->bytes_s * 1e6));
    t->out_free_us[from] = t->in_free_us[to] = end_us;
    t->bytes += bytes;
    return heap_push(&t->under_way, copy, end_us + t->latency_us) == 0;
}

void kv_link_drop(struct kv_link *t, struct heap_node *copy)
{
    if (heap_has(copy)) heap_remove(&t->under_way, copy);
}

void kv_link_port_new(struct kv_link *t, uint32_t port)
{
    t->out_free_us[port] = t->in_free_us[port] = 0;
}

struct heap_node *kv_link_arrived(struct kv_link *t, int64_t now_us)
{
    struct heap_node *first = heap_peek(&t->under_way);
    return first && first->key <= now_us ? heap_pop(&t->under_way) : NULL;
}

int64_t kv_link_next_us(const struct kv_link *t)
{
    const struct heap_node *first = heap_peek(&t->under_way);
    return first ? first->key : INT64_MAX;
}
