/* timeline.c - runs events in the order of their times, and equal times in the order of insertion. */
#include "tests/sim/timeline.h"

#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void timeline_init(struct timeline *t, int64_t now_us, bool verbose)
{
    *t = (struct timeline){ .began_us = now_us, .now_us = now_us, .verbose = verbose };
    heap_init(&t->heap, TIMELINE_EVENTS_MAX);
}

void timeline_fini(struct timeline *t)
{
    for (struct heap_node *n; (n = heap_pop(&t->heap));) {
        struct event *e = CONTAINER_OF(n, struct event, node);
        free(e->payload);
        free(e);
    }
    while (t->free) {
        struct event *e = t->free;
        t->free = e->next_free;
        free(e);
    }
    heap_fini(&t->heap);
}

void timeline_carry(struct timeline *t, int64_t at_us, event_fn fn, void *who, uint64_t what,
                    void *payload_owned)
{
    struct event *e = t->free;
    if (e)
        t->free = e->next_free;
    else
        e = malloc(sizeof *e);
    must(e);
    *e = (struct event){ .fn = fn, .who = who, .what = what, .payload = payload_owned };
    must(heap_push(&t->heap, &e->node, at_us > t->now_us ? at_us : t->now_us) == 0);
}

void timeline_at(struct timeline *t, int64_t at_us, event_fn fn, void *who, uint64_t what)
{
    timeline_carry(t, at_us, fn, who, what, NULL);
}

void timeline_again(struct timeline *t, int64_t at_us)
{
    t->again_us = at_us > t->now_us ? at_us : t->now_us;
}

void timeline_run(struct timeline *t, struct world *w, int64_t until_us, const bool *stop)
{
    while (!*stop) {
        struct heap_node *n = heap_peek(&t->heap);
        if (!n || n->key > until_us) break;
        heap_pop(&t->heap);
        struct event *e = CONTAINER_OF(n, struct event, node);
        t->now_us = n->key;
        t->events++;
        t->again_us = 0;
        e->fn(w, e);
        if (t->again_us) {
            must(heap_push(&t->heap, &e->node, t->again_us) == 0);
            continue;
        }
        free(e->payload);
        e->next_free = t->free;
        t->free = e;
    }
    if (!*stop) t->now_us = until_us;
}

void timeline_note(struct timeline *t, const char *what, const char *who, int64_t value)
{
    int64_t numbers[2] = { t->now_us, value };
    t->digest = hash64(what, strlen(what), t->digest);
    t->digest = hash64(who, strlen(who), t->digest);
    t->digest = hash64(numbers, sizeof numbers, t->digest);
    if (t->verbose)
        printf("%10.3f %-18s %-16s %" PRId64 "\n", (double)(t->now_us - t->began_us) / 1e6, what,
               who, value);
}
