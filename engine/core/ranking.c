/* ranking.c - a heap for the few, a radix sort for the many.
 *
 * Most draws look at few tokens, and a heap of all is built in O(V). A client may ask for nearly all
 * of them (top_p near 1, a flat distribution): popping those costs O(V log V) with a cache miss each,
 * tens of milliseconds on the thread that serves everybody. A sort by the bits of the float, three
 * passes of eleven, is O(V) and gives the very same order, so the sums over it are the same bits. */
#include "engine/core/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11
#define DIGITS 3
#define PLACES (1u << DIGIT_BITS)

int ranking_init(struct ranking *r, uint32_t vocab_size)
{
    *r = (struct ranking){ .vocab_size = vocab_size };
    r->heap = calloc(vocab_size, sizeof *r->heap);
    r->spare = calloc(vocab_size, sizeof *r->spare);
    return r->heap && r->spare ? 0 : -ENOMEM;
}

void ranking_fini(struct ranking *r)
{
    free(r->heap);
    free(r->spare);
    *r = (struct ranking){ 0 };
}

static bool before(struct ranked a, struct ranked b)
{
    if (a.logit > b.logit) return true;
    return !(a.logit < b.logit) && a.id < b.id;
}

/* ---- the heap ---- */

static void sift_down(struct ranking *r, uint32_t at)
{
    struct ranked *heap = r->heap, moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= r->count) break;
        if (child + 1 < r->count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[at] = heap[child];
        at = child;
        r->moves++;
    }
    heap[at] = moved;
}

uint32_t ranking_begin(struct ranking *r, const float *logit)
{
    r->logit = logit;
    r->count = r->pops = r->next = 0;
    r->sorted = false;
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        if (logit[i] > -INFINITY) r->heap[r->count++] = (struct ranked){ logit[i], i };
    }
    for (uint32_t i = r->count / 2; i-- > 0;)
        sift_down(r, i);
    return r->count;
}

static struct ranked pop(struct ranking *r)
{
    struct ranked first = r->heap[0];
    r->heap[0] = r->heap[--r->count];
    if (r->count > 0) sift_down(r, 0);
    r->pops++;
    return first;
}

/* ---- the sort ---- */

/* Rises as the logit falls. Both zeros are equal, as they are to `before`. */
static uint32_t key_of(float logit)
{
    uint32_t bits;
    float plain = logit + 0.0f; /* -0 + 0 is 0 */
    memcpy(&bits, &plain, sizeof bits);
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static uint32_t digit_of(float logit, uint32_t digit)
{
    return key_of(logit) >> (digit * DIGIT_BITS) & (PLACES - 1);
}

/* What was not given out yet, by ascending id: a sort that keeps the order of equals does the rest. */
static void gather_rest(struct ranking *r, uint32_t places[DIGITS][PLACES])
{
    r->count = 0;
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        struct ranked c = { r->logit[i], i };
        if (!(c.logit > -INFINITY) || (r->pops > 0 && !before(r->last, c))) continue;
        r->heap[r->count++] = c;
        for (uint32_t d = 0; d < DIGITS; d++)
            places[d][digit_of(c.logit, d)]++;
    }
}

static void sort_rest(struct ranking *r)
{
    uint32_t places[DIGITS][PLACES] = { 0 };
    gather_rest(r, places);
    struct ranked *from = r->heap, *to = r->spare;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t sum = 0;
        for (uint32_t p = 0; p < PLACES; p++) {
            uint32_t here = places[d][p];
            places[d][p] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < r->count; i++)
            to[places[d][digit_of(from[i].logit, d)]++] = from[i];
        struct ranked *was = from;
        from = to;
        to = was;
    }
    r->moves += (uint64_t)(DIGITS + 1) * r->count;
    r->sorted = true;
}

struct ranked ranking_next(struct ranking *r)
{
    if (!r->sorted && r->pops >= r->vocab_size / RANKING_POPS) sort_rest(r);
    r->last = r->sorted ? r->spare[r->next++] : pop(r);
    return r->last;
}
