/* kv_link.c - first come, first served at both ends.
 *
 *     start = max(now, sender's way out free, receiver's way in free)
 *     end   = start + bytes / speed, arrival = end + latency
 *
 * Sharing a port fairly would give the same last arrival and make every other one later. */
#include "simulator/kv_link.h"

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
