/* transfer.c - first come, first served at both ends.
 *
 *     start = max(now, sender's way out free, receiver's way in free)
 *     end   = start + bytes / speed, arrival = end + latency
 *
 * Sharing a port fairly would give the same last arrival and make every other one later. */
#include "simulator/transfer.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <stdlib.h>

#define COPIES_MAX (1u << 20)

bool transfers_init(struct transfers *t, uint32_t ports, double bytes_s, int64_t latency_us)
{
    *t = (struct transfers){ .ports = ports, .bytes_s = bytes_s, .latency_us = latency_us };
    heap_init(&t->under_way, COPIES_MAX);
    t->out_free_us = calloc(ports, sizeof *t->out_free_us);
    t->in_free_us = calloc(ports, sizeof *t->in_free_us);
    return t->out_free_us && t->in_free_us;
}

void transfers_fini(struct transfers *t)
{
    heap_fini(&t->under_way);
    free(t->out_free_us);
    free(t->in_free_us);
}

bool transfer_begin(struct transfers *t, struct heap_node *copy, uint32_t from, uint32_t to,
                    double bytes, int64_t now_us)
{
    must(from < t->ports && to < t->ports && from != to);
    int64_t start_us = max_i64(now_us, max_i64(t->out_free_us[from], t->in_free_us[to]));
    int64_t end_us = start_us + max_i64(1, (int64_t)(bytes / t->bytes_s * 1e6));
    t->out_free_us[from] = t->in_free_us[to] = end_us;
    t->bytes += bytes;
    return heap_push(&t->under_way, copy, end_us + t->latency_us) == 0;
}

void transfer_drop(struct transfers *t, struct heap_node *copy)
{
    if (heap_has(copy)) heap_remove(&t->under_way, copy);
}

void transfers_port_new(struct transfers *t, uint32_t port)
{
    t->out_free_us[port] = t->in_free_us[port] = 0;
}

struct heap_node *transfer_arrived(struct transfers *t, int64_t now_us)
{
    struct heap_node *first = heap_peek(&t->under_way);
    return first && first->key <= now_us ? heap_pop(&t->under_way) : NULL;
}

int64_t transfers_next_us(const struct transfers *t)
{
    const struct heap_node *first = heap_peek(&t->under_way);
    return first ? first->key : INT64_MAX;
}
