/* wait_queue.c - keeps a tournament tree in which each match knows until when its result holds.
 *
 * Under highest response ratio the order of waiting sessions changes with every microsecond, so no
 * sorted list and no heap keeps it, and under overload a walk over thousands of sessions at each
 * admission is too expensive. Ranks are lines in time (order.h). A match between two lines has a
 * moment at which its winner changes, computed when it is played: until then, and until the
 * earliest such moment below it, its result stands. Putting and removing mark one path of matches
 * as due; asking for the first plays what is due. That is O(log n) a change, and a crossing is paid
 * for once.
 */
#include "engine/core/wait_queue.h"

#include "base/core/err.h"

#include <stdlib.h>
#include <string.h>

#define DUE INT64_MIN
#define EARLY_US 2 /* a match is played a little before lines cross: rounding must not hide it */

void wait_queue_fini(struct wait_queue *q)
{
    free(q->node);
    free(q->spare);
    free(q->winner);
    free(q->until_us);
    *q = (struct wait_queue){ 0 };
}

static void mark_due(struct wait_queue *q, uint32_t slot)
{
    for (uint32_t i = (slot + q->capacity) / 2; i > 0 && q->until_us[i] != DUE; i /= 2)
        q->until_us[i] = DUE;
}

int wait_queue_reserve(struct wait_queue *q, uint32_t count)
{
    if (count <= q->capacity) return 0;
    uint32_t capacity = q->capacity ? q->capacity : 16;
    while (capacity < count)
        capacity *= 2;
    struct wait_queue big = {
        .node = calloc(capacity, sizeof *big.node),
        .spare = calloc(capacity, sizeof *big.spare),
        .winner = calloc(2 * (size_t)capacity, sizeof *big.winner),
        .until_us = calloc(2 * (size_t)capacity, sizeof *big.until_us),
        .capacity = capacity,
    };
    if (!big.node || !big.spare || !big.winner || !big.until_us) {
        wait_queue_fini(&big);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        big.winner[i] = WAIT_NONE;
        big.until_us[i] = DUE;
        big.winner[capacity + i] = WAIT_NONE;
        big.until_us[capacity + i] = INT64_MAX;
    }
    for (uint32_t slot = capacity; slot-- > q->capacity;)
        big.spare[big.spare_count++] = slot;
    for (uint32_t slot = 0; slot < q->capacity; slot++) {
        big.node[slot] = q->node[slot];
        if (big.node[slot]) {
            big.winner[capacity + slot] = slot;
            big.count++;
        } else {
            big.spare[big.spare_count++] = slot;
        }
    }
    wait_queue_fini(q);
    *q = big;
    return 0;
}

void wait_queue_put(struct wait_queue *q, struct wait_node *n)
{
    must(n->slot == 0 && q->spare_count > 0);
    uint32_t slot = q->spare[--q->spare_count];
    n->slot = slot + 1;
    q->node[slot] = n;
    q->winner[q->capacity + slot] = slot;
    q->count++;
    mark_due(q, slot);
}

void wait_queue_remove(struct wait_queue *q, struct wait_node *n)
{
    must(n->slot > 0 && q->node[n->slot - 1] == n);
    uint32_t slot = n->slot - 1;
    n->slot = 0;
    q->node[slot] = NULL;
    q->winner[q->capacity + slot] = WAIT_NONE;
    q->spare[q->spare_count++] = slot;
    q->count--;
    mark_due(q, slot);
}

bool wait_before(const struct wait_node *a, const struct wait_node *b, int64_t now_us)
{
    double ra = order_rank_at(&a->rank, now_us), rb = order_rank_at(&b->rank, now_us);
    if (ra < rb || ra > rb) return ra < rb;
    if (a->rank.tie_us != b->rank.tie_us) return a->rank.tie_us < b->rank.tie_us;
    return a->id < b->id;
}

/* Returns when `behind`, which falls faster, passes `first`; INT64_MAX: never. */
static int64_t crossing_us(const struct wait_node *first, const struct wait_node *behind,
                           int64_t now_us)
{
    double closing = first->rank.slope - behind->rank.slope; /* per second */
    if (!(closing > 0)) return INT64_MAX;
    double gap = order_rank_at(&behind->rank, now_us) - order_rank_at(&first->rank, now_us);
    double us = gap / closing * 1e6;
    if (!(us < 9e17)) return INT64_MAX;
    /* Allows for the rounding of both ranks, expressed as time. */
    double early = EARLY_US + us * 1e-9;
    int64_t ahead = us > early ? (int64_t)(us - early) : 0;
    return now_us + (ahead > 0 ? ahead : 1);
}

static void play(struct wait_queue *q, uint32_t i, int64_t now_us)
{
    if (q->until_us[i] > now_us) return;
    must(i < q->capacity);
    uint32_t left = 2 * i, right = left + 1;
    play(q, left, now_us);
    play(q, right, now_us);
    int64_t until = q->until_us[left] < q->until_us[right] ? q->until_us[left] : q->until_us[right];
    uint32_t a = q->winner[left], b = q->winner[right];
    if (a != WAIT_NONE && b != WAIT_NONE) {
        bool a_first = wait_before(q->node[a], q->node[b], now_us);
        uint32_t first = a_first ? a : b, behind = a_first ? b : a;
        int64_t cross = crossing_us(q->node[first], q->node[behind], now_us);
        if (cross < until) until = cross;
        q->winner[i] = first;
    } else {
        q->winner[i] = a != WAIT_NONE ? a : b;
    }
    q->until_us[i] = until;
}

struct wait_node *wait_queue_first(struct wait_queue *q, int64_t now_us)
{
    if (q->count == 0) return NULL;
    play(q, 1, now_us);
    return q->node[q->winner[1]];
}
