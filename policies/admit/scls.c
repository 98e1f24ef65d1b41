/* scls.c - splits all waiting sequences into static batches by dynamic programming; each batch runs
 * one slice (the batcher of slice-level scheduling, SCLS, arXiv 2406.13511).
 *
 * When nothing runs, the waiting sequences are sorted by their tokens so far and cut into batches of
 * neighbours. With best(0) = 0, the cheapest split of the first i is
 *
 *     best(i) = min over j < i of  best(j) + seconds(batch of j+1 .. i)
 *
 * over the batches that have at most `seqs_max` members and need no more KV at the end of the slice
 * than fits the memory. The slice (chunk scls, or the limit of a request that a router sent in
 * slices) bounds what each member generates, so time and memory of a batch are known before it
 * runs. A batch is closed: no other sequence joins before all of its members have ended or returned
 * to the queue. Sequences that come or return meanwhile are in the next round.
 *
 * The seconds are those of the shared step model over the steps of the slice:
 *
 *     steps   = ceil(uncached tokens / token budget) + longest output of a member - 1
 *     seconds = steps * step_s + cost of the members' own tokens
 *
 * Deviations. The paper's engine pads all members to the longest input; ours pads nothing, so a
 * member's own tokens cost the same in every batch. All splits then differ in their steps alone,
 * and the programme minimises steps: whole numbers, so that equal splits are exactly equal (the
 * longest sequences then go into the smallest batch). The paper forms batches from the fleet's pool
 * at intervals and queues them, longest first, at instances; here an engine forms them from its own
 * queue when the previous round is over, and runs the batch of least seconds per member first,
 * which is the order of least mean wait (Smith's rule). KV of a sequence between two slices stays
 * while there is room; the paper drops and recomputes it. Without slices a batch runs to its
 * members' limits. */
#include "base/core/bits.h"
#include "policies/admit/admit.h"

struct keyed {
    double key;
    uint32_t index;
};

/* The best split of the first i sequences; its last batch begins at `from`. */
struct cut {
    uint64_t steps;
    uint32_t from;
};

static bool before(const struct keyed *a, const struct keyed *b)
{
    if (a->key < b->key || a->key > b->key) return a->key < b->key;
    return a->index < b->index;
}

static void sort(struct keyed *list, uint32_t count)
{
    static const uint32_t gaps[] = { 701, 301, 132, 57, 23, 10, 4, 1 }; /* Ciura's for Shell sort */
    for (uint32_t g = 0; g < COUNT_OF(gaps); g++) {
        for (uint32_t i = gaps[g]; i < count; i++) {
            struct keyed one = list[i];
            uint32_t at = i;
            for (; at >= gaps[g] && before(&one, &list[at - gaps[g]]); at -= gaps[g])
                list[at] = list[at - gaps[g]];
            list[at] = one;
        }
    }
}

static uint64_t steps_of(const struct admit_pool *pool, uint64_t uncached, uint32_t output)
{
    uint32_t budget = pool->batch_tokens_max;
    return (uncached + budget - 1) / budget + output - 1;
}

static void split(const struct admit_pool *pool, const struct keyed *sorted, struct cut *ret)
{
    ret[0] = (struct cut){ 0 };
    for (uint32_t i = 1; i <= pool->count; i++) {
        uint64_t uncached = 0, pages = 0;
        uint32_t output = 0;
        ret[i].steps = UINT64_MAX;
        for (uint32_t j = i; j-- > 0 && i - j <= pool->seqs_max;) {
            const struct admit_candidate *c = &pool->candidate[sorted[j].index];
            uncached += c->uncached;
            pages += c->pages;
            output = max_u32(output, c->output);
            if (pages > pool->pages && i - j > 1) break; /* one alone fits an empty engine */
            uint64_t steps = ret[j].steps + steps_of(pool, uncached, output);
            if (steps < ret[i].steps) ret[i] = (struct cut){ steps, j };
        }
    }
}

/* Estimated seconds per member of the batch [from, to). */
static double member_s(const struct admit_pool *pool, const struct keyed *sorted, uint32_t from,
                       uint32_t to)
{
    struct perf_shape all = { 0 };
    uint32_t output = 0;
    for (uint32_t i = from; i < to; i++) {
        const struct admit_candidate *c = &pool->candidate[sorted[i].index];
        uint64_t uncached = c->uncached, tokens = c->tokens, decoded = c->output - 1;
        all.prefill_tokens += c->uncached;
        all.decoding_seqs += (uint32_t)decoded;
        all.kv_tokens_decoding += decoded * tokens + decoded * (decoded + 1) / 2;
        all.kv_tokens_read += uncached * (tokens - uncached) + uncached * (uncached + 1) / 2;
        output = max_u32(output, c->output);
    }
    all.kv_tokens_read += all.kv_tokens_decoding;
    uint64_t steps = steps_of(pool, all.prefill_tokens, output);
    double seconds = perf_step_s(&pool->perf, &all) + pool->perf.step_s * (double)(steps - 1);
    return seconds / (to - from);
}

static void batch(const struct admit_pool *pool, uint32_t *ret)
{
    struct keyed sorted[ADMIT_POOL_MAX], batches[ADMIT_POOL_MAX];
    struct cut cut[ADMIT_POOL_MAX + 1];
    uint32_t batch_count = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        sorted[i] = (struct keyed){ pool->candidate[i].tokens, i };
    sort(sorted, pool->count);
    split(pool, sorted, cut);
    for (uint32_t to = pool->count; to > 0; to = cut[to].from)
        batches[batch_count++] = (struct keyed){ member_s(pool, sorted, cut[to].from, to), to };
    sort(batches, batch_count);
    for (uint32_t b = 0; b < batch_count; b++)
        for (uint32_t i = cut[batches[b].index].from; i < batches[b].index; i++)
            ret[sorted[i].index] = b;
}

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_grown(view);
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    (void)state;
    return session->generated + session->slice_left;
}

const struct admit_policy admit_scls = {
    .name = "scls",
    .about =
        "closed batches of sequences of like length, by dynamic programming over all that wait",
    .source = "SCLS (arXiv 2406.13511)",
    .decide = decide,
    .reserve = reserve,
    .batch = batch,
};
