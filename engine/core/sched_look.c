/* sched_look.c - what a scheduler is asked: work, deadlines, counts, debts, whether it is sound. */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

uint32_t sched_queued(const struct scheduler *s)
{
    uint32_t standing = s->standing; /* of those that wait */
    LIST_EACH (&s->running, node)
        standing -= session_stands(SESSION_OF(node));
    return s->counts.waiting - standing;
}

bool sched_has_work(const struct scheduler *s)
{
    if (!list_empty(&s->aborting)) return true;
    LIST_EACH (&s->running, node) {
        if (!session_stands(SESSION_OF(node))) return true;
    }
    return sched_queued(s) > 0;
}

int64_t sched_next_deadline_us(const struct scheduler *s)
{
    const struct heap_node *n = heap_peek(&s->due);
    return n ? n->key : INT64_MAX;
}

void sched_counts_get(const struct scheduler *s, struct sched_counts *ret)
{
    *ret = s->counts;
}

static uint64_t owed(const struct list *sessions)
{
    uint64_t tokens = 0;
    LIST_EACH (sessions, node) {
        const struct session *x = SESSION_OF(node);
        tokens += x->prompt_tokens - min_u32(session_known(x), x->prompt_tokens);
    }
    return tokens;
}

uint64_t sched_prefill_owed(const struct scheduler *s)
{
    return owed(&s->running) + owed(&s->waiting) + owed(&s->parked);
}

const struct step_rows *sched_rows(const struct scheduler *s)
{
    return &s->rows;
}

struct kv_index *sched_index(struct scheduler *s)
{
    return &s->index;
}

static bool session_check(const struct scheduler *s, const struct session *x, uint64_t *held,
                          uint64_t *swapped)
{
    *(x->swapped ? swapped : held) += x->page_count;
    if ((uint64_t)x->page_count * s->config.page_tokens < x->computed) return false;
    if (x->computed >= x->total || x->total > x->total_max) return false;
    if (x->swapped && x->state != SESSION_WAITING) return false;
    return x->page_count > 0 || x->computed == 0;
}

bool sched_check(const struct scheduler *s)
{
    if (!kv_pool_check(&s->pool)) return false;
    uint64_t held = s->kept, swapped = 0, refs = 0;
    uint32_t running = 0, waiting = 0, queued = 0, standing = 0, standing_waiting = 0;
    LIST_EACH (&s->running, node) {
        running++;
        standing += session_stands(SESSION_OF(node));
        if (!session_check(s, SESSION_OF(node), &held, &swapped)) return false;
    }
    const struct list *const heads[] = { &s->waiting, &s->parked };
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        LIST_EACH (heads[i], node) {
            const struct session *x = SESSION_OF(node);
            waiting++;
            standing_waiting += session_stands(x);
            queued += x->wait.slot > 0 || list_linked(&x->unranked);
            if (!session_check(s, x, &held, &swapped)) return false;
            if (session_is_parked(x) != (i == 1)) return false;
        }
    }
    for (uint32_t i = 0; i < s->pool.total; i++)
        refs += s->pool.refs[i];
    return held == refs && running == s->counts.running && waiting == s->counts.waiting &&
           queued == waiting - standing_waiting && standing + standing_waiting == s->standing &&
           running <= s->config.seqs_max && swapped + s->swap_free_count == s->config.swap_pages;
}
